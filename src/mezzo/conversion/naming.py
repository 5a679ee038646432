"""Names by which users refer to planned nodes: output values and source modules."""

from collections.abc import Mapping

from mezzo.contracts.plans import NodeAliases
from mezzo.formats.dtypes import FLOATING
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node


def names_in(graph: Graph) -> NodeAliases:
    """Planned nodes by value name, and module paths of nodes.

    Constants and values without floats have no precision: their names refer to the readers.
    """
    producers: dict[str, dict[str, None]] = {}
    consumers: dict[str, dict[str, None]] = {}
    without_floats: dict[str, str] = {}
    for number, value in enumerate(graph.values):
        producer = graph.nodes[value.producer]
        has_floats = value.dtype is None or value.dtype in FLOATING
        if not has_floats:
            without_floats[value.name] = str(value.dtype)
        if has_floats and _is_planned(producer):
            producers.setdefault(value.name, {})[producer.name] = None
        else:
            consumers.setdefault(value.name, {}).update(dict.fromkeys(_readers(graph, number)))
    modules = {graph.nodes[number].name: path for number, path in graph.modules.items()}
    return NodeAliases(_listed(producers), _listed(consumers), modules, without_floats)


def _listed(by_value: Mapping[str, Mapping[str, None]]) -> dict[str, tuple[str, ...]]:
    return {value: tuple(nodes) for value, nodes in by_value.items()}


def _readers(graph: Graph, value: int) -> list[str]:
    readers = (graph.nodes[use.node] for use in graph.uses[value])
    return [reader.name for reader in readers if _is_planned(reader)]


def _is_planned(node: Node) -> bool:
    return node.signature.dtype is not None and node.kind is not Kind.SOURCE
