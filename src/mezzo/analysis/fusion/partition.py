"""Partition of a graph into fused units: patterns in order, seeds in file-independent order, each
node in one unit.

From each seed a selector grows a unit; nodes that would form a cycle are removed, the selector
filters, and nodes no longer connected to the seed are left for later seeds. Time is linear in the
graph.
"""

from collections import deque
from collections.abc import Sequence

from mezzo.analysis.fusion.order import Circles, rank_nodes
from mezzo.analysis.fusion.selector import Selector
from mezzo.analysis.fusion.unit import FusedKernel, Partition, Unit
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.fusions import Fusion


def partition(view: FusionView, kernels: Sequence[FusedKernel], target: str) -> Partition:
    """Partition a graph with the kernels of a target, in their order."""
    work = _Work(view)
    for kernel in kernels:
        seeds = reversed(work.seeds) if kernel.starts_at_end else work.seeds
        for seed in seeds:
            if work.is_free(seed.id):
                work.grow(seed, kernel)
    return work.result(target)


class _Work:
    """The state of a partition in progress."""

    def __init__(self, view: FusionView) -> None:
        graph = view.graph
        self._view = view
        self._ranks = rank_nodes(graph)
        self._circles = Circles(graph)
        operators = [node for node in graph.nodes if node.kind in (Kind.OP, Kind.CAST)]
        self._folded = [node.id for node in operators if view.is_folded(node)]
        self._open = {node.id for node in operators} - set(self._folded)
        self._found: list[tuple[tuple[int, ...], Fusion]] = []
        self.seeds = sorted(
            (n for n in operators if n.id in self._open), key=lambda node: self._ranks[node.id]
        )

    def is_free(self, node: int) -> bool:
        return node in self._open

    def grow(self, seed: Node, kernel: FusedKernel) -> None:
        """Grow a unit from a seed, if the kernel's selector accepts it."""
        selector = kernel.make(self._view, self.is_free)
        if not selector.select(seed):
            return
        members = self._without_circles(seed, self._joined(seed, selector))
        nodes = [
            self._view.graph.nodes[member]
            for member in sorted(members, key=self._ranks.__getitem__)
        ]
        unit_nodes = {node.id for node in selector.filter(nodes)}
        if seed.id not in unit_nodes:
            return
        if unit_nodes != members:
            unit_nodes = self._without_circles(seed, self._connected(seed, unit_nodes))
        if len(unit_nodes) >= kernel.fusion.least:
            self._circles.add(unit_nodes)
            self._open -= unit_nodes
            self._found.append((tuple(sorted(unit_nodes)), kernel.fusion))

    def _joined(self, seed: Node, selector: Selector) -> set[int]:
        """All nodes that a selector accepts, from the seed outwards."""
        members = {seed.id}
        pending = deque([seed])
        while pending:
            node = pending.popleft()
            for neighbour, is_reader in self._neighbours(node):
                if (
                    neighbour.id in members
                    or neighbour.id not in self._open
                    or neighbour.scope != seed.scope
                ):
                    continue
                joins = selector.select_output if is_reader else selector.select_input
                if joins(node, neighbour):
                    members.add(neighbour.id)
                    pending.append(neighbour)
        return members

    def _neighbours(self, node: Node) -> list[tuple[Node, bool]]:
        """Producers of a node's operands, then readers of its outputs; operators only."""
        graph = self._view.graph
        makers = [
            graph.nodes[graph.values[value].producer] for value in node.inputs if value is not None
        ]
        readers = {
            use.node for value in node.outputs if value is not None for use in graph.uses[value]
        }
        in_order = [graph.nodes[reader] for reader in sorted(readers, key=self._ranks.__getitem__)]
        return [(maker, False) for maker in makers] + [(reader, True) for reader in in_order]

    def _without_circles(self, seed: Node, members: set[int]) -> set[int]:
        """Remove nodes that a path from the unit re-enters, and nodes then disconnected from the
        seed.
        """
        remaining = members
        while len(remaining) > 1:
            entered = self._circles.entered(remaining)
            if not entered:
                return remaining
            # The seed is never removed: if it is re-entered, all other nodes go.
            leaving = entered - {seed.id} or remaining - {seed.id}
            remaining = self._connected(seed, remaining - leaving)
        return remaining

    def _connected(self, seed: Node, nodes: set[int]) -> set[int]:
        """The nodes connected to the seed."""
        met = {seed.id}
        pending = [seed]
        while pending:
            for neighbour, _ in self._neighbours(pending.pop()):
                if neighbour.id in nodes and neighbour.id not in met:
                    met.add(neighbour.id)
                    pending.append(neighbour)
        return met

    def result(self, target: str) -> Partition:
        units = [
            self._unit(number, nodes, fusion)
            for number, (nodes, fusion) in enumerate(sorted(self._found, key=lambda row: row[0]), 1)
        ]
        return Partition(
            target=target,
            units=tuple(units),
            alone=tuple(sorted(self._open)),
            folded=tuple(self._folded),
        )

    def _unit(self, number: int, nodes: tuple[int, ...], fusion: Fusion) -> Unit:
        graph, inside = self._view.graph, set(nodes)
        inputs = {v for n in nodes for v in graph.nodes[n].inputs if v is not None}
        results = [v for n in nodes for v in graph.nodes[n].outputs if v is not None]
        return Unit(
            number=number,
            pattern=fusion.pattern,
            nodes=nodes,
            inputs=tuple(sorted(v for v in inputs - set(results) if not self._view.is_constant(v))),
            outputs=tuple(
                v for v in results if any(use.node not in inside for use in graph.uses[v])
            ),
            constraint=fusion.constraint,
            source=fusion.source,
            since=fusion.since,
        )
