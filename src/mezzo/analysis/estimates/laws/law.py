"""Transfer laws: forward, an estimate of the result; backward, the tolerated errors of the
operands.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import Moments, rms, share_between
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# The smallest relative tolerance, about FP32's own rounding error.
FINEST = 3e-8


# Not frozen, as freezing triples its creation time, and nearly every operand has one.
@dataclass(slots=True)
class Demand:
    """Tolerance of a value: an absolute root mean square error, or a relative error of each
    element. Satisfying either is enough. Never mutated, as readers share it.
    """

    absolute: float
    relative: float


Operands = Sequence[Moments]
Demands = Sequence[Demand | None]
Forward = Callable[[EstimatedGraph, Node, Operands], Moments]
# Arguments: graph, node, estimates of operands and result, tolerance of the result.
Backward = Callable[[EstimatedGraph, Node, Operands, Moments, Demand], Demands]


@dataclass(frozen=True, slots=True)
class Law:
    """Forward propagation of moments and backward propagation of tolerances through an operator."""

    forward: Forward
    backward: Backward


Laws = Mapping[Transfer, Law]


def of_one(compute: Callable[[Moments], Moments]) -> Forward:
    """The estimate of a function of one operand."""
    return lambda site, node, xs: compute(xs[0])


def of_terms(compute: Callable[[Moments, float], Moments]) -> Forward:
    """The estimate of a reduction, from the operand and the number of its elements per result."""
    return lambda site, node, xs: compute(xs[0], site.terms(node))


def always(y: Moments) -> Forward:
    """The same estimate for all operands."""
    return lambda site, node, xs: y


def demand_of_one(ask: Callable[[Moments, Moments, Demand], Demand]) -> Backward:
    """The tolerance of one operand, from the estimates of it and of the result, and the tolerance
    of the result.
    """
    return lambda site, node, xs, y, demand: (ask(xs[0], y, demand),)


def demand_of_terms(ask: Callable[[Moments, Moments, Demand, float], Demand]) -> Backward:
    """The tolerance of a reduction's operand; the last argument is the number of its elements per
    result.
    """
    return lambda site, node, xs, y, demand: (ask(xs[0], y, demand, site.terms(node)),)


def tolerated(x: Moments, absolute: float) -> Demand:
    """An absolute tolerance, with the corresponding relative one."""
    mean, std = x.mean, x.std
    size = math.sqrt(mean * mean + std * std)
    return Demand(absolute, absolute / size if size else 0.0)


def share(x: Moments, part: float) -> Demand:
    """A relative tolerance, with the corresponding absolute one."""
    return Demand(part * rms(x), part)


def relative_of(demand: Demand, y: Moments) -> float:
    """The larger of a tolerance's relative error, and its absolute error by the size of y."""
    size = rms(y)
    return max(demand.relative, demand.absolute / size if size else 0.0)


def absolute_of(demand: Demand, y: Moments) -> float:
    """The larger of a tolerance's absolute error and its relative error at the smallest typical
    magnitude of y.
    """
    typical, low, high = abs(y.mean) - 4.0 * y.std, y.low, -y.high
    if low > typical:
        typical = low
    if high > typical:
        typical = high
    if not typical > 0.0:
        return demand.absolute
    return max(demand.absolute, demand.relative * typical)


def passed(site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand) -> Demands:
    """Every operand has the tolerance of the result."""
    return (demand,) * len(xs)


def eased(demand: Demand, x: Moments, low: float, high: float) -> Demand:
    """The tolerance of a value of which only elements between two ends pass: the mean square error
    scales with their share. x has a positive standard deviation.
    """
    passing = max(share_between(x, low, high), LEAST_SHARE)
    return Demand(demand.absolute / math.sqrt(passing), demand.relative)


# Lower bound on the passing share, which varies between inputs.
LEAST_SHARE = 0.25


def nothing(site: EstimatedGraph, node: Node, xs: Operands, y: Moments, demand: Demand) -> Demands:
    """No operand has a tolerance."""
    return ()
