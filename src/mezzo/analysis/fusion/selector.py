"""How a unit grows: the four questions a partition asks of a pattern, node by node.

`select`: may a unit begin here? `select_input`: may the maker of an operand join? `select_output`: may a reader join?
`filter`: which of those that joined are kept? A selector is made anew for every unit, so it may remember what it took.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Node

# Whether a node is in no unit yet.
Free = Callable[[int], bool]
# What a pattern that knows its whole shape finds from a seed: every node of the unit, or None.
Match = Callable[[View, Node, Free], Sequence[Node] | None]


class Selector(Protocol):
    """One unit's growth. Answers may depend on the graph and on earlier answers, never on the order of nodes."""

    def select(self, node: Node) -> bool: ...
    def select_input(self, node: Node, maker: Node) -> bool: ...
    def select_output(self, node: Node, reader: Node) -> bool: ...
    def filter(self, nodes: Sequence[Node]) -> Sequence[Node]: ...


Make = Callable[[View, Free], Selector]


class Shape:
    """A selector for a pattern of a known shape: it is found as a whole from its seed, and kept as a whole."""

    def __init__(self, match: Match, view: View, free: Free) -> None:
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


def _with_handed_on(view: View, members: set[int]) -> set[int]:
    """Add the operators between members that hand a value on unchanged: a unit has no holes."""
    added = set()
    for member in members:
        for value in view.graph.nodes[member].inputs:
            passed = []
            maker = None if value is None else view.graph.nodes[view.graph.values[value].producer]
            while maker is not None and maker.id not in members and view.hands_on(maker):
                passed.append(maker.id)
                source = maker.inputs[0]
                maker = None if source is None else view.graph.nodes[view.graph.values[source].producer]
            if maker is not None and maker.id in members:
                added.update(passed)
    return members | added


def shape(match: Match) -> Make:
    """The selector of a pattern that is found as a whole."""
    return lambda view, free: Shape(match, view, free)


class Tree:
    """A selector that grows from an end towards the inputs: a maker joins once all who read it are inside.

    What computes no floats at all is left: it is arithmetic on shapes.
    """

    def __init__(self, may_join: Callable[[View, Node], bool], view: View, free: Free) -> None:
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


def tree(may_join: Callable[[View, Node], bool]) -> Make:
    """The selector of units that hand on one result and take in whatever only they read."""
    return lambda view, free: Tree(may_join, view, free)
