"""What a law is: forward, an estimate of the result; backward, what the operands may be off by."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mezzo.analysis.estimates.moments import Moments, rms, share_between
from mezzo.analysis.estimates.site import Site
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Transfer

# What FP32 itself does not keep is never asked for.
FINEST = 3e-8


# Not frozen, which the style asks for: one is made for nearly every operand, and freezing takes three times as long.
@dataclass(slots=True)
class Demand:
    """What readers of a value tolerate: a root mean square error, the same for all its numbers, or else a share of
    each number. Either is enough. Never changed: readers share it.
    """

    absolute: float
    relative: float


Forward = Callable[[Site, Node, Sequence[Moments]], Moments]
# Node, estimates of operands and of the result, and what is asked of the result.
Backward = Callable[[Site, Node, Sequence[Moments], Moments, Demand], Sequence[Demand | None]]


@dataclass(frozen=True, slots=True)
class Law:
    """How size goes forward through an operator, and tolerance backward."""

    forward: Forward
    backward: Backward


Laws = Mapping[Transfer, Law]


def tolerated(x: Moments, absolute: float) -> Demand:
    """A demand that says nothing of each number's own size."""
    mean, std = x.mean, x.std
    size = math.sqrt(mean * mean + std * std)
    return Demand(absolute, absolute / size if size else 0.0)


def share(x: Moments, part: float) -> Demand:
    """A demand for a share of what a value is worth on the whole."""
    return Demand(part * rms(x), part)


def absolute_of(demand: Demand, y: Moments) -> float:
    """The error, the same everywhere, that a demand allows: a share of each number allows that of the small ones."""
    typical, low, high = abs(y.mean) - 4.0 * y.std, y.low, -y.high
    if low > typical:
        typical = low
    if high > typical:
        typical = high
    if not typical > 0.0:
        return demand.absolute
    return max(demand.absolute, demand.relative * typical)


def passed(site: Site, node: Node, xs: Sequence[Moments], y: Moments, demand: Demand) -> Sequence[Demand | None]:
    """Every operand may be off as the result may."""
    return (demand,) * len(xs)


def eased(demand: Demand, x: Moments, low: float, high: float) -> Demand:
    """What is asked of a value of which only what lies between two ends is handed on: of the mean square of its error
    that share counts. It has a spread.
    """
    passing = max(share_between(x, low, high), LEAST_SHARE)
    return Demand(demand.absolute / math.sqrt(passing), demand.relative)


# What lies outside on the whole may lie between for some inputs.
LEAST_SHARE = 0.25


def nothing(site: Site, node: Node, xs: Sequence[Moments], y: Moments, demand: Demand) -> Sequence[Demand | None]:
    """Nothing is asked of the operands."""
    return ()
