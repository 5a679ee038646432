"""State that loops carry: how it grows over the trips, and how far its errors add up."""

import math
from dataclasses import dataclass, field

from mezzo.analysis.estimates.moments import BELIEVABLE, INTEGER, LOST, POSITIVE, SIGMA, UNKNOWN, Moments, moments
from mezzo.analysis.estimates.site import Axis, Site
from mezzo.formats.dtypes import FLOATING, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Transfer

# A trip count that is data.
OPEN_TRIPS = 10_000
# A constant past this stands for "until the condition fails".
_MOST_TRIPS = 1 << 40


@dataclass
class Loops:
    """The loop states of a graph, by tie. `history` are the estimates before the first trip, after it, and so on."""

    ties: dict[int, Node]
    history: dict[int, list[Moments]] = field(default_factory=dict)
    settled: dict[int, tuple[Moments, Moments]] = field(default_factory=dict)

    @property
    def sweeps(self) -> int:
        """How often the graph is walked again: once to see how state grows, once with what becomes of it."""
        return 2 if self.ties else 0

    def is_loop(self, node: Node) -> bool:
        return node.id in self.ties

    def state(self, node: Node) -> tuple[Moments, Moments] | None:
        """What a tie's state is taken to be in this sweep, inside and after the loop; None outside loops and in the
        first sweep.
        """
        return self.settled.get(node.id)

    def advance(self, site: Site) -> None:
        """Let every state go on by one trip, or by all that are left once its growth is known."""
        for number, node in self.ties.items():
            before, after = node.inputs[0], node.inputs[-1]
            seen = self.history.setdefault(number, [UNKNOWN if before is None else site.held[before]])
            seen.append(UNKNOWN if after is None else site.held[after])
            trips = self.trips(site, node)
            is_known = len(seen) > 2
            self.settled[number] = (
                (_after(seen, max(trips - 1, 0)), _after(seen, trips)) if is_known else (seen[-1], seen[-1])
            )

    def trips(self, site: Site, tie: Node) -> int:
        """How often the loop of a state runs."""
        owner = _owner(site.graph, tie)
        return OPEN_TRIPS if owner is None else site.trips.get(owner, OPEN_TRIPS)

    def counters(self, site: Site) -> dict[int, int]:
        """What the body of each Loop takes as the number of the trip: the first value that the Loop itself makes."""
        trips: dict[int, int] = {}
        if len(site.graph.scopes) > 1:
            for number, value in enumerate(site.graph.values):
                maker = site.graph.nodes[value.producer]
                if value.scope != maker.scope and maker.op == "Loop" and value.dtype is DType.INT64:
                    trips.setdefault(maker.id, number)
        return trips

    def counted(self, site: Site, loop: Node) -> Moments:
        """The number of the trip."""
        trips = site.trips.get(loop.id, OPEN_TRIPS)
        last = float(max((trips if trips < _MOST_TRIPS else OPEN_TRIPS) - 1, 0))
        return moments(last / 2, last / math.sqrt(12.0), 0.0, last, INTEGER | POSITIVE)


def note_trips(site: Site, node: Node) -> None:
    """Note how often a loop runs, where the node itself says so: by a Loop's trip count, by the axis that a tie of a
    Scan slices.
    """
    axis = site.scanned.get(node.id)
    if node.op == "Loop":
        count = site.operand(node, 0)
        numbers = site.integers(count)
        if numbers:
            _limit(site, node.id, min(max(numbers[0], 0), _MOST_TRIPS))
        elif count is not None:
            _limit(site, node.id, _trips_of_data(site, count))
    elif axis is not None:
        _limit(site, axis.loop, site.length(node.outputs[0] if axis.leaves else node.inputs[0], axis.place))


def _trips_of_data(site: Site, count: int) -> int | None:
    """How many trips a count that was worked out of floats plausibly is."""
    maker, x = site.producer(count), site.held[count]
    source = site.operand(maker, 0)
    if site.transfer(maker) is not Transfer.CAST or source is None or x.flags & LOST:
        return None
    is_of_floats = site.graph.values[source].dtype in FLOATING
    return math.ceil(max(min(x.mean + SIGMA * x.std, x.high), 0.0)) if is_of_floats else None


def _limit(site: Site, loop: int, trips: int | None) -> None:
    if trips is not None:
        site.trips[loop] = min(site.trips.get(loop, trips), trips)


def find_loops(site: Site) -> Loops:
    """Find the ties that carry state round a loop: they use a value that is made after them."""
    graph = site.graph
    ties: dict[int, Node] = {}
    places: dict[tuple[int, bool], int] = {}  # by loop: how many ties hand slices into its body, or out of it
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


def _note_axis(site: Site, tie: Node, value: int, places: dict[tuple[int, bool], int]) -> None:
    """Note along which axis a tie hands slices into a body, or puts together what leaves one: its length is the number
    of trips.
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
    has_batches = loop.op == "Scan" and bool(loop.inputs)  # Scan-8, which takes lengths first
    site.scanned[tie.id] = Axis(loop.id, axis + has_batches, leaves, has_batches)
    if leaves:
        note_trips(site, tie)


def _owner(graph: Graph, tie: Node) -> int | None:
    """The control node whose body a tie leads into."""
    inside = next((v for v in tie.outputs if v is not None and graph.values[v].scope != tie.scope), None)
    return None if inside is None else graph.scopes[graph.values[inside].scope].owner


def _after(seen: list[Moments], trips: int) -> Moments:
    """What becomes of a state after so many trips; `seen` are the estimates before the first, after it and so on."""
    if trips < len(seen):
        return seen[trips]
    first, second, third = seen[-3:]
    if (first.flags | second.flags | third.flags) & LOST:
        return UNKNOWN
    left = trips + 1 - len(seen)
    mean = third.mean + _series(second.mean - first.mean, third.mean - second.mean, left)
    variance = third.std**2 + _series(second.std**2 - first.std**2, third.std**2 - second.std**2, left)
    std = max(variance, 0.0) ** 0.5
    flags = third.flags & second.flags
    low = min(mean - SIGMA * std, third.low) if not flags & POSITIVE else min(third.low, mean)
    high = max(mean + SIGMA * std, third.high)
    if flags & INTEGER:  # a count may go on by its most each time
        high = max(high, third.high + max(third.high - second.high, 0.0) * left)
    return moments(mean, std, low, high, flags)


def _series(first: float, second: float, left: int) -> float:
    """What further steps add up to, if each is to the one before as the second is to the first.

    What would leave all belief behind does not in a model that works in FP32: it is taken to add up.
    """
    if not second or not left:
        return 0.0
    ratio = max(second / first if first else 1.0, 0.0)
    if abs(ratio - 1.0) < 1e-9 or (ratio > 1.0 and math.log(abs(second)) + left * math.log(ratio) > _BEYOND_BELIEF):
        return second * left
    return second * ratio * (1.0 - ratio**left) / (1.0 - ratio)


_BEYOND_BELIEF = 2.0 * math.log(BELIEVABLE)  # of a variance
