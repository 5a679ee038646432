"""Transfer laws of comparisons, signs and rounding to integers."""

import math
from collections.abc import Callable, Mapping

from mezzo.analysis.estimates.laws.law import (
    Demand,
    Demands,
    Law,
    Laws,
    Operands,
    always,
    nothing,
    of_one,
    tolerated,
)
from mezzo.analysis.estimates.moments import HARD, INTEGER, LOST, POSITIVE, TRUTH, Moments, cut_off
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer


def sign(x: Moments) -> Moments:
    if x.flags & POSITIVE:
        return Moments(1.0, 0.0, 1.0, 1.0, INTEGER | POSITIVE)
    return Moments(0.0, 1.0, -1.0, 1.0, INTEGER | HARD)


def step(site: EstimatedGraph, node: Node, xs: Operands) -> Moments:
    x = xs[0]
    if x.flags & (LOST | INTEGER):
        return x
    return cut_off(x, *_STEPS.get(node.op.lower(), (round, 0.0)))


# Rounding function and mean shift by operator; all others round to nearest.
_STEPS: Mapping[str, tuple[Callable[[float], float], float]] = {
    "ceil": (math.ceil, 0.5),
    "floor": (math.floor, -0.5),
}


def threshold_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Tolerances of comparisons: a share of the spread, as elements near the threshold may change
    sides, and less than 1/2 for integers. If no element is near a constant threshold, the distance
    to it.
    """
    spread = max((x.std for x in xs), default=0.0)
    demands = []
    for operand, x in enumerate(xs):
        error = 0.25 if x.flags & INTEGER else site.tolerance * spread
        if len(xs) == 2:
            error = max(error, _gap(site, x, node.inputs[1 - operand]))
        demands.append(tolerated(x, error))
    return demands


def _gap(site: EstimatedGraph, x: Moments, threshold: int | None) -> float:
    """Distance between the range of x and a constant."""
    facts = site.constant(threshold)
    if facts is not None and facts.elements == 1 and facts.has_infinity:
        return math.inf
    number = site.number(threshold)
    return 0.0 if number is None else max(number - x.high, x.low - number, 0.0)


def _step_demands(
    site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand
) -> Demands:
    """Tolerance of rounding: an error e moves a share e of elements by 1, rms error sqrt(e)."""
    (threshold_demand,) = threshold_demands(site, node, xs, y, demand)
    if threshold_demand is None or xs[0].flags & INTEGER or demand.absolute >= 1.0:
        return (threshold_demand,)
    return (tolerated(xs[0], min(threshold_demand.absolute, demand.absolute**2)),)


_COMPARISON = Law(always(TRUTH), threshold_demands)

LAWS: Laws = {
    Transfer.SIGN: Law(of_one(sign), threshold_demands),
    Transfer.STEP: Law(step, _step_demands),
    Transfer.ABOVE: _COMPARISON,
    Transfer.BELOW: _COMPARISON,
    Transfer.TRUTH: _COMPARISON,
    # Rounding creates no infinity or NaN, and overflow is a separate finding.
    Transfer.FINITE: Law(always(TRUTH), nothing),
}
