"""What operators make of small constants where the data beside them is zero, by their law. Data is None."""

import math
from collections.abc import Callable, Mapping, Sequence

from mezzo.tables.facts import Transfer


def _pow(base: float, exponent: float) -> float:
    if not base:
        return math.inf if exponent < 0.0 else 0.0
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):
        return math.inf


def _over(numerator: float | None, divisor: float | None) -> float | None:
    """A quotient; data that is divided tells nothing, data that is divided by is taken for one."""
    if numerator is None or divisor is None:
        return _small(numerator)
    return numerator * _pow(divisor, -1.0) if numerator or divisor else math.nan


def _small(product: float | None) -> float | None:
    """What data times a number is: as small as that, or zero where the number is large, as data is zero there."""
    return product if product is not None and abs(product) < 1.0 else None


def _times(held: Sequence[float | None]) -> float | None:
    product = math.prod(number for number in held if number is not None)
    return _small(product) if None in held else product


def _to_the(held: Sequence[float | None]) -> float | None:
    base, exponent = held
    return None if base is None or exponent is None else _pow(base, exponent)


def _of_one(compute: Callable[[float], float]) -> Callable[[Sequence[float | None]], float | None]:
    return lambda held: None if held[0] is None else compute(held[0])


def _known(held: Sequence[float | None]) -> list[float]:
    return [number for number in held if number is not None]


# A sum leaves the constant, a bound bounds; None where nothing is left of it.
AT_ZERO: Mapping[Transfer, Callable[[Sequence[float | None]], float | None]] = {
    Transfer.ADD: lambda held: sum(_known(held)),
    Transfer.SUBTRACT: lambda held: (held[0] or 0.0) - (held[1] or 0.0),
    Transfer.MULTIPLY: _times,
    Transfer.DIVIDE: lambda held: _over(*held),
    Transfer.MAXIMUM: lambda held: max(_known(held)),
    Transfer.MINIMUM: lambda held: min(_known(held)),
    Transfer.POWER: _to_the,
    Transfer.NEGATE: _of_one(lambda t: -t),
    Transfer.ABSOLUTE: _of_one(abs),
    Transfer.L1_NORM: _of_one(abs),
    Transfer.L2_NORM: _of_one(abs),
    Transfer.RELU: _of_one(lambda t: max(t, 0.0)),
    Transfer.SQUARE: _of_one(lambda t: t * t),
    Transfer.SUM_OF_SQUARES: _of_one(lambda t: t * t),
    Transfer.SQUARE_ROOT: _of_one(lambda t: _pow(t, 0.5)),
    Transfer.RECIPROCAL: _of_one(lambda t: _pow(t, -1.0)),
    Transfer.RECIPROCAL_ROOT: _of_one(lambda t: _pow(t, -0.5)),
}
