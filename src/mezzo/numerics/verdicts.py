"""Says whether two models give the same answers: within a budget, against FP32's noise, over samples."""

from collections.abc import Sequence
from dataclasses import dataclass

from mezzo.dtypes import FORMATS, DType
from mezzo.errors import InputError
from mezzo.numerics.measures import Deviation, Interval, Verdict

# One rounding is off by 0.2 eps in root mean square, and independent ones add up like their square root: 8 eps are
# 1,600 roundings in a row, more than the deepest paths of today's networks have. An overflow gives far more.
_LOW_EPS = 8
# Noise is measured with one move per number; other kernels round at every layer. 16 is the root of 256 layers.
_NOISES = 16
_HIGH = (DType.FLOAT32, DType.FLOAT64)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much error is allowed, and who says so."""

    error: float
    source: str


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
        raise InputError(f"max drop is {text!r}; give a difference such as 0.005, or a share such as 0.5%")
    return Drop(amount / 100, True, text) if text.endswith("%") else Drop(amount, False, text)


def choose_budget(max_error: float | None, lowest: DType, noise: float) -> Budget:
    """The budget given, or one from the coarsest format; raised to FP32's noise if that is larger.

    Raises: InputError: `max_error` is negative or no number.
    """
    if max_error is not None:
        if not 0 <= max_error < float("inf"):
            raise InputError(f"max error is {max_error}; give a relative error of 0 or more, such as 1e-3")
        if noise > max_error:
            return Budget(noise, f"the noise of FP32 itself, as the {max_error:.3g} asked for is below it")
        return Budget(max_error, "as asked for")
    if lowest in _HIGH:
        eps = FORMATS[DType.FLOAT32].eps
        return Budget(_NOISES * max(noise, eps), f"{_NOISES} times the noise of FP32")
    error = _LOW_EPS * FORMATS[lowest].eps
    if noise > error:
        return Budget(noise, f"the noise of FP32 itself, as {_LOW_EPS} eps of {lowest} are below it")
    return Budget(error, f"{_LOW_EPS} eps of {lowest}")


def judge(outputs: Sequence[Deviation], budget: Budget, noise: float) -> Verdict:
    """Judge by the output whose interval reaches highest; a fault of any output decides."""
    zero = Interval(0.0, 0.0, 0.0)
    floats = [output for output in outputs if not output.fault] or list(outputs)
    worst = max(floats, key=lambda output: _reach(output.relative_l2), default=None)
    error = zero if worst is None else worst.relative_l2
    faulty = next((output for output in outputs if output.fault), None)
    if faulty is not None:
        is_same, because = False, f"output {faulty.name!r}: {faulty.fault}"
        error = faulty.relative_l2
    elif worst is None:
        is_same, because = True, "the models have no outputs"
    else:
        is_same, because = _weigh(f"output {worst.name!r} differs most, by", error, budget.error)
    return Verdict(is_same, error, budget.error, budget.source, noise, because)


def judge_drop(
    outputs: Sequence[Deviation], name: str, drop: Interval, allowed: Drop, of: float, noise: float
) -> Verdict:
    """Judge by how much worse the user's metric became; a fault of any output decides all the same."""
    limit = allowed.allowed(of)
    source = f"a drop of {allowed.text} of {name}"
    faulty = next((output for output in outputs if output.fault), None)
    if faulty is not None:
        return Verdict(False, drop, limit, source, noise, f"output {faulty.name!r}: {faulty.fault}")
    is_same, because = _weigh(f"{name} drops by", drop, limit)
    return Verdict(is_same, drop, limit, source, noise, because)


def _weigh(what: str, error: Interval, limit: float) -> tuple[bool, str]:
    share = f"with {100 * error.confidence:g} % confidence"
    said = f"{what} {error.estimate:.3g}"
    if error.high <= limit:
        return True, f"{said}, {share} at most {error.high:.3g}, within {limit:.3g}"
    if not error.estimate <= limit:
        return False, f"{said}, more than {limit:.3g}"
    return False, (
        f"undecided: {said}, within {limit:.3g}, but {share} it may be {error.high:.3g}; more samples would decide"
    )


def _reach(interval: Interval) -> float:
    """The upper end, with what is no number above all."""
    return interval.high if interval.high == interval.high else float("inf")
