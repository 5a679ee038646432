"""The planner's value ids of the outputs in a tagged model."""

from collections.abc import Sequence

import onnx

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.tags import tag_of
from mezzo.onnx.protos.metadata import number_of, set_number
from mezzo.onnx.read.handles import Handles

# Control-flow operators and the attributes that hold their subgraphs, in the planner's order.
BODIES = {
    "If": ("then_branch", "else_branch"),
    "Loop": ("body",),
    "Scan": ("body",),
    "SequenceMap": ("body",),
}
# Metadata key of casts that the planner treats as sources of values, which have no tag.
_KEY = "mezzo.value"


def mark_casts(graph: Graph, handles: Handles) -> None:
    """Mark the casts that are no operators to the planner. Call it before the model is tagged."""
    for node, proto in zip(graph.nodes, handles.protos, strict=True):
        if proto is not None and node.kind in (Kind.SOURCE, Kind.CAST):
            set_number(proto, _KEY, node.id)


class PlannedValues:
    """Lookup of the planner's values by producing node, or by name within a scope."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._by_name = {
            (value.scope, value.name): number for number, value in enumerate(graph.values)
        }
        self._scopes: dict[int, list[int]] = {}
        for number, scope in enumerate(graph.scopes):
            if scope.owner is not None:
                self._scopes.setdefault(scope.owner, []).append(number)

    def name(self, value: int) -> str:
        """The value's name in the original model."""
        return self._graph.values[value].name

    def find(self, node: onnx.NodeProto, position: int, scope: int | None) -> int | None:
        """The id of a node's output. `scope` is the planner's scope of the graph, if known."""
        number = _planner_node(node)
        if number is not None and node.op_type not in BODIES:
            planned = self._graph.nodes[number]
            if len(planned.outputs) == len(node.output):
                return planned.outputs[position]
        return None if scope is None else self.find_name(scope, node.output[position])

    def find_name(self, scope: int, name: str) -> int | None:
        """The value of that name that is produced in the scope itself."""
        return self._by_name.get((scope, name))

    def find_input(self, name: str) -> int | None:
        """The value of a model input that callers feed."""
        value = self._by_name.get((0, name))
        if (
            value is None
            or self._graph.nodes[self._graph.values[value].producer].kind is not Kind.INPUT
        ):
            return None
        return value

    def scopes_of(self, node: onnx.NodeProto) -> Sequence[int]:
        """The planner's scopes of a node's subgraphs; empty if the node is untagged."""
        number = tag_of(node)
        return [] if number is None else self._scopes.get(number, [])


def _planner_node(node: onnx.NodeProto) -> int | None:
    """Id of the planner's node for an operator or a marked cast."""
    tag = tag_of(node)
    return number_of(node, _KEY) if tag is None else tag
