"""Node ranks independent of the file's order, and cycle detection for fused units."""

from collections.abc import Collection, Sequence

from mezzo.ir.graph import Graph


def rank_nodes(graph: Graph) -> list[int]:
    """A topological rank per node that does not depend on the order of nodes in the file.

    Depth-first from the nodes without readers, by name, operand by operand. The one exception to
    topological order: a tie of loop-carried state reads a value produced later.
    """
    sinks = [n for n in graph.nodes if not any(v is not None and graph.uses[v] for v in n.outputs)]
    ranks = [-1] * len(graph.nodes)
    met = [False] * len(graph.nodes)
    count = 0
    # The second list reaches loop bodies without sinks, through the tie of their state.
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
    """Depth of each node: one more than the largest depth of its operands' producers."""
    levels = [0] * len(graph.nodes)
    for node in graph.nodes:
        makers = (graph.values[value].producer for value in node.inputs if value is not None)
        levels[node.id] = 1 + max((levels[maker] for maker in makers if maker < node.id), default=0)
    return levels


class Circles:
    """Finds the nodes of a candidate unit that a path leaving it re-enters, with existing units
    contracted to one node.

    Units with a single exit cannot form a cycle among themselves, as every path through them also
    exists in the graph. A traversal is needed only with multi-exit units, and only up to the depth
    from which one can lead back.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._levels = level_nodes(graph)
        self._unit_of: dict[int, int] = {}
        self._members: list[tuple[int, ...]] = []
        self._spans: list[tuple[int, int]] = []  # lowest and highest depth of each multi-exit unit

    def add(self, nodes: Collection[int]) -> None:
        """Contract nodes to one unit."""
        members = tuple(nodes)
        self._unit_of.update(dict.fromkeys(members, len(self._members)))
        self._members.append(members)
        if self._exits(set(members)) > 1:
            self._spans.append(self._span(members))

    def entered(self, nodes: Collection[int]) -> set[int]:
        """Nodes of a candidate unit that a path from it re-enters."""
        inside = set(nodes)
        if self._exits(inside) <= 1 and not self._spans:
            return set()
        ceiling = self._ceiling(inside)
        entered_by: set[int] = set()
        met: set[int] = set()
        pending = [
            reader for node in inside for reader in self._readers(node) if reader not in inside
        ]
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
        """The largest depth from which a path can lead back; a multi-exit unit leads back within
        its span.
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
        """Number of nodes with an output that is read outside, or not at all."""
        return sum(
            not readers or not inside.issuperset(readers) for readers in map(self._readers, inside)
        )

    def _readers(self, node: int) -> Sequence[int]:
        """Later readers of a node's outputs: an edge back to a loop's tie is not part of a path."""
        graph = self._graph
        return [
            use.node
            for value in graph.nodes[node].outputs
            if value is not None
            for use in graph.uses[value]
            if use.node > node
        ]
