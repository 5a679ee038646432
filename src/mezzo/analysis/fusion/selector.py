"""Selectors, which grow fused units node by node.

`select`: may a unit start at this node? `select_input`: may the producer of an operand join?
`select_output`: may a reader join? `filter`: which of the joined nodes remain? A selector is
created for each unit, so it may keep state.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.fusions import Fusion

# Whether a node is not yet in a unit.
Free = Callable[[int], bool]
# Matches a whole unit from a seed: all of its nodes, or None.
Match = Callable[[FusionView, Node, Free], Sequence[Node] | None]


class Selector(Protocol):
    """Growth of one unit. Results may depend on the graph and on earlier calls, never on the order
    of nodes.
    """

    def select(self, node: Node) -> bool: ...
    def select_input(self, node: Node, maker: Node) -> bool: ...
    def select_output(self, node: Node, reader: Node) -> bool: ...
    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]: ...


Make = Callable[[FusionView, Free], Selector]
# Creates the selectors of a pattern for a target's fusion, whose parameters they may use.
Form = Callable[[Fusion], Make]


def fixed(make: Make) -> Form:
    """The form of a pattern without parameters."""
    return lambda fusion: make


def whole(match: Match) -> Form:
    """The form of a pattern without parameters that is matched as a whole."""
    return fixed(shape(match))


class Shape:
    """A selector for a pattern of known shape, which is matched and retained as a whole."""

    def __init__(self, match: Match, view: FusionView, free: Free) -> None:
        self._match = match
        self._view = view
        self._free = free
        self._members: frozenset[int] = frozenset()

    def select(self, node: Node) -> bool:
        matched = self._match(self._view, node, self._free)
        if matched is None:
            return False
        self._members = frozenset(_with_handed_on(self._view, {member.id for member in matched}))
        assert node.id in self._members, "a pattern holds its seed"
        return all(self._free(member) for member in self._members)

    def select_input(self, node: Node, maker: Node) -> bool:
        return maker.id in self._members

    def select_output(self, node: Node, reader: Node) -> bool:
        return reader.id in self._members

    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]:
        return nodes if self._members <= {node.id for node in nodes} else ()


def _with_handed_on(view: FusionView, members: set[int]) -> set[int]:
    """Add the Identity operators between members, so that the unit is connected."""
    added = set()
    for member in members:
        for value in view.graph.nodes[member].inputs:
            passed = []
            maker = None if value is None else view.producer(value)
            while maker is not None and maker.id not in members and view.is_identity(maker):
                passed.append(maker.id)
                source = maker.inputs[0]
                maker = None if source is None else view.producer(source)
            if maker is not None and maker.id in members:
                added.update(passed)
    return members | added


def shape(match: Match) -> Make:
    """A selector factory for a pattern that is matched as a whole."""
    return lambda view, free: Shape(match, view, free)


class Tree:
    """A selector that grows from an output towards the inputs: a producer joins once all its
    readers are inside.

    Units without float operators are dropped: they are shape arithmetic.
    """

    def __init__(
        self, may_join: Callable[[FusionView, Node], bool], view: FusionView, free: Free
    ) -> None:
        self._may_join = may_join
        self._view = view
        self._members: set[int] = set()

    def select(self, node: Node) -> bool:
        self._members = {node.id}
        return self._may_join(self._view, node)

    def select_input(self, node: Node, maker: Node) -> bool:
        if not self._may_join(self._view, maker) or self._view.escapes(maker, self._members):
            return False
        self._members.add(maker.id)
        return True

    def select_output(self, node: Node, reader: Node) -> bool:
        return False

    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]:
        return nodes if any(map(self._view.is_float, nodes)) else ()


def tree(may_join: Callable[[FusionView, Node], bool]) -> Make:
    """A selector factory for units with one result, with all producers that only they read."""
    return lambda view, free: Tree(may_join, view, free)
