"""Backward error analysis: the tolerated error of every value, and the values whose rounding to the
low-precision format exceeds it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from mezzo.analysis.estimates.laws.law import FINEST, Demand, Law, absolute_of
from mezzo.analysis.estimates.loops import Loops, values_inside
from mezzo.analysis.estimates.moments import INTEGER, LOST, MASKED, Moments, crosses_zero, largest
from mezzo.analysis.estimates.patterns.picking import is_only_picked
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.analysis.estimates.sizes import SizeColumns
from mezzo.formats.dtypes import HIGH, Format
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Transfer

# Typical relative error of rounding to nearest, in eps.
_ROUNDING = 0.25
# Minimum scale of an output, for untrained models whose outputs nearly vanish.
_LEAST_WORTH = 1e-6
# Largest gain that later per-channel scales and norms may apply to channels of small weights.
_LATER = 5e4
# Underflow is ignored if the absolute tolerance is this many times as large.
_SURELY = 8.0


# Loops of at most this many trips have independent rounding errors; longer sums lose small steps.
_FEW = 16
_SWEEPS = 3
_STRICTER = 0.125


class Coarse(NamedTuple):
    """A value whose rounding error exceeds what a reader tolerates: size, error and tolerance."""

    value: int
    reader: int
    size: float
    error: float
    tolerated: float


@dataclass(kw_only=True)
class Backward:
    """Tolerances by value id, None for values without one, and the values found too coarse.

    A loop state has a tolerance from its readers after the loop, and one from readers in the body
    at every trip: outputs that the body stacks demand that the errors of all earlier trips are
    small.
    """

    site: EstimatedGraph
    laws: Mapping[Transfer, Law]
    low: Format
    loops: Loops
    sizes: SizeColumns
    asked: list[Demand | None] = field(default_factory=list)
    coarse: list[Coarse] = field(default_factory=list)
    # By tie: number of trips whose errors add up.
    endurance: dict[int, float] = field(default_factory=dict)
    # By a state's value at the end of a trip: its tie.
    lengthened: dict[int, int] = field(default_factory=dict)
    # By tie: tolerance of its state at the end of a trip.
    wanted: dict[int, Demand | None] = field(default_factory=dict)
    ends: dict[int, Demand] = field(default_factory=dict)  # by tie: the same, in the current sweep
    strictness: float = 1.0  # tightens state tolerances while the gain of one trip is measured

    def walk(self) -> None:
        """Propagate tolerances from the outputs backward. Models with loops are traversed three
        times: to find the readers of the state, to measure how one trip amplifies its error, and to
        apply that for all trips.
        """
        for tie in self.loops.ties.values():
            if tie.inputs[-1] is not None:
                self.lengthened[tie.inputs[-1]] = tie.id
        visits = {
            Kind.OP: self._operator,
            Kind.OUTPUT: self._output,
            Kind.TIE: self._hand_on,
            Kind.CAST: self._hand_on,
            Kind.SOURCE: self._hand_on,
        }
        for sweep in range(_SWEEPS if self.loops.ties else 1):
            self.asked = [None] * len(self.site.graph.values)
            self.coarse.clear()
            for node in reversed(self.site.graph.nodes):
                if node.inputs:
                    visits[node.kind](node)
            if sweep == 0:
                self.wanted = {number: self._wanted(tie) for number, tie in self.loops.ties.items()}
                self.strictness = _STRICTER
            elif sweep == 1:
                self.endurance = {
                    number: self._trips_that_count(tie) for number, tie in self.loops.ties.items()
                }
                self.strictness = 1.0

    def _output(self, node: Node) -> None:
        value = node.inputs[0]
        if value is not None:
            worth = max(self.sizes.size[value], _LEAST_WORTH)
            self._ask(node, (Demand(self.site.tolerance * worth, self.site.tolerance),))

    def _hand_on(self, node: Node) -> None:
        """Pass the tolerance of the outputs to every operand; a Cast has one."""
        demand = self._demand_of(node)
        if demand is not None:
            self._ask(node, (demand,) * (len(node.inputs) if node.kind is Kind.TIE else 1))

    def _demand_of(self, node: Node) -> Demand | None:
        """The strictest tolerance of a node's outputs."""
        values = node.present_outputs
        ending = [self.lengthened[value] for value in values if value in self.lengthened]
        return _strictest(
            [*(self.asked[value] for value in values), *map(self._end_of_trip, ending)]
        )

    def _end_of_trip(self, tie: int) -> Demand | None:
        """The tolerance of a state at the end of a trip, divided by the number of trips whose
        errors add up.
        """
        so_far = self._wanted(self.loops.ties[tie])  # of readers after the loop
        strictest = _strictest([so_far, self.wanted.get(tie)])
        if strictest is None:
            return None
        trips = self.endurance.get(tie, 1.0) / self.strictness
        self.ends[tie] = Demand(strictest.absolute / trips, strictest.relative / trips)
        return self.ends[tie]

    def _wanted(self, tie: Node) -> Demand | None:
        """The tolerance of a state, from its readers after the loop and, in later sweeps, in the
        body.

        The absolute tolerance of a growing state scales with it, as its relative error is
        preserved.
        """
        size, last = self.sizes.size, tie.inputs[-1]
        grown = 0.0 if last is None else size[last]
        demands = []
        for value in tie.present_outputs:
            demand = self.asked[value]
            if demand is not None:
                growth = max(grown / (size[value] or grown or 1.0), 1.0)
                demands.append(Demand(demand.absolute * growth, demand.relative))
        return _strictest(demands)

    def _trips_that_count(self, tie: Node) -> float:
        """Number of trips whose errors add up in a state: all, unless the body damps errors. Errors
        of few trips are independent; those of many trips share a sign, because steps below the
        rounding unit are lost.
        """
        trips = float(max(self.loops.trips(self.site, tie), 1))
        if trips <= _FEW:
            trips = math.sqrt(trips)
        graph, last = self.site.graph, tie.inputs[-1]
        inside = values_inside(graph, tie)
        if last is None or not inside:
            return trips
        origin = self.site.origin
        if origin[last] in inside or origin[last] == origin[inside[0]]:
            return 1.0  # the state is loop-invariant
        if is_only_picked(self.site, inside, last):
            return 1.0  # values are rounded only once
        at_end = self.ends.get(tie.id)
        at_begin = _strictest([self.asked[value] for value in inside])
        if at_begin is None or at_begin.absolute == math.inf:
            return 1.0
        if at_end is None or not at_begin.absolute:
            return trips
        gain = min(absolute_of(at_end, self.site.estimates[last]) / at_begin.absolute, 1.0)
        return trips if gain >= 1.0 else min(trips, 1.0 / (1.0 - gain))

    def _operator(self, node: Node) -> None:
        transfer = self.site.transfers[node.id]
        _, _, _, _, _, inputs, outputs, _ = node
        if transfer is None or not outputs:
            return
        result = outputs[0]
        if len(outputs) > 1 or self.lengthened:
            demand = self._demand_of(node)
        else:
            demand = None if result is None else self.asked[result]
        if demand is None:
            if transfer in _PASSING or not self._decides(node):
                return
            demand = _NOTHING
        estimates = self.site.estimates
        xs: list[Moments] = []
        for value in inputs:
            xs.append(_ABSENT if value is None else estimates[value])
        y = _ABSENT if result is None else estimates[result]
        if y.flags & LOST:
            return
        try:
            operand_demands = self.laws[transfer].backward(self.site, node, xs, y, demand)
        except (OverflowError, ZeroDivisionError, ValueError, IndexError):
            return
        self._ask(node, operand_demands)

    def _decides(self, node: Node) -> bool:
        """Whether a node computes non-floats from floats, such as comparisons and indices, which
        have tolerances of their own.
        """
        values = self.site.graph.values
        return any(v is not None and values[v].dtype is not HIGH for v in node.outputs)

    def _ask(self, node: Node, demands: Sequence[Demand | None]) -> None:
        """Record a reader's tolerances of its operands, and check the low-precision format against
        them.
        """
        asked, finest, worst = self.asked, self.sizes.finest, self.sizes.worst
        inputs = node.inputs
        for operand, demand in enumerate(demands):
            if demand is None:
                continue
            value = inputs[operand]
            if value is None:
                continue
            absolute, relative = demand.absolute, demand.relative
            if not (finest[value] <= absolute < _ANY and relative >= FINEST):
                bounded = self._bounded(value, absolute, relative)
                if bounded is None:
                    continue
                demand, absolute = bounded, bounded.absolute
            current = asked[value]
            asked[value] = demand if current is None else _stricter(current, demand)
            if worst[value] > absolute:
                self._judge(value, node, operand, demand)

    def _bounded(self, value: int, absolute: float, relative: float) -> Demand | None:
        """The tolerance limited to FP32's precision; None without a tolerance or an estimate."""
        finest = self.sizes.finest[value]
        if finest != finest or absolute != absolute:
            return None
        absolute = max(absolute, finest)
        return None if absolute == math.inf else Demand(absolute, max(FINEST, relative))

    def _judge(self, value: int, node: Node, operand: int, demand: Demand) -> None:
        """Record a value whose rounding error exceeds a reader's tolerance."""
        if node.signature.inputs[operand] is Role.FIXED:
            return
        size, error = self.sizes.size[value], self._error(value, demand)
        if error is not None:
            self.coarse.append(Coarse(value, node.id, size, error, demand.absolute))

    def _error(self, value: int, demand: Demand) -> float | None:
        """The rounding error of a value, if it exceeds the tolerance; else None."""
        x, size = self.site.estimates[value], self.sizes.size[value]
        absolute, relative = demand.absolute, demand.relative
        low = self.low
        if value in self.sizes.faint and _LATER * self.sizes.vanishing > absolute:
            return self.sizes.vanishing
        if self.site.origin[value] in self.site.masks:
            return None
        facts = self.site.constant(value)
        if facts is not None and facts.values is not None:
            return _constant_error(facts.values, low, absolute, relative)
        if x.low == x.high and not x.flags & MASKED:
            return _constant_error((x.mean,), low, absolute, relative)
        if x.flags & INTEGER and largest(x) <= low.largest_exact_integer:
            return None
        rounding = _ROUNDING * low.eps * size
        vanishing = min(self.sizes.vanishing, size)
        if rounding + vanishing <= absolute:
            return None
        if _ROUNDING * low.eps <= relative:
            near = max(x.low, 0.0)
            if near >= low.smallest_normal or vanishing <= relative * near:
                return None
            if _SURELY * vanishing <= absolute or (
                crosses_zero(x) and vanishing <= relative * size
            ):
                return None
        return rounding + vanishing


_ABSENT = Moments(0.0, 0.0, 0.0, 0.0, LOST)
# Laws that pass the result's tolerance to operands: without one there is nothing to compute.
_PASSING = frozenset({Transfer.KEEP, Transfer.MOVE, Transfer.JOIN, Transfer.SHAPE})
_ANY = math.inf
_NOTHING = Demand(_ANY, _ANY)


def _stricter(left: Demand, right: Demand) -> Demand:
    """The elementwise minimum of two tolerances."""
    if left.absolute <= right.absolute and left.relative <= right.relative:
        return left
    return Demand(min(left.absolute, right.absolute), min(left.relative, right.relative))


def _strictest(demands: Sequence[Demand | None]) -> Demand | None:
    """The elementwise minimum of all tolerances; None if there is none."""
    present = [demand for demand in demands if demand is not None]
    return reduce(_stricter, present) if present else None


def _constant_error(
    values: Sequence[float], low: Format, absolute: float, relative: float
) -> float | None:
    """The largest rounding error of a few known numbers, if it exceeds the tolerance; else None."""
    worst, limit = 0.0, low.overflow_from
    for number in values:
        if not abs(number) < limit:
            continue  # an intended infinity, or covered by the overflow check
        error = abs(rounded(number, low) - number)
        if error > absolute and error > relative * abs(number):
            worst = max(worst, error)
    return worst or None


def rounded(number: float, low: Format) -> float:
    """A number rounded to nearest even in a format; infinity beyond its range."""
    magnitude = abs(number)
    if not magnitude:
        return number
    if magnitude > low.max_finite:
        return math.copysign(math.inf if magnitude >= low.overflow_from else low.max_finite, number)
    step = max(2.0 ** (math.frexp(magnitude)[1] - 1) * low.eps, low.smallest_subnormal)
    return round(number / step) * step
