"""Generation of unique names for values and nodes, per container (main graph or function)."""

from mezzo.ir.graph import Graph
from mezzo.onnx.read.handles import Container, Handles


class UsedNames:
    """Value names and node names in use, per container, collected on first use."""

    def __init__(self, graph: Graph, handles: Handles) -> None:
        self._graph = graph
        self._handles = handles
        self._values: dict[int, set[str]] | None = None
        self._nodes: dict[int, set[str]] | None = None

    def fresh(self, container: Container, wish: str) -> str:
        """A value name that is unused in the container: the wish, or the wish and a number."""
        if self._values is None:
            self._values = self._value_names()
        return fresh_name(self._values[id(container)], wish)

    def fresh_node(self, container: Container, wish: str) -> str:
        if self._nodes is None:
            self._nodes = self._node_names()
        return fresh_name(self._nodes[id(container)], wish)

    def _value_names(self) -> dict[int, set[str]]:
        containers = self._handles.containers
        by_container: dict[int, set[str]] = {id(container): set() for container in containers}
        by_scope = [by_container[id(container)] for container in containers]
        for value in self._graph.values:
            by_scope[value.scope].add(value.name)
        for scope, cast in self._handles.casts:
            by_scope[scope].update(cast.output)
        for scope, owner in enumerate(self._handles.owners):
            by_scope[scope].update(info.name for info in owner.value_info)
        return by_container

    def _node_names(self) -> dict[int, set[str]]:
        containers = self._handles.containers
        by_container: dict[int, set[str]] = {id(container): set() for container in containers}
        by_scope = [by_container[id(container)] for container in containers]
        for node, proto in zip(self._graph.nodes, self._handles.protos, strict=True):
            if proto is not None:  # in the main graph the planner's names are the nodes' own
                by_scope[node.scope].add(proto.name if node.scope else node.name)
        for scope, cast in self._handles.casts:
            by_scope[scope].add(cast.name)
        return by_container


def fresh_name(taken: set[str], wish: str) -> str:
    """An unused name, the wish or the wish and a number; it is added to `taken`."""
    name, count = wish, 1
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name
