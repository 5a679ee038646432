"""Values of small constants after operators whose other operands are data at zero, by transfer law.
None represents data.
"""

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
    """A quotient. Data in the numerator gives None; data in the denominator counts as 1."""
    if numerator is None or divisor is None:
        return _small(numerator)
    return numerator * _pow(divisor, -1.0) if numerator or divisor else math.nan


def _small(product: float | None) -> float | None:
    """Product of a number and data: the number if below 1, else None, as the data is zero."""
    return product if product is not None and abs(product) < 1.0 else None


def _times(operands: Sequence[float | None]) -> float | None:
    product = math.prod(number for number in operands if number is not None)
    return _small(product) if None in operands else product


def _to_the(operands: Sequence[float | None]) -> float | None:
    base, exponent = operands
    return None if base is None or exponent is None else _pow(base, exponent)


def _of_one(compute: Callable[[float], float]) -> Callable[[Sequence[float | None]], float | None]:
    return lambda operands: None if operands[0] is None else compute(operands[0])


def _known(operands: Sequence[float | None]) -> list[float]:
    return [number for number in operands if number is not None]


# Rules by law: a sum keeps the constant, a bound applies; None if it has no effect.
AT_ZERO: Mapping[Transfer, Callable[[Sequence[float | None]], float | None]] = {
    Transfer.ADD: lambda operands: sum(_known(operands)),
    Transfer.SUBTRACT: lambda operands: (operands[0] or 0.0) - (operands[1] or 0.0),
    Transfer.MULTIPLY: _times,
    Transfer.DIVIDE: lambda operands: _over(*operands),
    Transfer.MAXIMUM: lambda operands: max(_known(operands)),
    Transfer.MINIMUM: lambda operands: min(_known(operands)),
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
