"""Says whether two models give the same answers: within a budget, against FP32's noise, over samples."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.data.data_checks import MOST_NOISE, Unknown
from mezzo.numerics.measures import Deviation, Interval, Ruling, Verdict

# One rounding is off by 0.2 eps in root mean square, and independent ones add up like their square root: 8 eps are
# 1,600 roundings in a row, more than the deepest paths of today's networks have. An overflow gives far more.
_LOW_EPS = 8
# What is off by more than a quarter of itself says little, of however few bits it was made. Trained networks that keep
# their top-1 in FP8 err by 0.02 to 0.08 (E4M3) and 0.04 to 0.21 (E5M2): docs/figures.md, FP8 beside INT8.
_MOST_LOW = 0.25
# Noise is measured with one move per number; other kernels round at every layer. 16 is the root of 256 layers.
_NOISES = 16
_HIGH = (DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much error is allowed, and who says so; `asked` is what was asked for where FP32's noise is above it."""

    error: float
    source: str
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """How much worse a metric may become: absolute, or relative to the reference's figure. `text` as the user wrote."""

    amount: float
    is_relative: bool
    text: str

    def allowed(self, reference: float) -> float:
        """The allowance in the metric's own unit."""
        return self.amount * abs(reference) if self.is_relative else self.amount


def read_drop(given: str | float) -> Drop:
    """Read "0.005" or "0.5%". Raises InputError: it is neither, or negative."""
    text = str(given).strip()
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise InputError(f"{option('max_drop')} is {text!r}; give a difference such as 0.005, or a share such as 0.5%")
    return Drop(amount / 100, True, text) if text.endswith("%") else Drop(amount, False, text)


def choose_budget(max_error: float | None, lowest: DType, noise: float) -> Budget:
    """The budget given, or one from the coarsest format; raised to FP32's noise if that is larger, up to a tenth.

    Raises: InputError: `max_error` is negative or no number.
    """
    if max_error is not None and not 0 <= max_error < float("inf"):
        raise InputError(f"{option('max_error')} is {max_error}; give a relative error of 0 or more, such as 1e-3")
    raised = min(noise, MOST_NOISE)
    if max_error is not None:
        if raised > max_error:
            return Budget(raised, f"the noise of FP32 itself, as the {max_error:.3g} asked for is below it", max_error)
        return Budget(max_error, "as asked for")
    if lowest in _HIGH:
        eps = FORMATS[DType.FLOAT32].eps
        return Budget(min(_NOISES * max(noise, eps), MOST_NOISE), f"{_NOISES} times the noise of FP32")
    error = _LOW_EPS * FORMATS[lowest].eps
    if error > _MOST_LOW:
        return Budget(_MOST_LOW, f"a quarter of an answer, as {_LOW_EPS} eps of {lowest} are above it")
    if raised > error:
        return Budget(raised, f"the noise of FP32 itself, as {_LOW_EPS} eps of {lowest} are below it")
    return Budget(error, f"{_LOW_EPS} eps of {lowest}")


def floor_of(lowest: DType, noise: float) -> float:
    """The least that a budget of an output may be, for the noise that FP32 itself makes in it."""
    return _NOISES * noise if lowest in _HIGH else noise


def judge_output(output: Deviation, budget: Budget, noise: float, unknown: Unknown | None) -> Deviation:
    """Judge one output by its own budget. What is wrong is wrong; else what is `unknown` about it decides."""
    error = output.relative_l2
    is_blind = unknown is not None and unknown.is_blind
    if output.fault is not None or not (is_blind or error.estimate <= budget.error):
        ruling = Ruling.DIFFERENT
    elif unknown is not None:
        ruling = Ruling.UNKNOWN
    else:
        ruling = Ruling.SAME if error.high <= budget.error and output.doubt is None else Ruling.UNDECIDED
    because = None if unknown is None else unknown.because
    return replace(
        output, ruling=ruling, budget=budget.error, budget_source=budget.source, budget_asked=budget.asked, noise=noise,
        unknown=because,
    )  # fmt: skip


def judge(outputs: Sequence[Deviation], faults: Sequence[str]) -> Verdict:
    """Judge by outputs that are judged each: a wrong one decides, then what cannot be told, then what is undecided.

    `faults`: why nothing can be told from the data.
    """
    unknown = (*faults, *_tell_unknown(outputs))
    wrong = _worst(output for output in outputs if output.ruling is Ruling.DIFFERENT)
    if wrong is not None and wrong.fault is not None:
        return _rule(Ruling.DIFFERENT, wrong, f"output {wrong.name!r}: {wrong.fault}", unknown)
    if wrong is not None:
        return _rule(Ruling.DIFFERENT, wrong, _weigh_output(wrong), unknown)
    judged = [output for output in outputs if output.ruling is not Ruling.UNKNOWN]
    worst = _worst(judged)
    if not outputs and not unknown:
        unknown = ("the models have no outputs",)
    if unknown:
        return _rule(Ruling.UNKNOWN, worst, _sum_up(unknown, judged, len(outputs)), unknown)
    doubtful = next((output for output in judged if output.doubt is not None), None)
    if doubtful is not None:
        return _rule(Ruling.UNDECIDED, doubtful, f"output {doubtful.name!r}: {doubtful.doubt}", ())
    assert worst is not None and worst.ruling is not None, "an output that is judged has a ruling"
    return _rule(worst.ruling, worst, _weigh_output(worst), ())


def judge_drop(
    outputs: Sequence[Deviation], name: str, drop: Interval, allowed: Drop, of: float, faults: Sequence[str]
) -> Verdict:
    """Judge by how much worse the user's metric became; a fault of any output decides all the same.

    Outputs that cannot be judged matter where there are no others: a metric of them shows nothing either.
    """
    limit = allowed.allowed(of)
    source = f"a drop of {allowed.text} of {name}"
    faulty = next((output for output in outputs if output.fault), None)
    is_blind = all(output.ruling is Ruling.UNKNOWN for output in outputs)
    unknown = (*faults, *(_tell_unknown(outputs) if is_blind else ()))
    ruling, because = _weigh(f"{name} drops by", drop, limit)
    if faulty is not None:
        ruling, because = Ruling.DIFFERENT, f"output {faulty.name!r}: {faulty.fault}"
    elif unknown and ruling is not Ruling.DIFFERENT:
        ruling, because = Ruling.UNKNOWN, _sum_up(unknown, [], len(outputs))
    noise = max((output.noise or 0.0 for output in outputs), default=0.0)
    return Verdict(
        ruling=ruling, error=drop, budget=limit, budget_source=source, noise=noise, because=because, unknown=unknown
    )


def _tell_unknown(outputs: Sequence[Deviation]) -> list[str]:
    return [f"output {output.name!r} {output.unknown}" for output in outputs if output.ruling is Ruling.UNKNOWN]


def _sum_up(unknown: Sequence[str], judged: Sequence[Deviation], outputs: int) -> str:
    """The first reason, how many more there are, and what could be judged all the same."""
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    if not judged or len(judged) == outputs:
        return f"{unknown[0]}{more}"
    is_same = all(output.ruling is Ruling.SAME for output in judged)
    word = "the same" if is_same else "within the budget so far"
    some = f"{judged[0].name!r}" if len(judged) == 1 else f"{len(judged)} of {outputs} outputs"
    return f"{unknown[0]}{more}; {some} could be judged: {word}"


def _worst(outputs: Iterable[Deviation]) -> Deviation | None:
    """The first with a fault; else the one whose interval reaches highest, in units of its own budget."""
    several = list(outputs)
    faulty = next((output for output in several if output.fault is not None), None)
    return faulty or max(several, key=_share_of_budget, default=None)


def _share_of_budget(output: Deviation) -> float:
    reach, budget = _reach(output.relative_l2), output.budget or 0.0
    if budget > 0.0:
        return reach / budget
    return float("inf") if reach > 0.0 else 0.0


def _rule(ruling: Ruling, by: Deviation | None, because: str, unknown: tuple[str, ...]) -> Verdict:
    """The verdict of the output that decides, or of none."""
    if by is None:
        nothing = float("nan")
        return Verdict(
            ruling=ruling,
            error=Interval(nothing, nothing, nothing),
            budget=0.0,
            budget_source="none: nothing could be judged",
            noise=0.0,
            because=because,
            unknown=unknown,
        )
    return Verdict(
        ruling=ruling,
        error=by.relative_l2,
        budget=by.budget or 0.0,
        budget_source=by.budget_source or "",
        budget_asked=by.budget_asked,
        noise=by.noise or 0.0,
        because=because,
        unknown=unknown,
    )


def _weigh_output(output: Deviation) -> str:
    return _weigh(f"output {output.name!r} differs most, by", output.relative_l2, output.budget or 0.0)[1]


def _weigh(what: str, error: Interval, limit: float) -> tuple[Ruling, str]:
    share = f"with {100 * error.confidence:g} % confidence"
    said = f"{what} {error.estimate:.3g}"
    if error.high <= limit:
        return Ruling.SAME, f"{said}, {share} at most {error.high:.3g}, within {limit:.3g}"
    if not error.estimate <= limit:
        return Ruling.DIFFERENT, f"{said}, more than {limit:.3g}"
    return Ruling.UNDECIDED, (
        f"{said}, within {limit:.3g}, but {share} it may be {error.high:.3g}; more samples would decide"
    )


def _reach(interval: Interval) -> float:
    """The upper end, with what is no number above all."""
    return interval.high if interval.high == interval.high else float("inf")
