"""How a value follows another to first order, where a sum of two that follow the same one nearly cancels.

Polynomials near a root and the like: each term is large, what they leave is not, and moments that take the terms for
independent do not see it.
"""

import math

from mezzo.estimates.moments import LOST, SIGMA, Moments, moments
from mezzo.estimates.site import Site
from mezzo.facts import Transfer

# So many steps back a value is followed, and only where less than half of what independence says is left.
_DEEPEST = 10
_CANCELS = 0.5


def cancelled(site: Site, first: int, second: int, sign: float, y: Moments) -> Moments | None:
    """The sum of two values, the second times `sign`, if to first order they cancel; `y` is the estimate that takes
    them for independent.
    """
    symbol, slope = _tangent(site, first, _DEEPEST)
    other, slope_2 = _tangent(site, second, _DEEPEST)
    if symbol != other or y.flags & LOST or symbol in (first, second):
        return None
    spread = site.held[symbol].std
    rests = (site.held[v].std ** 2 - (s * spread) ** 2 for v, s in ((first, slope), (second, slope_2)))
    std = math.sqrt(((slope + sign * slope_2) * spread) ** 2 + sum(max(rest, 0.0) for rest in rests))
    if std > _CANCELS * y.std:
        return None
    return moments(y.mean, std, y.mean - SIGMA * std, y.mean + SIGMA * std, y.flags)


def _tangent(site: Site, value: int, depth: int) -> tuple[int, float]:
    """The value that another follows by elementwise polynomials, and the slope; itself where it follows none."""
    node = site.producer(value)
    transfer = site.transfer(node)
    if not depth or transfer not in _POLYNOMIAL:
        return site.kept[value], 1.0
    operands = [v for v in node.inputs[:2] if v is not None]
    moving = [v for v in operands if site.held[v].std]
    if len(moving) == 1 and (len(operands) == 1 or transfer is not Transfer.POWER or moving[0] == operands[0]):
        symbol, slope = _tangent(site, moving[0], depth - 1)
        fixed = next((site.held[v].mean for v in operands if not site.held[v].std), 1.0)
        return symbol, slope * _factor(transfer, site.held[moving[0]].mean, fixed, is_second=moving[0] != operands[0])
    if len(moving) != 2 or transfer is Transfer.POWER:
        return site.kept[value], 1.0
    (symbol, slope), (other, slope_2) = (_tangent(site, v, depth - 1) for v in moving)
    if symbol != other:
        return site.kept[value], 1.0
    if transfer is Transfer.MULTIPLY:
        return symbol, slope * site.held[moving[1]].mean + slope_2 * site.held[moving[0]].mean
    return symbol, slope + (slope_2 if transfer is Transfer.ADD else -slope_2)


def _factor(transfer: Transfer, at: float, fixed: float, *, is_second: bool) -> float:
    """The slope of an operator with one moving operand, at its mean."""
    if transfer is Transfer.MULTIPLY:
        return fixed
    if transfer is Transfer.DIVIDE:
        return 1.0 / fixed if fixed and not is_second else 0.0
    if transfer is Transfer.ABSOLUTE:
        return math.copysign(1.0, at)
    if transfer is Transfer.NEGATE or (transfer is Transfer.SUBTRACT and is_second):
        return -1.0
    if transfer is Transfer.POWER:
        return fixed * math.copysign(abs(at) ** (fixed - 1.0), at if fixed == 2.0 else 1.0) if at else 0.0
    return 1.0


_POLYNOMIAL = frozenset(
    {Transfer.ADD, Transfer.SUBTRACT, Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.NEGATE, Transfer.POWER,
     Transfer.ABSOLUTE, Transfer.KEEP}
)  # fmt: skip
