"""Generation of unique names for values and nodes, per container (main graph or function)."""

import itertools
from collections.abc import Callable

import onnx

from mezzo.ir.graph import Graph
from mezzo.onnx.protos.graphs import (
    all_graphs,
    defined_names,
    graphs_of,
    nodes_of,
    stored_names,
)
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

    def _empty(self) -> tuple[dict[int, set[str]], list[set[str]]]:
        """Sets of names by the container's id; the same sets by scope."""
        ids = [id(container) for container in self._handles.containers]
        by_container: dict[int, set[str]] = {container: set() for container in ids}
        return by_container, [by_container[container] for container in ids]

    def _value_names(self) -> dict[int, set[str]]:
        by_container, by_scope = self._empty()
        for value in self._graph.values:
            by_scope[value.scope].add(value.name)
        for scope, cast in self._handles.casts:
            by_scope[scope].update(cast.output)
        for scope, owner in enumerate(self._handles.owners):
            by_scope[scope].update(info.name for info in owner.value_info)
        return by_container

    def _node_names(self) -> dict[int, set[str]]:
        by_container, by_scope = self._empty()
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


def free_prefix(graph: onnx.GraphProto, wish: str) -> str:
    """An unused prefix of value names in a graph and its subgraphs: `wish`, plus underscores."""
    names = value_names(graph)
    while any(name.startswith(wish) for name in names):
        wish += "_"
    return wish


def numbered(prefix: str) -> Callable[[], str]:
    """A function that returns a new name at each call: the prefix and a number."""
    return map(f"{prefix}{{}}".format, itertools.count(1)).__next__


def value_names(graph: onnx.GraphProto) -> set[str]:
    """Names of the values that a graph and its subgraphs define."""
    return {name for owner in all_graphs(graph) for name in defined_names(owner)}


def names_of(model: onnx.ModelProto) -> set[str]:
    """All names of values and nodes in a model, subgraphs and functions included."""
    names: set[str] = set()
    for node in nodes_of(model):
        names.add(node.name)
        names.update(node.input)
        names.update(node.output)
    for graph in graphs_of(model):
        ports = (*graph.input, *graph.output)
        names.update(port.name for port in ports)
        names.update(stored_names(graph))
    for function in model.functions:
        names.update(function.input)
        names.update(function.output)
    return names
