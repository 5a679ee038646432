"""State that loops carry: how it grows over the trips, and how far its errors add up."""

from dataclasses import dataclass, field

from mezzo.estimates.moments import INTEGER, LOST, POSITIVE, SIGMA, UNKNOWN, Moments, moments
from mezzo.estimates.site import Site
from mezzo.graph import Graph, Kind, Node

# A trip count that is data.
OPEN_TRIPS = 10_000


@dataclass
class Loops:
    """The loop states of a graph, by tie. `history` are the estimates before the first trip, after it, and so on."""

    ties: dict[int, Node]
    trips: dict[int, int]
    history: dict[int, list[Moments]] = field(default_factory=dict)
    settled: dict[int, Moments] = field(default_factory=dict)

    @property
    def sweeps(self) -> int:
        """How often the graph is walked again: once to see how state grows, once with what becomes of it."""
        return 2 if self.ties else 0

    def is_loop(self, node: Node) -> bool:
        return node.id in self.ties

    def state(self, node: Node) -> Moments | None:
        """What a tie's state is taken to be in this sweep; None outside loops and in the first sweep."""
        return self.settled.get(node.id)

    def advance(self, site: Site) -> None:
        """Let every state go on by one trip, or by all that are left once its growth is known."""
        for number, node in self.ties.items():
            before, after = node.inputs[0], node.inputs[-1]
            seen = self.history.setdefault(number, [UNKNOWN if before is None else site.held[before]])
            seen.append(UNKNOWN if after is None else site.held[after])
            self.settled[number] = seen[-1] if len(seen) < 3 else extrapolated(seen[-3:], self.trips[number])

    def counter(self, site: Site, node: Node, value: int) -> Moments:
        """What a control node makes itself: a Loop's iteration number, else nothing known."""
        is_first = (node.outputs and value == node.outputs[0]) or site.graph.values[value].scope != node.scope
        if node.op == "Loop" and is_first and str(site.graph.values[value].dtype) == "i64":
            trips = float(max(_trip_count(site, node), 1))
            return moments(trips / 2, trips / 3, 0.0, trips, INTEGER | POSITIVE)
        return UNKNOWN


def _trip_count(site: Site, node: Node) -> int:
    """How often a Loop runs: its trip count where that is a constant."""
    numbers = site.integers(node.inputs[0]) if node.inputs else None
    return min(max(numbers[0], 0), 1 << 40) if numbers else OPEN_TRIPS


def find_loops(site: Site) -> Loops:
    """Find the ties that carry state round a loop: they use a value that is made after them."""
    graph = site.graph
    ties: dict[int, Node] = {}
    lengths: dict[int, int] = {}  # by Scan: the length of the axis it slices
    sliced: dict[int, int] = {}  # by Scan: how many of its slices were seen
    if len(graph.scopes) == 1:
        return Loops(ties, {})
    for node in graph.nodes:
        if node.kind is not Kind.TIE or not node.inputs:
            continue
        last = node.inputs[-1]
        if len(node.inputs) > 1 and last is not None and graph.values[last].producer > node.id:
            ties[node.id] = node
            continue
        owner = _owner(graph, node)
        if owner is not None and graph.nodes[owner].op == "Scan":
            axes = graph.nodes[owner].attributes.get("scan_input_axes")
            place = sliced[owner] = sliced.get(owner, -1) + 1
            length = site.length(last, axes[place] if isinstance(axes, tuple) and place < len(axes) else 0)
            if length is not None:
                lengths.setdefault(owner, length)
    return Loops(ties, {number: _trips(site, node, lengths) for number, node in ties.items()})


def _owner(graph: Graph, tie: Node) -> int | None:
    """The control node whose body a tie leads into."""
    inside = next((v for v in tie.outputs if v is not None and graph.values[v].scope != tie.scope), None)
    return None if inside is None else graph.scopes[graph.values[inside].scope].owner


def _trips(site: Site, tie: Node, lengths: dict[int, int]) -> int:
    owner = _owner(site.graph, tie)
    if owner is None:
        return OPEN_TRIPS
    node = site.graph.nodes[owner]
    return _trip_count(site, node) if node.op == "Loop" else lengths.get(owner, OPEN_TRIPS)


def extrapolated(seen: list[Moments], trips: int) -> Moments:
    """What becomes of a state after all trips, from three estimates of it in a row."""
    first, second, third = seen
    if (first.flags | second.flags | third.flags) & LOST:
        return UNKNOWN
    left = max(trips - 2, 0)
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
    """What further steps add up to, if each is to the one before as the second is to the first."""
    if not second or not left:
        return 0.0
    ratio = min(max(second / first if first else 1.0, 0.0), 1.2)
    if abs(ratio - 1.0) < 1e-9:
        return second * left
    power = ratio ** min(left, 400)
    return second * ratio * (1.0 - power) / (1.0 - ratio)
