"""Forward propagation of estimates, in graph order."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mezzo.analysis.estimates.counts import COUNTING, note_entries, of_integers
from mezzo.analysis.estimates.evidence import correct
from mezzo.analysis.estimates.inputs import Assumption, assume
from mezzo.analysis.estimates.laws.law import Law
from mezzo.analysis.estimates.loops import Loops, note_trips
from mezzo.analysis.estimates.moments import (
    BELIEVABLE,
    HIDDEN,
    INTEGER,
    LOST,
    POSITIVE,
    UNKNOWN,
    Moments,
    flagged,
    hull,
    largest,
    moments,
)
from mezzo.analysis.estimates.shapes import derive_shape
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Laws without operands.
_FROM_NOTHING = frozenset({Transfer.FILL, Transfer.RANDOM, Transfer.RANGE})
# Reductions by which patterns such as softmax and variance are recognised.
_REMEMBERED = frozenset({Transfer.EXTREME, Transfer.MEAN, Transfer.SUM})
# Sizes below this fit in every format's range.
_PEAK = 1e4
_MOVING = frozenset({Transfer.MOVE, Transfer.KEEP})
_EVIDENT = frozenset({Transfer.GIVEN_STATISTICS, Transfer.CONTRACT, Transfer.ADD})
_TRACED = _REMEMBERED | _MOVING


@dataclass(kw_only=True)
class ForwardResult:
    """Results of the forward pass. `peaks`: large values in the first trips of loops. `blown`:
    values beyond `BELIEVABLE` although their operands are below it.
    """

    site: EstimatedGraph
    laws: Mapping[Transfer, Law]
    given: Mapping[str, tuple[float, float]]
    loops: Loops
    assumptions: dict[int, Assumption] = field(default_factory=dict)
    blown: dict[int, float] = field(default_factory=dict)
    peaks: dict[int, float] = field(default_factory=dict)
    # By call: formal inputs that are not carried by a tie.
    entering: dict[int, list[int]] = field(default_factory=dict)
    counting: dict[int, int] = field(default_factory=dict)  # by loop: the body's iteration number
    # Value numbering, by operator and operands.
    known: dict[tuple[object, ...], int] = field(default_factory=dict)
    # Operators without a law, with their counts.
    strangers: dict[str, int] = field(default_factory=dict)
    countable: set[int] = field(default_factory=set)  # values with a dtype of `COUNTING`

    def walk(self) -> None:
        """Estimate every value; models with loops are traversed again until their state is
        known.
        """
        graph = self.site.graph
        for value in graph.entered:
            self.entering.setdefault(graph.values[value].producer, []).append(value)
        self.counting = self.loops.counters(self.site)
        self.countable = set(graph.columns.holds(*COUNTING).nonzero()[0].tolist())
        self._visit(graph.nodes)
        repeated = [node for node in graph.nodes if _is_repeated(node)] if self.loops.ties else []
        # Once to measure the growth of loop states, and once with the result.
        for _ in range(2 if repeated else 0):
            self._note_peaks()
            self.loops.advance(self.site)
            self.blown.clear()
            self.known.clear()
            self.site.begin_sweep()
            self._visit(repeated)

    def _visit(self, nodes: Sequence[Node]) -> None:
        visits = {
            Kind.OP: self._operator,
            Kind.SOURCE: self._source,
            Kind.TIE: self._tie,
            Kind.INPUT: self._input,
            Kind.CAST: self._cast,
        }
        for node in nodes:
            visit = visits.get(node.kind)
            if visit is not None:
                visit(node)

    def _input(self, node: Node) -> None:
        value = node.outputs[0]
        if value is None:
            return
        graph = self.site.graph
        is_asked = graph.values[value].name in self.given
        default, numbers = graph.constants.get(value), graph.integers.get(value)
        if default is not None and not is_asked:  # an optional input with a default
            self.site.estimates[value] = of_constant(default)
        elif numbers and not is_asked:
            self.site.estimates[value] = of_integers(numbers)
        else:
            assumed = self.assumptions[value] = assume(self.site, node, self.given)
            self.site.estimates[value] = assumed.estimate

    def _cast(self, node: Node) -> None:
        source, result = node.inputs[0], node.outputs[0]
        assert source is not None and result is not None, "a Cast has both"
        self.site.note_copy(result, source)

    def _operator(self, node: Node) -> None:
        site = self.site
        transfer = site.transfers[node.id]
        if transfer is None:
            self._stranger(node)
            return
        _, _, _, signature, _, inputs, outputs, attributes = node
        estimates, canonical = site.estimates, site.kept
        xs: list[Moments] = []
        same: list[object] = [signature.op]  # key of value numbering
        for value in inputs:  # one loop: two comprehensions would take a quarter of the time
            xs.append(UNKNOWN if value is None else estimates[value])
            same.append(None if value is None else canonical[value])
        try:
            y = (
                self.laws[transfer].forward(site, node, xs)
                if xs or transfer in _FROM_NOTHING
                else UNKNOWN
            )
        except (OverflowError, ZeroDivisionError, ValueError, IndexError):
            y = UNKNOWN  # hostile numbers or shapes: the value is left unknown
        result = outputs[0] if outputs else None
        if result is None:
            return
        if not -BELIEVABLE < y.low <= y.high < BELIEVABLE:
            y = self._past_belief(result, xs, y)
        estimates[result] = y if result not in site.masks else HIDDEN
        if transfer in _EVIDENT:
            correct(site, node, xs)
        if len(outputs) > 1:
            # Parts of a Split are alike; statistics have no estimate.
            other = y if transfer in _MOVING else UNKNOWN
            for value in outputs[1:]:
                if value is not None:
                    estimates[value] = other
        if not attributes:  # value numbering: equal operators on equal operands
            canonical[result] = self.known.setdefault(tuple(same), result)
        if transfer in _TRACED and inputs and inputs[0] is not None:
            self._trace(transfer, inputs[0], result)
        if not inputs:
            return
        # The front end knows most shapes; derived ones help only if an operand has one.
        if result in site.shapeless or not site.worked_out.isdisjoint(inputs):
            derive_shape(site, node)
        if result in self.countable:
            note_entries(site, node)

    def _past_belief(self, result: int, xs: Sequence[Moments], y: Moments) -> Moments:
        """The estimate of a result beyond `BELIEVABLE`: clamped to that bound if all its numbers
        are large, such as the inverse of a tiny variance, so that its readers are still analysed;
        else unknown.
        """
        if any(x.flags & LOST for x in xs):
            return UNKNOWN
        self.blown[result] = largest(y)
        if not all(largest(x) < BELIEVABLE for x in xs) or (y.low < _PEAK and y.high > -_PEAK):
            return UNKNOWN
        low = max(min(y.low, 0.5 * BELIEVABLE), -BELIEVABLE)
        high = min(max(y.high, -0.5 * BELIEVABLE), BELIEVABLE)
        return moments(min(max(y.mean, low), high), y.std, low, high, y.flags)

    def _note_peaks(self) -> None:
        """Record large values while loop states are still near their initial values."""
        for number, x in enumerate(self.site.estimates):
            size = largest(x)
            if size > _PEAK and not x.flags & LOST and number not in self.site.graph.constants:
                self.peaks[number] = max(size, self.peaks.get(number, 0.0))

    def _trace(self, transfer: Transfer, source: int, result: int) -> None:
        """Record the value that a result is a part, a copy or a reduction of."""
        site = self.site
        if transfer in _REMEMBERED:
            site.reduced[result] = (transfer, site.origin[source])
            return
        site.origin[result] = site.origin[source]
        if transfer is Transfer.KEEP:
            site.kept[result] = site.kept[source]
        by = site.reduced.get(source)
        if by is not None:
            site.reduced[result] = by

    def _stranger(self, node: Node) -> None:
        if node.signature.dtype is not None:
            self.strangers[node.op] = self.strangers.get(node.op, 0) + 1
        if node.op == "Loop":
            note_trips(self.site, node)
        for value in node.present_outputs:
            self.site.estimates[value] = UNKNOWN
        if node.id in self.counting:
            self.site.estimates[self.counting[node.id]] = self.loops.counted(self.site, node)
        for value in self.entering.get(node.id, ()):
            self._enter(value)

    def _enter(self, value: int) -> None:
        """Estimate a function's formal input that no tie carries, an integer: as its operand."""
        site, outer = self.site, self.site.graph.entered[value]
        site.note_copy(value, outer)
        shape, entries = site.shape(outer), site.entries(outer)
        if shape is not None:
            site.note_shape(value, shape)
        if entries is not None:
            site.note_entries(value, entries)

    def _tie(self, node: Node) -> None:
        site = self.site
        state = self.loops.settled.get(node.id)
        if state is None:
            operands = node.inputs[:1] if node.id in self.loops.ties else node.inputs
            parts = [site.estimates[value] for value in operands if value is not None]
            state = (hull(parts) if parts else UNKNOWN,) * 2
        for value in node.present_outputs:
            site.estimates[value] = state[site.graph.values[value].scope == node.scope]
        source = node.inputs[0] if len(node.inputs) == 1 else None
        if source is not None:
            for value in node.present_outputs:
                self._continue(value, source)
        if node.outputs and node.inputs:
            note_trips(site, node)
            derive_shape(site, node)

    def _continue(self, value: int, source: int) -> None:
        """Record that a value of a tie continues the tie's only operand."""
        site = self.site
        site.origin[value] = site.origin[source]
        # A Scan's slices are parts.
        if site.graph.scopes[site.graph.values[value].scope].repeats == 1:
            site.kept[value] = site.kept[source]
        if source in site.reduced:
            site.reduced[value] = site.reduced[source]

    def _source(self, node: Node) -> None:
        value = node.outputs[0]
        if value is not None:
            self.site.estimates[value] = x = self._stored(node, value)
            if x.low == x.high and not x.flags & LOST:  # equal scalars are one value
                self.site.kept[value] = self.known.setdefault((x.low,), value)

    def _stored(self, node: Node, value: int) -> Moments:
        site = self.site
        if node.inputs and node.inputs[0] is not None:  # a Cast from an integer or another float
            site.note_copy(value, node.inputs[0])
            x = site.estimates[value]
            is_integer = site.integer_span(node.inputs[0]) is not None and not x.flags & LOST
            return flagged(x, x.flags | INTEGER) if is_integer else x
        facts = site.constant(value)
        if facts is not None:
            if value in site.masks:
                return HIDDEN
            return UNKNOWN if value in site.clamped else of_constant(facts)
        numbers = site.graph.integers.get(value)
        return of_integers(numbers) if numbers else UNKNOWN


def _is_repeated(node: Node) -> bool:
    """Whether a node's estimates may change between sweeps over loops; a source with an input is a
    cast of integers.
    """
    is_computed = node.kind in (Kind.TIE, Kind.CAST, Kind.SOURCE) and bool(node.inputs)
    return is_computed or node.kind is Kind.OP


def of_constant(facts: ConstantFacts) -> Moments:
    """The estimate of a constant: exact, without the large negative numbers of masks."""
    if facts.rms is None:  # not measured: assume half the largest magnitude
        low, flags = (-facts.largest, 0) if facts.has_negative else (0.0, POSITIVE)
        return moments(0.0, facts.largest / 2, low, facts.largest, flags)
    is_mask = facts.has_infinity or facts.minimum <= -1e3
    if facts.elements > 1 and is_mask and facts.maximum <= 1.0:
        return HIDDEN
    flags = 0
    if facts.minimum >= 0.0 and not facts.has_infinity:
        flags |= POSITIVE
    if facts.is_whole and facts.largest < 1e15:
        flags |= INTEGER
    std = math.sqrt(max(facts.rms**2 - facts.mean**2, 0.0))
    if facts.minimum == facts.maximum:
        std = 0.0
        if abs(facts.minimum) < 1e15 and facts.minimum.is_integer():
            flags |= INTEGER
    return Moments(facts.mean, std, facts.minimum, facts.maximum, flags)
