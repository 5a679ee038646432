"""Undo log for edits of an FX graph, to restore a compiler's graph after a failed edit."""

from collections.abc import Mapping
from typing import Any

from torch import fx

Arguments = tuple[tuple[Any, ...], Mapping[str, Any]]


class EditJournal:
    """Edits a graph and records its previous state."""

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        self._last_input = next(reversed(graph.find_nodes(op="placeholder")), None)
        self._added: list[fx.Node] = []
        self._arguments: dict[fx.Node, Arguments] = {}
        self._targets: dict[fx.Node, Any] = {}
        self._meta: dict[tuple[fx.Node, str], object] = {}

    def behind(self, source: fx.Node) -> fx.Node:
        """The node after which users of a node may be inserted: the last input, for an input."""
        if source.op != "placeholder":
            return source
        assert self._last_input is not None, "an input is behind no other"
        return self._last_input

    def add(
        self, behind: fx.Node, target: Any, arguments: tuple[Any, ...], meta: dict[str, Any]
    ) -> fx.Node:
        """Insert a call directly after a node."""
        with self._graph.inserting_after(behind):
            node = self._graph.call_function(target, arguments)
        node.meta = meta
        self._added.append(node)
        return node

    def add_constant(self, behind: fx.Node, name: str, value: object) -> fx.Node:
        """Insert a constant of the graph's module directly after a node."""
        with self._graph.inserting_after(behind):
            node = self._graph.create_node("get_attr", name)
        node.meta = {"val": value}
        self._added.append(node)
        return node

    def feed(self, node: fx.Node, arguments: Arguments) -> None:
        """Replace a node's arguments."""
        self._arguments.setdefault(node, (node.args, node.kwargs))
        node.args = arguments[0]
        if arguments[1]:
            node.kwargs = dict(arguments[1])

    def retarget(self, node: fx.Node, target: Any, arguments: tuple[Any, ...]) -> None:
        """Make a call another operator's."""
        self._targets.setdefault(node, node.target)
        self._arguments.setdefault(node, (node.args, node.kwargs))
        node.target, node.args, node.kwargs = target, arguments, {}

    def retype(self, node: fx.Node, made: object) -> None:
        """Set a node's fake result."""
        self.note(node, "val", made)

    def note(self, node: fx.Node, key: str, value: object) -> None:
        """Set an entry of a node's metadata."""
        self._meta.setdefault((node, key), node.meta.get(key))
        node.meta[key] = value

    def undo(self) -> None:
        """Restore the graph's original state."""
        for node, (args, kwargs) in self._arguments.items():
            node.args, node.kwargs = args, dict(kwargs)
        for node, target in self._targets.items():
            node.target = target
        for (node, key), value in self._meta.items():
            node.meta[key] = value
        for node in reversed(self._added):
            self._graph.erase_node(node)
        self._arguments, self._targets, self._meta, self._added = {}, {}, {}, []
