"""Hierarchical grouping of a graph's nodes by subgraph, module path and repetition."""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node

# Limit of nesting: names are untrusted, and one may have thousands of slashes.
_DEEPEST = 16
# Groups of at least this many nodes are searched for repeated blocks.
_MANY = 40
_WITHOUT_A_SCOPE = frozenset({Kind.SOURCE, Kind.INPUT, Kind.OUTPUT})
_SHORTEST, _LONGEST = 3, 600

_Codes = npt.NDArray[np.int64]


class NodeBox(NamedTuple):
    """A box of nodes. `parent` is a position in the groups, None for the whole graph.

    `kind` is "graph", "body" (a subgraph), "scope" (a path in names, or a module) or "block"
    (repeated operators).
    """

    name: str
    parent: int | None
    kind: str


def group_nodes(graph: Graph) -> tuple[tuple[NodeBox, ...], list[int]]:
    """The groups, parents first, and the group of every node. The time is linear in the graph."""
    return _Grouping(graph).find()


class _Grouping:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.groups = [NodeBox("", None, "graph")]
        self.known: dict[tuple[int, str], int] = {}
        self.of_node = [0] * len(graph.nodes)
        self.of_scope: dict[int, int] = {0: 0}

    def find(self) -> tuple[tuple[NodeBox, ...], list[int]]:
        for node in self.graph.nodes:
            if node.kind not in _WITHOUT_A_SCOPE:
                self.of_node[node.id] = self._by_path(node)
        if len(self.groups) > 1:
            self._place_lost([node for node in self.graph.nodes if self._is_lost(node)])
        self._find_blocks()
        for node in reversed(self.graph.nodes):  # a weight is in the group of its first reader
            for value in node.inputs if node.kind is not Kind.SOURCE else ():
                producer = None if value is None else self.graph.values[value].producer
                if producer is not None and self.graph.nodes[producer].kind is Kind.SOURCE:
                    self.of_node[producer] = self.of_node[node.id]
        return tuple(self.groups), self.of_node

    def _by_path(self, node: Node) -> int:
        group = self._of_scope(node.scope)
        prefix = self.graph.scopes[node.scope].path
        name = node.name.removeprefix(prefix) if prefix else node.name
        parts = [part for part in name.split("/") if part][:-1]
        module = self.graph.modules.get(node.id, "")
        if not parts or parts == [module]:  # a name with the module's path as one part
            parts = _split_module(module)
        for part in parts[:_DEEPEST]:
            group = self._child(group, part, "scope")
        return group

    def _of_scope(self, scope: int) -> int:
        chain = []
        while scope not in self.of_scope:
            chain.append(scope)
            scope = self.graph.scopes[scope].parent or 0
        for inner in reversed(chain):
            record = self.graph.scopes[inner]
            # A subgraph is inside its owner's box, which may come later in the list.
            outside = self.of_scope[record.parent or 0]
            name = record.path.rstrip("/").rpartition("/")[2] or record.path
            owner = "" if record.owner is None else f"{self.graph.nodes[record.owner].op} "
            self.of_scope[inner] = self._child(outside, f"{owner}{name}", "body", key=f"\0{inner}")
        return self.of_scope[chain[0]] if chain else self.of_scope[scope]

    def _child(self, parent: int, name: str, kind: str, key: str | None = None) -> int:
        child = self.known.get((parent, key or name))
        if child is None:
            child = self.known[parent, key or name] = len(self.groups)
            self.groups.append(NodeBox(name, parent, kind))
        return child

    def _is_lost(self, node: Node) -> bool:
        """Whether neither name nor exporter gives a node's scope ("/Add" is outside all)."""
        if node.kind not in (Kind.OP, Kind.CAST) or node.id in self.graph.modules:
            return False
        return "/" not in node.name.removeprefix(self.graph.scopes[node.scope].path)

    def _place_lost(self, nodes: Sequence[Node]) -> None:
        """Move nodes without a scope into the innermost group around all their readers.

        A cast, as other converters add them, moves to its producer's group if that is further
        inside.
        """
        values, uses = self.graph.values, self.graph.uses
        for node in reversed(nodes):  # readers before the nodes they read
            self._move_inside(
                node,
                [use.node for value in node.outputs if value is not None for use in uses[value]],
            )
        for node in (node for node in nodes if node.kind is Kind.CAST):
            self._move_inside(
                node, [values[value].producer for value in node.inputs if value is not None]
            )

    def _move_inside(self, node: Node, neighbours: Iterable[int]) -> None:
        """Move a node into its neighbours' innermost common group, if in the same subgraph."""
        nodes = self.graph.nodes
        home = self._around(self._of_scope(node.scope))
        placed = [
            self.of_node[neighbour]
            for neighbour in neighbours
            if nodes[neighbour].kind not in _WITHOUT_A_SCOPE
        ]
        shared = _shared_beginning([self._around(group) for group in placed])
        if shared[: len(home)] != home:
            return
        inside = itertools.takewhile(
            lambda group: self.groups[group].kind != "body", shared[len(home) :]
        )
        around = [*home, *inside]
        if len(around) > len(self._around(self.of_node[node.id])):
            self.of_node[node.id] = around[-1]

    def _around(self, group: int) -> list[int]:
        """The groups from the whole graph to this one."""
        chain = [group]
        while (parent := self.groups[chain[-1]].parent) is not None:
            chain.append(parent)
        return chain[::-1]

    def _find_blocks(self) -> None:
        members: dict[int, list[int]] = {}
        for node in self.graph.nodes:
            if node.kind in (Kind.OP, Kind.CAST):
                members.setdefault(self.of_node[node.id], []).append(node.id)
        for group, nodes in members.items():
            if len(nodes) < _MANY:
                continue
            names: dict[str, int] = {}
            codes = np.array(
                [names.setdefault(self.graph.nodes[node].op, len(names)) for node in nodes],
                np.int64,
            )
            for begin, period, count in find_repeats(codes):
                for repetition in range(count):
                    block = len(self.groups)
                    self.groups.append(
                        NodeBox(f"block {repetition + 1} of {count}", group, "block")
                    )
                    start = begin + repetition * period
                    for number in nodes[start : start + period]:
                        self.of_node[number] = block


def find_module(graph: Graph, node: Node) -> str | None:
    """The exporter's module path of an operator ("encoder.layer.0"); "" for the model itself.

    None if neither the exporter nor the name gives it.
    """
    recorded = graph.modules.get(node.id)
    if recorded is not None:
        return recorded
    name = node.name.removeprefix(graph.scopes[node.scope].path)
    if node.kind not in (Kind.OP, Kind.CAST) or not name.startswith("/"):
        return None
    parts: list[str] = []
    for part in name.split("/")[1:-1]:  # TorchScript names list items with the list: layer, layer.0
        if parts and part.startswith(f"{parts[-1]}."):
            parts.pop()
        parts.append(part)
    return ".".join(parts)


def _shared_beginning(chains: Sequence[Sequence[int]]) -> list[int]:
    """The common prefix of several chains."""
    return [
        step[0]
        for step in itertools.takewhile(
            lambda step: len(set(step)) == 1, zip(*chains, strict=False)
        )
    ]


def find_repeats(codes: _Codes) -> list[tuple[int, int, int]]:
    """Stretches with a repeated pattern, in order: start, period, count."""
    repeats: list[tuple[int, int, int]] = []
    pending = [(0, len(codes))]
    while pending:
        begin, end = pending.pop()
        best = _longest_repeat(codes[begin:end])
        if best is None:
            continue
        offset, period, count = best
        repeats.append((begin + offset, period, count))
        pending += [(begin, begin + offset), (begin + offset + period * count, end)]
    return sorted(repeats)


def _longest_repeat(codes: _Codes) -> tuple[int, int, int] | None:
    """The repetition that covers most nodes, with the shortest period; no runs of one operator."""
    best: tuple[int, int, int] | None = None
    most = max(_MANY // 2, 2 * _SHORTEST) - 1
    for period in range(_SHORTEST, min(_LONGEST, len(codes) // 2) + 1):
        differs = np.flatnonzero(codes[:-period] != codes[period:])
        edges = np.concatenate(([-1], differs, [len(codes) - period]))
        gaps = np.diff(edges) - 1
        position = int(gaps.argmax())
        count = (int(gaps[position]) + period) // period
        begin = int(edges[position]) + 1
        if (
            count >= 2
            and count * period > most
            and len(np.unique(codes[begin : begin + period])) > 1
        ):
            best, most = (begin, period, count), count * period
    return best


def _split_module(path: str) -> list[str]:
    """Parts of a module's path, numbers joined to the name before: encoder, layer.0, attention."""
    parts: list[str] = re.findall(r"[^./]+(?:\.\d+(?![^./]))*", path)
    return parts
