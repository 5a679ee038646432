"""Fresh names, unique in the part of the model where they are seen."""

from collections.abc import Iterator

import onnx

from mezzo.frontends.onnx.handles import Container

_Owner = onnx.GraphProto | onnx.FunctionProto


class Names:
    """Value names and node names in use, per container, collected when first asked for."""

    def __init__(self) -> None:
        self._values: dict[int, set[str]] = {}
        self._nodes: dict[int, set[str]] = {}

    def fresh(self, container: Container, wish: str) -> str:
        """A value name that nothing in the container bears: the wish, or the wish and a number."""
        if id(container) not in self._values:
            self._values[id(container)] = set(_value_names(container.root))
        return _fresh(self._values[id(container)], wish)

    def fresh_node(self, container: Container, wish: str) -> str:
        if id(container) not in self._nodes:
            self._nodes[id(container)] = {node.name for owner in _owners(container.root) for node in owner.node}
        return _fresh(self._nodes[id(container)], wish)


def _fresh(taken: set[str], wish: str) -> str:
    name, count = wish, 1
    while name in taken:
        count += 1
        name = f"{wish}_{count}"
    taken.add(name)
    return name


def _owners(root: _Owner) -> Iterator[_Owner]:
    yield root
    for node in root.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _owners(attribute.g)
            elif attribute.type == onnx.AttributeProto.GRAPHS:
                for graph in attribute.graphs:
                    yield from _owners(graph)


def _value_names(root: _Owner) -> Iterator[str]:
    for owner in _owners(root):
        for node in owner.node:
            yield from node.input
            yield from node.output
        if isinstance(owner, onnx.FunctionProto):
            yield from owner.input
            yield from owner.output
            continue
        for infos in (owner.input, owner.output, owner.value_info):
            for info in infos:
                yield info.name
        for tensor in owner.initializer:
            yield tensor.name
        for sparse in owner.sparse_initializer:
            yield sparse.values.name
