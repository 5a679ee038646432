"""The backward walk: what every value may be off by, and where storing it in the low format is off by more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from mezzo.analysis.estimates.laws.law import FINEST, Demand, Law, absolute_of
from mezzo.analysis.estimates.loops import Loops
from mezzo.analysis.estimates.moments import INTEGER, LOST, MASKED, Moments, crosses_zero, largest
from mezzo.analysis.estimates.patterns.picking import is_only_picked
from mezzo.analysis.estimates.site import Site
from mezzo.analysis.estimates.sizes import Sizes
from mezzo.formats.dtypes import HIGH, Format
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Transfer

# Rounding to nearest errs by a quarter of eps on the whole, relative to each number.
_ROUNDING = 0.25
# Outputs of nets that fade away are worth at least this much.
_LEAST_WORTH = 1e-6
# What follows may make channels of small weights so many times as large: gains and norms by channel.
_LATER = 5e4
# What vanishes is no matter where so many times as much is tolerated, whatever share of each number is asked for.
_SURELY = 8.0


# So few trips are no reason to fear that steps are lost beside what they add up to.
_FEW = 16
_SWEEPS = 3
_STRICTER = 0.125


class Coarse(NamedTuple):
    """A value that its reader cannot take rounded: how large it is, what rounding does to it, what is tolerated."""

    value: int
    reader: int
    size: float
    error: float
    tolerated: float


@dataclass(kw_only=True)
class Backward:
    """What is asked of values, by value id, None where nobody asks, and what was found too coarse.

    A state is asked for by whoever reads it after the loop, and at every trip by readers in the body: what a body
    stacks asks for the errors of all trips before.
    """

    site: Site
    laws: Mapping[Transfer, Law]
    low: Format
    loops: Loops
    sizes: Sizes
    asked: list[Demand | None] = field(default_factory=list)
    coarse: list[Coarse] = field(default_factory=list)
    endurance: dict[int, float] = field(default_factory=dict)  # by tie: over how many trips errors add up
    lengthened: dict[int, int] = field(default_factory=dict)  # by value that ends a trip: its tie
    wanted: dict[int, Demand | None] = field(
        default_factory=dict
    )  # by tie: what is asked of its state at the end of a trip
    ends: dict[int, Demand] = field(default_factory=dict)  # by tie: what this walk asked of it at the end of a trip
    strictness: float = 1.0  # by how much more than that is asked, so that the state's own way round is what counts

    def walk(self) -> None:
        """Ask from the outputs back; models with loops three times: to see who asks for the state, how an error of it
        grows in one trip, and what follows for all trips.
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
                self.endurance = {number: self._trips_that_count(tie) for number, tie in self.loops.ties.items()}
                self.strictness = 1.0

    def _output(self, node: Node) -> None:
        value = node.inputs[0]
        if value is not None:
            worth = max(self.sizes.size[value], _LEAST_WORTH)
            self._ask(node, (Demand(self.site.tolerance * worth, self.site.tolerance),))

    def _hand_on(self, node: Node) -> None:
        """What is asked of the results is asked of every operand; of a Cast there is one."""
        demand = self._demand_of(node)
        if demand is not None:
            self._ask(node, (demand,) * (len(node.inputs) if node.kind is Kind.TIE else 1))

    def _demand_of(self, node: Node) -> Demand | None:
        """The strictest of what is asked of a node's results."""
        values = [value for value in node.outputs if value is not None]
        ending = [self.lengthened[value] for value in values if value in self.lengthened]
        return _strictest([*(self.asked[value] for value in values), *map(self._end_of_trip, ending)])

    def _end_of_trip(self, tie: int) -> Demand | None:
        """What is asked of a state at the end of a trip: errors of all trips that count add up in what is read."""
        so_far = self._wanted(self.loops.ties[tie])  # by those after the loop, which may be in another
        wanted = _strictest([so_far, self.wanted.get(tie)])
        if wanted is None:
            return None
        trips = self.endurance.get(tie, 1.0) / self.strictness
        self.ends[tie] = Demand(wanted.absolute / trips, wanted.relative / trips)
        return self.ends[tie]

    def _wanted(self, tie: Node) -> Demand | None:
        """What is asked of a state by those who read it after the loop and, once that is known, in its body.

        A state that grows carries along the share that it is off by: what is asked of it while it is small is asked
        of no larger part of it later.
        """
        size, last = self.sizes.size, tie.inputs[-1]
        grown = 0.0 if last is None else size[last]
        demands = []
        for value in tie.outputs:
            wish = None if value is None else self.asked[value]
            if value is not None and wish is not None:
                growth = max(grown / (size[value] or grown or 1.0), 1.0)
                demands.append(Demand(wish.absolute * growth, wish.relative))
        return _strictest(demands)

    def _trips_that_count(self, tie: Node) -> float:
        """How many errors add up in a state: one per trip, unless the body makes them smaller each time. Those of few
        trips are independent, those of many all err to the side that steps too small to be seen are lost on.
        """
        trips = float(max(self.loops.trips(self.site, tie), 1))
        if trips <= _FEW:
            trips = math.sqrt(trips)
        graph, last = self.site.graph, tie.inputs[-1]
        inside = [v for v in tie.outputs if v is not None and graph.values[v].scope != tie.scope]
        if last is None or not inside:
            return trips
        if self.site.origin[last] in inside or self.site.origin[last] == self.site.origin[inside[0]]:
            return 1.0  # the state goes round unchanged
        if is_only_picked(self.site, inside, last):
            return 1.0  # what was rounded once is not rounded again
        at_end = self.ends.get(tie.id)
        begin = min((wish.absolute for v in inside if (wish := self.asked[v]) is not None), default=math.inf)
        if begin == math.inf:
            return 1.0
        if at_end is None or not begin:
            return trips
        gain = min(absolute_of(at_end, self.site.held[last]) / begin, 1.0)
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
        held = self.site.held
        xs: list[Moments] = []
        for value in inputs:
            xs.append(_ABSENT if value is None else held[value])
        y = _ABSENT if result is None else held[result]
        if y.flags & LOST:
            return
        try:
            asked = self.laws[transfer].backward(self.site, node, xs, y, demand)
        except (OverflowError, ZeroDivisionError, ValueError, IndexError):
            return
        self._ask(node, asked)

    def _decides(self, node: Node) -> bool:
        """Whether what a node makes of floats are no floats: thresholds and indices ask on their own account."""
        values = self.site.graph.values
        return any(v is not None and values[v].dtype is not HIGH for v in node.outputs)

    def _ask(self, node: Node, planning: Sequence[Demand | None]) -> None:
        """Note what a reader asks of its operands, and whether the low format gives it."""
        asked, finest, worst = self.asked, self.sizes.finest, self.sizes.worst
        inputs = node.inputs
        for operand, wish in enumerate(planning):
            if wish is None:
                continue
            value = inputs[operand]
            if value is None:
                continue
            absolute, relative = wish.absolute, wish.relative
            if not (finest[value] <= absolute < _ANY and relative >= FINEST):
                bounded = self._bounded(value, absolute, relative)
                if bounded is None:
                    continue
                wish, absolute = bounded, bounded.absolute
            known = asked[value]
            asked[value] = wish if known is None else _stricter(known, wish)
            if worst[value] > absolute:
                self._judge(value, node, operand, wish)

    def _bounded(self, value: int, absolute: float, relative: float) -> Demand | None:
        """A demand for no more than FP32 keeps; None where nothing is asked, or nothing is known of the value."""
        finest = self.sizes.finest[value]
        if finest != finest or absolute != absolute:
            return None
        absolute = max(absolute, finest)
        return None if absolute == math.inf else Demand(absolute, max(FINEST, relative))

    def _judge(self, value: int, node: Node, operand: int, wish: Demand) -> None:
        """Note a value that rounding puts off by more than a reader tolerates."""
        if node.signature.inputs[operand] is Role.FIXED:
            return
        error = self._error(value, self.site.held[value], self.sizes.size[value], wish.absolute, wish.relative)
        if error is not None:
            self.coarse.append(Coarse(value, node.id, self.sizes.size[value], error, wish.absolute))

    def _error(self, value: int, x: Moments, size: float, absolute: float, relative: float) -> float | None:
        """What rounding does to a value, if that is more than is tolerated."""
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
            if _SURELY * vanishing <= absolute or (crosses_zero(x) and vanishing <= relative * size):
                return None
        return rounding + vanishing


_ABSENT = Moments(0.0, 0.0, 0.0, 0.0, LOST)
# Laws that ask of operands what is asked of the result, or nothing: where nothing is, they need not be put to work.
_PASSING = frozenset({Transfer.KEEP, Transfer.MOVE, Transfer.JOIN, Transfer.SHAPE})
_ANY = math.inf
_NOTHING = Demand(_ANY, _ANY)


def _stricter(one: Demand, other: Demand) -> Demand:
    """What satisfies both demands."""
    if one.absolute <= other.absolute and one.relative <= other.relative:
        return one
    return Demand(min(one.absolute, other.absolute), min(one.relative, other.relative))


def _strictest(demands: Sequence[Demand | None]) -> Demand | None:
    """What satisfies all demands; None where there is none."""
    present = [demand for demand in demands if demand is not None]
    return reduce(_stricter, present) if present else None


def _constant_error(values: Sequence[float], low: Format, absolute: float, relative: float) -> float | None:
    """The largest error that rounding makes in few known numbers, if that is more than is tolerated."""
    worst, limit = 0.0, low.overflow_from
    for number in values:
        if not abs(number) < limit:
            continue  # infinite on purpose, or a matter of range
        error = abs(rounded(number, low) - number)
        if error > absolute and error > relative * abs(number):
            worst = max(worst, error)
    return worst or None


def rounded(number: float, low: Format) -> float:
    """A number rounded to nearest even in a format, infinity past its range."""
    magnitude = abs(number)
    if not magnitude:
        return number
    if magnitude > low.max_finite:
        return math.copysign(math.inf if magnitude >= low.overflow_from else low.max_finite, number)
    step = max(2.0 ** (math.frexp(magnitude)[1] - 1) * low.eps, low.smallest_subnormal)
    return round(number / step) * step
