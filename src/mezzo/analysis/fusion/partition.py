"""Splits a graph into units: patterns in order, seeds in an order that the file does not change, each node once.

For each seed a selector grows a unit, nodes that would close a circle go, the selector filters, and what is no longer
connected to the seed is left for later seeds. Time grows linearly with the graph.
"""

from collections import deque
from collections.abc import Sequence

from mezzo.analysis.fusion.order import Circles, rank_nodes
from mezzo.analysis.fusion.selector import Selector
from mezzo.analysis.fusion.unit import Kernel, Partition, Unit
from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Kind, Node


def partition(view: View, kernels: Sequence[tuple[str, Kernel]], target: str) -> Partition:
    """Split a graph by the kernels of a target, each with the name of its pattern, tried in their order."""
    work = _Work(view)
    for name, kernel in sorted(kernels, key=lambda row: (row[1].order, row[0])):
        seeds = reversed(work.seeds) if kernel.starts_at_end else work.seeds
        for seed in seeds:
            if work.is_free(seed.id):
                work.grow(seed, name, kernel)
    return work.result(target)


class _Work:
    """A partition being made."""

    def __init__(self, view: View) -> None:
        graph = view.graph
        self._view = view
        self._ranks = rank_nodes(graph)
        self._circles = Circles(graph)
        operators = [node for node in graph.nodes if node.kind in (Kind.OP, Kind.CAST)]
        self._folded = [node.id for node in operators if view.is_folded(node)]
        self._open = {node.id for node in operators} - set(self._folded)
        self._found: list[tuple[tuple[int, ...], str, Kernel]] = []
        self.seeds = sorted((n for n in operators if n.id in self._open), key=lambda node: self._ranks[node.id])

    def is_free(self, node: int) -> bool:
        return node in self._open

    def grow(self, seed: Node, name: str, kernel: Kernel) -> None:
        """Grow a unit from a seed, if a kernel's selector takes it."""
        selector = kernel.make(self._view, self.is_free)
        if not selector.select(seed):
            return
        members = self._without_circles(seed, self._joined(seed, selector))
        nodes = [self._view.graph.nodes[member] for member in sorted(members, key=self._ranks.__getitem__)]
        kept = {node.id for node in selector.filter(nodes)}
        if seed.id not in kept:
            return
        if kept != members:
            kept = self._without_circles(seed, self._connected(seed, kept))
        if len(kept) >= kernel.least:
            self._circles.add(kept)
            self._open -= kept
            self._found.append((tuple(sorted(kept)), name, kernel))

    def _joined(self, seed: Node, selector: Selector) -> set[int]:
        """All that a selector lets join, from the seed outwards."""
        members = {seed.id}
        pending = deque([seed])
        while pending:
            node = pending.popleft()
            for neighbour, is_reader in self._neighbours(node):
                if neighbour.id in members or neighbour.id not in self._open or neighbour.scope != seed.scope:
                    continue
                joins = selector.select_output if is_reader else selector.select_input
                if joins(node, neighbour):
                    members.add(neighbour.id)
                    pending.append(neighbour)
        return members

    def _neighbours(self, node: Node) -> list[tuple[Node, bool]]:
        """Who makes a node's operands, then who reads what it makes, operators alone."""
        graph = self._view.graph
        makers = [graph.nodes[graph.values[value].producer] for value in node.inputs if value is not None]
        readers = {use.node for value in node.outputs if value is not None for use in graph.uses[value]}
        in_order = [graph.nodes[reader] for reader in sorted(readers, key=self._ranks.__getitem__)]
        return [(maker, False) for maker in makers] + [(reader, True) for reader in in_order]

    def _without_circles(self, seed: Node, members: set[int]) -> set[int]:
        """Leave out nodes that a path from the unit leads back to, and what is then apart from the seed."""
        kept = members
        while len(kept) > 1:
            entered = self._circles.entered(kept)
            if not entered:
                return kept
            # A seed stays: then those it reads from inside go, and with them the path that leaves the unit.
            leaving = entered - {seed.id} or kept - {seed.id}
            kept = self._connected(seed, kept - leaving)
        return kept

    def _connected(self, seed: Node, nodes: set[int]) -> set[int]:
        """Those of the nodes that are connected to the seed."""
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
            self._unit(number, nodes, name, kernel)
            for number, (nodes, name, kernel) in enumerate(sorted(self._found, key=lambda row: row[0]), 1)
        ]
        return Partition(target=target, units=tuple(units), alone=tuple(sorted(self._open)), folded=tuple(self._folded))

    def _unit(self, number: int, nodes: tuple[int, ...], name: str, kernel: Kernel) -> Unit:
        graph, inside = self._view.graph, set(nodes)
        read = {v for n in nodes for v in graph.nodes[n].inputs if v is not None}
        results = [v for n in nodes for v in graph.nodes[n].outputs if v is not None]
        return Unit(
            number=number, pattern=name, nodes=nodes,
            inputs=tuple(sorted(v for v in read - set(results) if not self._view.is_constant(v))),
            outputs=tuple(v for v in results if any(use.node not in inside for use in graph.uses[v])),
            constraint=kernel.constraint, source=kernel.source, since=kernel.since,
        )  # fmt: skip
