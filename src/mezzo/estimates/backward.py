"""The backward walk: what every value may be off by, and where storing it in the low format is off by more."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mezzo.dtypes import HIGH, Format
from mezzo.estimates.laws import FINEST, Demand, Law, absolute_of
from mezzo.estimates.loops import Loops
from mezzo.estimates.moments import INTEGER, LOST, MASKED, Moments, crosses_zero, largest, rms
from mezzo.estimates.picking import is_only_picked
from mezzo.estimates.site import Site
from mezzo.facts import Transfer
from mezzo.graph import Kind, Node, Role

# Rounding to nearest errs by a quarter of eps on the whole, relative to each number.
_ROUNDING = 0.25
# Numbers below the smallest normal one err by this share of the smallest subnormal one, root mean square.
_BELOW_NORMAL = 0.29
# Outputs of nets that fade away are worth at least this much.
_LEAST_WORTH = 1e-6


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


@dataclass
class Backward:
    """Demands by value id, infinite where nobody asks, and what was found too coarse.

    A state is asked for by whoever reads it after the loop, and at every trip by readers in the body: what a body
    stacks asks for the errors of all trips before.
    """

    site: Site
    laws: Mapping[Transfer, Law]
    low: Format
    loops: Loops
    absolute: list[float] = field(default_factory=list)
    relative: list[float] = field(default_factory=list)
    coarse: list[Coarse] = field(default_factory=list)
    endurance: dict[int, float] = field(default_factory=dict)  # by tie: over how many trips errors add up
    lengthened: dict[int, int] = field(default_factory=dict)  # by value that ends a trip: its tie
    wanted: dict[int, Demand] = field(default_factory=dict)  # by tie: what is asked of its state at the end of a trip
    ends: dict[int, Demand] = field(default_factory=dict)  # by tie: what this walk asked of it at the end of a trip
    strictness: float = 1.0  # by how much more than that is asked, so that the state's own way round is what counts

    def __post_init__(self) -> None:
        self._half_eps = self.low.eps / 2
        self._vanishing = _BELOW_NORMAL * self.low.smallest_subnormal
        # Constants of which a quarter of the numbers vanishes, whatever the largest are; moved and cast, too.
        graph = self.site.graph
        faint = {
            value
            for value, facts in (*graph.constants.items(), *graph.wide_constants.items())
            if facts.faint is not None and self._vanishing > self.site.tolerance * facts.faint
        }
        self._faint = frozenset(v for v, o in enumerate(self.site.origin) if o in faint) if faint else frozenset()

    def walk(self) -> None:
        """Ask from the outputs back; models with loops three times: to see who asks for the state, how an error of it
        grows in one trip, and what follows for all trips.
        """
        nodes = self.site.graph.nodes
        for tie in self.loops.ties.values():
            if tie.inputs[-1] is not None:
                self.lengthened[tie.inputs[-1]] = tie.id
        for sweep in range(_SWEEPS if self.loops.ties else 1):
            size = len(self.site.graph.values)
            self.absolute, self.relative = [math.inf] * size, [math.inf] * size
            self.coarse.clear()
            for node in reversed(nodes):
                self._visit(node)
            if sweep == 0:
                self.wanted = {number: self._wanted(tie) for number, tie in self.loops.ties.items()}
                self.strictness = _STRICTER
            elif sweep == 1:
                self.endurance = {number: self._trips_that_count(tie) for number, tie in self.loops.ties.items()}
                self.strictness = 1.0

    def _visit(self, node: Node) -> None:
        kind = node.kind
        if kind is Kind.OP:
            if node.outputs:
                self._operator(node)
        elif kind is Kind.OUTPUT:
            value = node.inputs[0]
            if value is not None:
                worth = max(rms(self.site.held[value]), _LEAST_WORTH)
                self._ask(value, node, 0, Demand(self.site.tolerance * worth, self.site.tolerance))
        elif kind is Kind.TIE:
            demand = self._demand_of(node)
            if demand is not None:
                for operand, value in enumerate(node.inputs):
                    if value is not None:
                        self._ask(value, node, operand, demand)
        elif kind in (Kind.CAST, Kind.SOURCE) and node.inputs:
            demand = self._demand_of(node)
            if demand is not None and node.inputs[0] is not None:
                self._ask(node.inputs[0], node, 0, demand)

    def _demand_of(self, node: Node) -> Demand | None:
        """The strictest of what is asked of a node's results."""
        outputs = node.outputs
        if len(outputs) == 1 and not self.lengthened and outputs[0] is not None:
            absolute = self.absolute[outputs[0]]
            return None if absolute == math.inf else Demand(absolute, self.relative[outputs[0]])
        absolute = relative = math.inf
        for value in outputs:
            if value is not None:
                absolute = min(absolute, self.absolute[value])
                relative = min(relative, self.relative[value])
                tie = self.lengthened.get(value)
                if tie is not None:
                    own = self._end_of_trip(tie)
                    absolute, relative = min(absolute, own.absolute), min(relative, own.relative)
        return None if absolute == math.inf else Demand(absolute, relative)

    def _end_of_trip(self, tie: int) -> Demand:
        """What is asked of a state at the end of a trip: errors of all trips that count add up in what is read."""
        absolute, relative = self._wanted(self.loops.ties[tie])  # so far those after the loop, which may be in another
        known = self.wanted.get(tie)
        if known is not None:
            absolute, relative = min(absolute, known.absolute), min(relative, known.relative)
        if absolute == math.inf:
            return Demand(math.inf, math.inf)
        trips = self.endurance.get(tie, 1.0) / self.strictness
        self.ends[tie] = Demand(absolute / trips, relative / trips)
        return self.ends[tie]

    def _wanted(self, tie: Node) -> Demand:
        """What is asked of a state by those who read it after the loop and, once that is known, in its body.

        A state that grows carries along the share that it is off by: what is asked of it while it is small is asked
        of no larger part of it later.
        """
        values = [v for v in tie.outputs if v is not None]
        held, last = self.site.held, tie.inputs[-1]
        size = 0.0 if last is None else rms(held[last])
        absolute = min(self.absolute[v] * max(size / (rms(held[v]) or size or 1.0), 1.0) for v in values)
        return Demand(absolute, min(self.relative[v] for v in values))

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
        asked = self.ends.get(tie.id)
        end = math.inf if asked is None else absolute_of(asked, self.site.held[last])
        begin = min(self.absolute[v] for v in inside)
        if end == math.inf or begin == math.inf or not begin:
            return 1.0 if begin == math.inf else trips
        gain = min(end / begin, 1.0)
        return trips if gain >= 1.0 else min(trips, 1.0 / (1.0 - gain))

    def _operator(self, node: Node) -> None:
        row = self.site.rows[node.id]
        transfer = None if row is None else row.transfer
        demand = self._demand_of(node)
        if transfer is None:
            return
        held = self.site.held
        if demand is None:
            if not self._decides(node):
                return
            demand = Demand(math.inf, math.inf)
        xs = [held[value] if value is not None else _ABSENT for value in node.inputs]
        y = held[node.outputs[0]] if node.outputs[0] is not None else _ABSENT
        if y.flags & LOST:
            return
        try:
            asked = self.laws[transfer].backward(self.site, node, xs, y, demand)
        except (OverflowError, ZeroDivisionError, ValueError, IndexError):
            return
        for operand, (value, wish) in enumerate(zip(node.inputs, asked, strict=False)):
            if value is not None and wish is not None:
                self._ask(value, node, operand, wish)

    def _decides(self, node: Node) -> bool:
        """Whether what a node makes of floats are no floats: thresholds and indices ask on their own account."""
        values = self.site.graph.values
        return any(v is not None and values[v].dtype is not HIGH for v in node.outputs)

    def _ask(self, value: int, node: Node, operand: int, wish: Demand) -> None:
        """Note what a reader asks of a value, and whether the low format gives it."""
        x = self.site.held[value]
        absolute, relative = wish
        if x.flags & LOST or absolute != absolute:
            return
        size = math.sqrt(x.mean * x.mean + x.std * x.std)
        if absolute < FINEST * size:
            absolute = FINEST * size
        if relative < FINEST:
            relative = FINEST
        if absolute < self.absolute[value]:
            self.absolute[value] = absolute
        if relative < self.relative[value]:
            self.relative[value] = relative
        most = x.high if x.high > -x.low else -x.low
        if self._half_eps * most + self._vanishing <= absolute and value not in self._faint:
            return  # whatever the value is: no number of it is off by more
        if self.site.graph.values[value].dtype is not HIGH or node.signature.inputs[operand] is Role.FIXED:
            return
        error = self._error(value, x, size, absolute, relative)
        if error is not None:
            self.coarse.append(Coarse(value, node.id, size, error, absolute))

    def _error(self, value: int, x: Moments, size: float, absolute: float, relative: float) -> float | None:
        """What rounding does to a value, if that is more than is tolerated."""
        low = self.low
        if value in self._faint:
            return self._vanishing
        facts = self.site.constant(value)
        if facts is not None and facts.values is not None:
            return _constant_error(facts.values, low, absolute, relative)
        if x.low == x.high and not x.flags & MASKED:
            return _constant_error((x.mean,), low, absolute, relative)
        if x.flags & INTEGER and largest(x) <= low.largest_exact_integer:
            return None
        rounding = _ROUNDING * low.eps * size
        vanishing = min(self._vanishing, size)
        if rounding + vanishing <= absolute:
            return None
        if _ROUNDING * low.eps <= relative:
            near = max(x.low, 0.0)
            if near >= low.smallest_normal or vanishing <= relative * near:
                return None
            if crosses_zero(x) and vanishing <= relative * size:
                return None
        return rounding + vanishing


_ABSENT = Moments(0.0, 0.0, 0.0, 0.0, LOST)


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
