"""Verdicts on whether two models have the same outputs: within a budget, above FP32's noise, with
confidence over samples.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.data.data_checks import MOST_NOISE, Unknown
from mezzo.numerics.measures import Deviation, Interval, Ruling, Verdict

# One rounding has a relative error of 0.2 eps (root mean square), and independent ones grow with
# the root of their number: 8 eps are 1,600 successive roundings, more than the deepest networks
# have. An overflow gives far more.
_LOW_EPS = 8
# No budget exceeds 25 %, however few bits a format has. Trained networks that keep their top-1 in
# FP8 have errors of 0.02 to 0.08 (E4M3) and 0.04 to 0.21 (E5M2) (docs/figures/data-and-budgets.md).
_MOST_LOW = 0.25
# Noise is measured with one perturbation; other kernels round at every layer. 16 is the root of 256
# layers.
_NOISES = 16
_HIGH = (DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class Budget:
    """The allowed error and its source; `asked`: the requested one, if noise is above it."""

    error: float
    source: str
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """The allowed loss of a metric, absolute or relative. `text`: as the user wrote it."""

    amount: float
    is_relative: bool
    text: str

    def allowed(self, reference: float) -> float:
        """The allowed loss in the metric's own unit."""
        return self.amount * abs(reference) if self.is_relative else self.amount


def read_drop(drop: str | float) -> Drop:
    """Parse "0.005" or "0.5%". Raises InputError: neither form, or negative."""
    text = str(drop).strip()
    try:
        amount = float(text.removesuffix("%"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < float("inf"):
        raise InputError(
            f"{option('max_drop')} is {text!r}; give a difference such as 0.005, or a share such as"
            " 0.5%"
        )
    return Drop(amount / 100, True, text) if text.endswith("%") else Drop(amount, False, text)


def choose_budget(max_error: float | None, lowest: DType, noise: float) -> Budget:
    """The requested budget, or one from the coarsest format; raised to FP32's noise if that is
    larger, up to 0.1.

    Raises InputError: `max_error` is negative or not finite.
    """
    if max_error is not None and not 0 <= max_error < float("inf"):
        raise InputError(
            f"{option('max_error')} is {max_error}; give a relative error of 0 or more, such as"
            " 1e-3"
        )
    raised = min(noise, MOST_NOISE)
    if max_error is not None:
        if raised > max_error:
            return Budget(
                raised,
                f"the noise of FP32 itself, as the {max_error:.3g} asked for is below it",
                max_error,
            )
        return Budget(max_error, "as asked for")
    if lowest in _HIGH:
        eps = FORMATS[DType.FLOAT32].eps
        return Budget(
            min(_NOISES * max(noise, eps), MOST_NOISE), f"{_NOISES} times the noise of FP32"
        )
    error = _LOW_EPS * FORMATS[lowest].eps
    if error > _MOST_LOW:
        return Budget(
            _MOST_LOW, f"a quarter of an answer, as {_LOW_EPS} eps of {lowest} are above it"
        )
    if raised > error:
        return Budget(
            raised, f"the noise of FP32 itself, as {_LOW_EPS} eps of {lowest} are below it"
        )
    return Budget(error, f"{_LOW_EPS} eps of {lowest}")


def floor_of(lowest: DType, noise: float) -> float:
    """The smallest budget of an output that FP32's own noise justifies."""
    return _NOISES * noise if lowest in _HIGH else noise


def judge_output(
    output: Deviation, budget: Budget, noise: float, unknown: Unknown | None
) -> Deviation:
    """Judge one output by its own budget. A wrong one fails even if parts of it are `unknown`."""
    error = output.relative_l2
    is_blind = unknown is not None and unknown.is_blind
    if output.fault is not None or not (is_blind or error.estimate <= budget.error):
        ruling = Ruling.DIFFERENT
    elif unknown is not None:
        ruling = Ruling.UNKNOWN
    else:
        ruling = (
            Ruling.SAME if error.high <= budget.error and output.doubt is None else Ruling.UNDECIDED
        )
    because = None if unknown is None else unknown.because
    return replace(
        output, ruling=ruling, budget=budget.error, budget_source=budget.source,
        budget_asked=budget.asked, noise=noise, unknown=because,
    )  # fmt: skip


def judge(outputs: Sequence[Deviation], faults: Sequence[str]) -> Verdict:
    """The verdict on all outputs: a wrong one decides, then what is unknown, then what is
    undecided.

    `faults`: reasons why the data allows no verdict.
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
    outputs: Sequence[Deviation],
    name: str,
    drop: Interval,
    allowed: Drop,
    of: float,
    faults: Sequence[str],
) -> Verdict:
    """The verdict by the loss of the user's metric; a fault of any output still fails the model.

    Outputs that cannot be judged matter only if none can: then the metric shows nothing either.
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
        ruling=ruling,
        error=drop,
        budget=limit,
        budget_source=source,
        noise=noise,
        because=because,
        unknown=unknown,
    )


def _tell_unknown(outputs: Sequence[Deviation]) -> list[str]:
    return [
        f"output {output.name!r} {output.unknown}"
        for output in outputs
        if output.ruling is Ruling.UNKNOWN
    ]


def _sum_up(unknown: Sequence[str], judged: Sequence[Deviation], outputs: int) -> str:
    """The first reason, the number of others, and the ruling on outputs that could be judged."""
    more = f", and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    if not judged or len(judged) == outputs:
        return f"{unknown[0]}{more}"
    is_same = all(output.ruling is Ruling.SAME for output in judged)
    word = "the same" if is_same else "within the budget so far"
    some = f"{judged[0].name!r}" if len(judged) == 1 else f"{len(judged)} of {outputs} outputs"
    return f"{unknown[0]}{more}; {some} could be judged: {word}"


def _worst(outputs: Iterable[Deviation]) -> Deviation | None:
    """The first output with a fault, else the one whose upper bound exceeds its budget most."""
    several = list(outputs)
    faulty = next((output for output in several if output.fault is not None), None)
    return faulty or max(several, key=_share_of_budget, default=None)


def _share_of_budget(output: Deviation) -> float:
    reach, budget = _reach(output.relative_l2), output.budget or 0.0
    if budget > 0.0:
        return reach / budget
    return float("inf") if reach > 0.0 else 0.0


def _rule(ruling: Ruling, by: Deviation | None, because: str, unknown: tuple[str, ...]) -> Verdict:
    """The verdict of the deciding output, or of none."""
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
    return _weigh(
        f"output {output.name!r} differs most, by", output.relative_l2, output.budget or 0.0
    )[1]


def _weigh(subject: str, error: Interval, limit: float) -> tuple[Ruling, str]:
    """The ruling on an error interval against a limit, and the reason."""
    share = f"with {100 * error.confidence:g} % confidence"
    summary = f"{subject} {error.estimate:.3g}"
    if error.high <= limit:
        return Ruling.SAME, f"{summary}, {share} at most {error.high:.3g}, within {limit:.3g}"
    if not error.estimate <= limit:
        return Ruling.DIFFERENT, f"{summary}, more than {limit:.3g}"
    return (
        Ruling.UNDECIDED,
        (
            f"{summary}, within {limit:.3g}, but {share} it may be {error.high:.3g}; more samples"
            " would decide"
        ),
    )


def _reach(interval: Interval) -> float:
    """The upper bound, with NaN as infinity."""
    return interval.high if interval.high == interval.high else float("inf")
