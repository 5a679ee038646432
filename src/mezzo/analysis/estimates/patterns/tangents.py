"""First-order dependence of values on common sources, to detect cancellation.

In (a + b) - (a - c), polynomials near a root and the like, each term is large and their sum is
small, which moments of independent terms do not show.
"""

import math
from collections.abc import Mapping, Sequence

from mezzo.analysis.estimates.moments import LOST, SIGMA, Moments, moments
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.tables.facts import Transfer

# Limits: operators traversed backward, sources per value, remaining share of the deviation that
# counts as cancellation, and the share of a value's variance that its sources have to explain.
_DEEPEST = 8
_MOST = 6
_CANCELS = 0.5
_EXPLAINED = 0.5
_ROUNDED = 1e-9

Tangent = Mapping[int, float]  # derivative by source value


def cancelled(
    site: EstimatedGraph, first: int, second: int, sign: float, y: Moments
) -> Moments | None:
    """The estimate of a sum of two values, the second times `sign`, if they cancel to first order;
    else None. `y` is the estimate for independent terms.
    """
    if y.flags & LOST or not (
        site.made_by[first] in _FOLLOWING or site.made_by[second] in _FOLLOWING
    ):
        return None
    variance = _variance_of_sum(site, first, second, sign)
    if variance is None or math.sqrt(variance) > _CANCELS * y.std:
        return None
    std = math.sqrt(variance)
    return moments(
        y.mean, std, max(y.mean - SIGMA * std, y.low), min(y.mean + SIGMA * std, y.high), y.flags
    )


def distance(site: EstimatedGraph, first: int, second: int) -> float | None:
    """Root mean square of the difference of two values with common sources; None if they share
    none.
    """
    variance = _variance_of_sum(site, first, second, -1.0)
    if variance is None:
        return None
    return math.sqrt(variance + (site.estimates[first].mean - site.estimates[second].mean) ** 2)


def _variance_of_sum(site: EstimatedGraph, first: int, second: int, sign: float) -> float | None:
    """Variance of a sum of two values, the second times `sign`, with common sources; None if they
    share none.
    """
    left, right = _tangent(site, first, _DEEPEST), _tangent(site, second, _DEEPEST)
    if left.keys().isdisjoint(right):
        return None
    joint = {
        symbol: left.get(symbol, 0.0) + sign * right.get(symbol, 0.0)
        for symbol in left.keys() | right.keys()
    }
    rest = sum(
        max(site.estimates[value].std ** 2 - _variance(site, tangent), 0.0)
        for value, tangent in ((first, left), (second, right))
    )
    return _variance(site, joint) + rest


def is_complement(site: EstimatedGraph, first: int, second: int) -> bool:
    """Whether one value is 1 minus the other."""
    if abs(site.estimates[first].mean + site.estimates[second].mean - 1.0) > _ROUNDED:
        return False
    left, right = _tangent(site, first, _DEEPEST), _tangent(site, second, _DEEPEST)
    return left.keys() == right.keys() and all(
        abs(left[symbol] + right[symbol]) < _ROUNDED for symbol in left
    )


def _variance(site: EstimatedGraph, tangent: Tangent) -> float:
    total = 0.0
    for symbol, slope in sorted(tangent.items()):
        total += (slope * site.estimates[symbol].std) ** 2
    return total


def _tangent(site: EstimatedGraph, value: int, depth: int) -> Tangent:
    """Derivatives of a value by its sources, through elementwise arithmetic; itself if it has none.

    Cached per value, so that all sums together take linear time.
    """
    cached = site.tangents.get(value)
    if cached is not None:
        return cached
    transfer = site.made_by[value]
    if not depth or transfer not in _FOLLOWING:
        return {site.kept[value]: 1.0}
    operands = [operand for operand in site.producer(value).inputs[:2] if operand is not None]
    derived = _derived(site, operands, transfer, depth - 1)
    if (
        derived is None
        or len(derived) > _MOST
        or not _variance(site, derived) >= _EXPLAINED * site.estimates[value].std ** 2
    ):
        derived = {site.kept[value]: 1.0}
    site.tangents[value] = derived
    return derived


def _derived(
    site: EstimatedGraph, operands: Sequence[int], transfer: Transfer, depth: int
) -> Tangent | None:
    """Derivatives of a result by the chain rule; None for unsupported pairs of varying operands."""
    estimates = site.estimates
    moving = [value for value in operands if estimates[value].std]
    if len(moving) == 1 and (
        len(operands) == 1 or transfer is not Transfer.POWER or moving[0] == operands[0]
    ):
        fixed = next((estimates[value].mean for value in operands if not estimates[value].std), 1.0)
        factor = _factor(
            transfer, estimates[moving[0]].mean, fixed, is_second=moving[0] != operands[0]
        )
        return {
            symbol: slope * factor for symbol, slope in _tangent(site, moving[0], depth).items()
        }
    if len(moving) != 2 or transfer in (Transfer.POWER, Transfer.DIVIDE):
        return None
    weights = 1.0, -1.0 if transfer is Transfer.SUBTRACT else 1.0
    if transfer is Transfer.MULTIPLY:
        weights = estimates[moving[1]].mean, estimates[moving[0]].mean
    slopes: dict[int, float] = {}
    for operand, weight in zip(moving, weights, strict=True):
        for symbol, slope in _tangent(site, operand, depth).items():
            slopes[symbol] = slopes.get(symbol, 0.0) + weight * slope
    return slopes


def _factor(transfer: Transfer, at: float, fixed: float, *, is_second: bool) -> float:
    """Derivative of an operator with one varying operand, at its mean."""
    if transfer is Transfer.MULTIPLY:
        return fixed
    if transfer is Transfer.DIVIDE:
        return 1.0 / fixed if fixed and not is_second else 0.0
    if transfer is Transfer.ABSOLUTE:
        return math.copysign(1.0, at)
    if transfer is Transfer.NEGATE or (transfer is Transfer.SUBTRACT and is_second):
        return -1.0
    if transfer is Transfer.POWER:
        return (
            fixed * math.copysign(abs(at) ** (fixed - 1.0), at if fixed == 2.0 else 1.0)
            if at
            else 0.0
        )
    return 1.0


_FOLLOWING = frozenset(
    {
        Transfer.ADD,
        Transfer.SUBTRACT,
        Transfer.MULTIPLY,
        Transfer.DIVIDE,
        Transfer.NEGATE,
        Transfer.POWER,
        Transfer.ABSOLUTE,
        Transfer.KEEP,
        Transfer.STEP,
        Transfer.CAST,
    }
)
