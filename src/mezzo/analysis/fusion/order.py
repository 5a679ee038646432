"""Ranks of nodes that the order in a file does not change, and the walk that tells whether a unit would close a
circle.
"""

from collections.abc import Collection, Sequence

from mezzo.ir.graph import Graph


def rank_nodes(graph: Graph) -> list[int]:
    """A rank per node: makers before readers, and the same however the nodes are listed.

    Nodes are met from those that nothing reads, by name, operand by operand. A tie that carries loop state reads a
    value made later: the one exception.
    """
    sinks = [n for n in graph.nodes if not any(v is not None and graph.uses[v] for v in n.outputs)]
    ranks = [-1] * len(graph.nodes)
    met = [False] * len(graph.nodes)
    count = 0
    # Loop bodies without a sink of their own are reached from the tie that their state ends in.
    for root in [*sorted(sinks, key=lambda n: n.name), *sorted(graph.nodes, key=lambda n: n.name)]:
        pending = [(root.id, 0)]
        while pending:
            node, operand = pending.pop()
            if operand == 0:
                if met[node]:
                    continue
                met[node] = True
            inputs = graph.nodes[node].inputs
            if operand == len(inputs):
                ranks[node] = count
                count += 1
                continue
            pending.append((node, operand + 1))
            value = inputs[operand]
            if value is not None and not met[graph.values[value].producer]:
                pending.append((graph.values[value].producer, 0))
    return ranks


def level_nodes(graph: Graph) -> list[int]:
    """A level per node: one more than the highest of those that make its operands."""
    levels = [0] * len(graph.nodes)
    for node in graph.nodes:
        makers = (graph.values[value].producer for value in node.inputs if value is not None)
        levels[node.id] = 1 + max((levels[maker] for maker in makers if maker < node.id), default=0)
    return levels


class Circles:
    """Tells which nodes of a candidate a path that has left it comes back to, units that exist taken as one node.

    Units with one way out never close a circle among themselves: each path through them goes on along the graph. So a
    walk is needed only for units with several, and only as far as one of those can lead back.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._levels = level_nodes(graph)
        self._unit_of: dict[int, int] = {}
        self._members: list[tuple[int, ...]] = []
        self._spans: list[tuple[int, int]] = []  # lowest and highest level of units with several ways out, apart

    def add(self, nodes: Collection[int]) -> None:
        """Take nodes as one from now on."""
        members = tuple(nodes)
        self._unit_of.update(dict.fromkeys(members, len(self._members)))
        self._members.append(members)
        if self._exits(set(members)) > 1:
            self._spans.append(self._span(members))

    def entered(self, nodes: Collection[int]) -> set[int]:
        """Nodes of a candidate that a path from it leads back to, over nodes outside it."""
        inside = set(nodes)
        if self._exits(inside) <= 1 and not self._spans:
            return set()
        ceiling = self._ceiling(inside)
        entered_by: set[int] = set()
        met: set[int] = set()
        pending = [reader for node in inside for reader in self._readers(node) if reader not in inside]
        while pending:
            node = pending.pop()
            if node in met or self._levels[node] > ceiling:
                continue
            unit = self._unit_of.get(node)
            group = (node,) if unit is None else self._members[unit]
            met.update(group)
            for member in group:
                for reader in self._readers(member):
                    if reader in inside:
                        entered_by.add(reader)
                    elif reader not in met:
                        pending.append(reader)
        return entered_by

    def _ceiling(self, inside: set[int]) -> int:
        """The highest level from which a path can still lead back: a unit with several ways out leads down in its
        span.
        """
        highest = self._span(inside)[1]
        grows = True
        while grows:
            reach = max((high for low, high in self._spans if low <= highest), default=highest)
            grows, highest = reach > highest, max(reach, highest)
        return highest

    def _span(self, nodes: Collection[int]) -> tuple[int, int]:
        levels = [self._levels[node] for node in nodes]
        return min(levels), max(levels)

    def _exits(self, inside: set[int]) -> int:
        """How many nodes hand something out, or lead on to no other node of the unit: with one, all lead to it."""
        return sum(not readers or not inside.issuperset(readers) for readers in map(self._readers, inside))

    def _readers(self, node: int) -> Sequence[int]:
        """Nodes that read what a node makes, later ones: a tie that stands before its body ends a turn, no path."""
        graph = self._graph
        return [
            use.node
            for value in graph.nodes[node].outputs
            if value is not None
            for use in graph.uses[value]
            if use.node > node
        ]
