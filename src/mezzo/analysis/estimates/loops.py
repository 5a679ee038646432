"""Estimates of loop-carried state: growth over the trips, and accumulation of errors."""

import math
from dataclasses import dataclass, field

from mezzo.analysis.estimates.moments import (
    BELIEVABLE,
    INTEGER,
    LOST,
    POSITIVE,
    SIGMA,
    UNKNOWN,
    Moments,
    moments,
    uniform,
)
from mezzo.analysis.estimates.site import EstimatedGraph, LoopAxis
from mezzo.formats.dtypes import FLOATING, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# Assumed trips of a loop whose trip count depends on data.
OPEN_TRIPS = 10_000
# A larger constant trip count means "until the condition fails".
_MOST_TRIPS = 1 << 40


@dataclass
class Loops:
    """The loop states of a graph, by tie. `history` has the estimates before the first trip, after
    it, and so on; `settled` those of the current sweep, inside and after the loop.
    """

    ties: dict[int, Node]
    history: dict[int, list[Moments]] = field(default_factory=dict)
    settled: dict[int, tuple[Moments, Moments]] = field(default_factory=dict)

    def advance(self, site: EstimatedGraph) -> None:
        """Advance every state by one trip, or by all remaining trips once its growth is known."""
        for number, node in self.ties.items():
            before, after = node.inputs[0], node.inputs[-1]
            states = self.history.setdefault(
                number, [UNKNOWN if before is None else site.estimates[before]]
            )
            states.append(UNKNOWN if after is None else site.estimates[after])
            trips = self.trips(site, node)
            self.settled[number] = states[-1], states[-1]
            if len(states) > 2:
                self.settled[number] = _after(states, max(trips - 1, 0)), _after(states, trips)

    def trips(self, site: EstimatedGraph, tie: Node) -> int:
        """Number of trips of a state's loop."""
        owner = _owner(site.graph, tie)
        return OPEN_TRIPS if owner is None else site.trips.get(owner, OPEN_TRIPS)

    def counters(self, site: EstimatedGraph) -> dict[int, int]:
        """The iteration number in the body of each Loop: the first INT64 value that the Loop itself
        produces.
        """
        trips: dict[int, int] = {}
        if len(site.graph.scopes) > 1:
            for number, value in enumerate(site.graph.values):
                maker = site.graph.nodes[value.producer]
                if value.scope != maker.scope and maker.op == "Loop" and value.dtype is DType.INT64:
                    trips.setdefault(maker.id, number)
        return trips

    def counted(self, site: EstimatedGraph, loop: Node) -> Moments:
        """The estimate of the iteration number."""
        trips = site.trips.get(loop.id, OPEN_TRIPS)
        last = float(max((trips if trips < _MOST_TRIPS else OPEN_TRIPS) - 1, 0))
        return uniform(0.0, last, INTEGER)


def note_trips(site: EstimatedGraph, node: Node) -> None:
    """Record a loop's number of trips, from a Loop's trip count or the axis that a tie of a Scan
    slices.
    """
    axis = site.scanned.get(node.id)
    if node.op == "Loop":
        count = node.operand(0)
        numbers = site.integers(count)
        if numbers:
            _limit(site, node.id, min(max(numbers[0], 0), _MOST_TRIPS))
        elif count is not None:
            _limit(site, node.id, _trips_of_data(site, count))
    elif axis is not None:
        stacked = node.outputs[0] if axis.leaves else node.inputs[0]
        _limit(site, axis.loop, site.length(stacked, axis.place))


def _trips_of_data(site: EstimatedGraph, count: int) -> int | None:
    """A plausible number of trips for a count that is cast from floats."""
    maker, x = site.producer(count), site.estimates[count]
    source = maker.operand(0)
    if site.transfer(maker) is not Transfer.CAST or source is None or x.flags & LOST:
        return None
    is_of_floats = site.graph.values[source].dtype in FLOATING
    return math.ceil(max(min(x.mean + SIGMA * x.std, x.high), 0.0)) if is_of_floats else None


def _limit(site: EstimatedGraph, loop: int, trips: int | None) -> None:
    if trips is not None:
        site.trips[loop] = min(site.trips.get(loop, trips), trips)


def find_loops(site: EstimatedGraph) -> Loops:
    """Find the ties with loop-carried state: their last operand is produced after them."""
    graph = site.graph
    ties: dict[int, Node] = {}
    # By loop: number of ties for slices into, or out of, its body.
    places: dict[tuple[int, bool], int] = {}
    if len(graph.scopes) == 1:
        return Loops(ties)
    for node in graph.nodes:
        if node.kind is not Kind.TIE or not node.inputs:
            continue
        last = node.inputs[-1]
        if len(node.inputs) > 1 and last is not None and graph.values[last].producer > node.id:
            ties[node.id] = node
        elif len(node.inputs) == 1 and last is not None:
            _note_axis(site, node, last, places)
    return Loops(ties)


def _note_axis(
    site: EstimatedGraph, tie: Node, value: int, places: dict[tuple[int, bool], int]
) -> None:
    """Record the axis along which a tie slices an input for a body or stacks its outputs; its
    length is the number of trips.
    """
    graph = site.graph
    leaves = graph.values[value].scope != tie.scope
    owner = graph.scopes[graph.values[value].scope].owner if leaves else _owner(graph, tie)
    loop = None if owner is None else graph.nodes[owner]
    if loop is None or not (loop.op == "Scan" or (loop.op == "Loop" and leaves)):
        return
    place = places[loop.id, leaves] = places.get((loop.id, leaves), -1) + 1
    axes = loop.attributes.get("scan_output_axes" if leaves else "scan_input_axes")
    axis = axes[place] if isinstance(axes, tuple) and place < len(axes) else 0
    # Scan-8 has sequence lengths as its first input.
    has_batches = loop.op == "Scan" and bool(loop.inputs)
    site.scanned[tie.id] = LoopAxis(loop.id, axis + has_batches, leaves, has_batches)
    if leaves:
        note_trips(site, tie)


def _owner(graph: Graph, tie: Node) -> int | None:
    """The control-flow node whose body a tie leads into."""
    inside = values_inside(graph, tie)
    return graph.scopes[graph.values[inside[0]].scope].owner if inside else None


def values_inside(graph: Graph, tie: Node) -> list[int]:
    """The values of a tie in the body that it leads into."""
    return [value for value in tie.present_outputs if graph.values[value].scope != tie.scope]


def _after(history: list[Moments], trips: int) -> Moments:
    """The extrapolated state after `trips` trips, from the estimates before the first trip, after
    it, and so on.
    """
    if trips < len(history):
        return history[trips]
    first, second, third = history[-3:]
    if (first.flags | second.flags | third.flags) & LOST:
        return UNKNOWN
    left = trips + 1 - len(history)
    mean = third.mean + _series(second.mean - first.mean, third.mean - second.mean, left)
    variance = third.std**2 + _series(
        second.std**2 - first.std**2, third.std**2 - second.std**2, left
    )
    std = max(variance, 0.0) ** 0.5
    flags = third.flags & second.flags
    low = min(mean - SIGMA * std, third.low) if not flags & POSITIVE else min(third.low, mean)
    high = max(mean + SIGMA * std, third.high)
    if flags & INTEGER:  # a count may grow by its largest step at every trip
        high = max(high, third.high + max(third.high - second.high, 0.0) * left)
    return moments(mean, std, low, high, flags)


def _series(first: float, second: float, left: int) -> float:
    """Sum of the further steps of a geometric series, given its last two steps.

    A series that would exceed `BELIEVABLE` is taken as arithmetic, since the model works in FP32.
    """
    if not second or not left:
        return 0.0
    ratio = max(second / first if first else 1.0, 0.0)
    if abs(ratio - 1.0) < 1e-9 or (
        ratio > 1.0 and math.log(abs(second)) + left * math.log(ratio) > _BEYOND_BELIEF
    ):
        return second * left
    return second * ratio * (1.0 - ratio**left) / (1.0 - ratio)


_BEYOND_BELIEF = 2.0 * math.log(BELIEVABLE)  # of a variance
