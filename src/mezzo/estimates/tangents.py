"""How a value follows others to first order, where a sum of two that follow the same ones nearly cancels.

(a + b) - (a - c), polynomials near a root and the like: each term is large, what they leave is not, and moments that
take the terms for independent do not see it.
"""

import math
from collections.abc import Mapping

from mezzo.core.facts import Transfer
from mezzo.estimates.moments import LOST, SIGMA, Moments, moments
from mezzo.estimates.site import Site

# So many steps back a value is followed, to so many others, and only where less than half of what independence says is
# left. A value follows others if they explain most of its variance.
_DEEPEST = 8
_MOST = 6
_CANCELS = 0.5
_EXPLAINED = 0.5
_ROUNDED = 1e-9

Tangent = Mapping[int, float]  # slope by the value that is followed


def cancelled(site: Site, first: int, second: int, sign: float, y: Moments) -> Moments | None:
    """The sum of two values, the second times `sign`, if to first order they cancel; `y` is the estimate that takes
    them for independent.
    """
    if y.flags & LOST:
        return None
    one, other = _tangent(site, first, _DEEPEST), _tangent(site, second, _DEEPEST)
    if not one.keys() & other.keys():
        return None
    joint = {symbol: one.get(symbol, 0.0) + sign * other.get(symbol, 0.0) for symbol in one.keys() | other.keys()}
    rest = sum(max(site.held[v].std ** 2 - _variance(site, t), 0.0) for v, t in ((first, one), (second, other)))
    std = math.sqrt(_variance(site, joint) + rest)
    if std > _CANCELS * y.std:
        return None
    return moments(y.mean, std, max(y.mean - SIGMA * std, y.low), min(y.mean + SIGMA * std, y.high), y.flags)


def distance(site: Site, first: int, second: int) -> float | None:
    """Root mean square of the difference of two values that follow the same ones to first order; else None."""
    one, other = _tangent(site, first, _DEEPEST), _tangent(site, second, _DEEPEST)
    if not one.keys() & other.keys():
        return None
    joint = {symbol: one.get(symbol, 0.0) - other.get(symbol, 0.0) for symbol in one.keys() | other.keys()}
    a, b = site.held[first], site.held[second]
    rest = sum(max(x.std**2 - _variance(site, t), 0.0) for x, t in ((a, one), (b, other)))
    return math.sqrt(_variance(site, joint) + rest + (a.mean - b.mean) ** 2)


def is_complement(site: Site, first: int, second: int) -> bool:
    """Whether one of two values is one less the other."""
    if abs(site.held[first].mean + site.held[second].mean - 1.0) > _ROUNDED:
        return False
    one, other = _tangent(site, first, _DEEPEST), _tangent(site, second, _DEEPEST)
    return one.keys() == other.keys() and all(abs(one[symbol] + other[symbol]) < _ROUNDED for symbol in one)


def _variance(site: Site, tangent: Tangent) -> float:
    return sum((slope * site.held[symbol].std) ** 2 for symbol, slope in sorted(tangent.items()))


def _tangent(site: Site, value: int, depth: int) -> Tangent:
    """What a value follows by elementwise arithmetic, and the slopes; itself where it follows nothing.

    Worked out once per value, so that all sums together are linear in the graph.
    """
    known = site.tangents.get(value)
    if known is None:
        known = _derived(site, value, depth)
        if depth:
            site.tangents[value] = known
    return known


def _derived(site: Site, value: int, depth: int) -> Tangent:
    itself = {site.kept[value]: 1.0}
    node = site.producer(value)
    transfer = site.transfer(node)
    if not depth or transfer not in _FOLLOWING:
        return itself
    operands = [v for v in node.inputs[:2] if v is not None]
    moving = [v for v in operands if site.held[v].std]
    if len(moving) == 1 and (len(operands) == 1 or transfer is not Transfer.POWER or moving[0] == operands[0]):
        fixed = next((site.held[v].mean for v in operands if not site.held[v].std), 1.0)
        factor = _factor(transfer, site.held[moving[0]].mean, fixed, is_second=moving[0] != operands[0])
        found = {symbol: slope * factor for symbol, slope in _tangent(site, moving[0], depth - 1).items()}
    elif len(moving) == 2 and transfer not in (Transfer.POWER, Transfer.DIVIDE):
        weights = 1.0, -1.0 if transfer is Transfer.SUBTRACT else 1.0
        if transfer is Transfer.MULTIPLY:
            weights = site.held[moving[1]].mean, site.held[moving[0]].mean
        found = {}
        for operand, weight in zip(moving, weights, strict=True):
            for symbol, slope in _tangent(site, operand, depth - 1).items():
                found[symbol] = found.get(symbol, 0.0) + weight * slope
    else:
        return itself
    is_followed = len(found) <= _MOST and _variance(site, found) >= _EXPLAINED * site.held[value].std ** 2
    return found if is_followed else itself


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


_FOLLOWING = frozenset(
    {Transfer.ADD, Transfer.SUBTRACT, Transfer.MULTIPLY, Transfer.DIVIDE, Transfer.NEGATE, Transfer.POWER,
     Transfer.ABSOLUTE, Transfer.KEEP, Transfer.STEP}
)  # fmt: skip
