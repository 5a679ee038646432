"""Placement of new nodes: after what they read, in the scope of the value that they convert."""

from functools import cached_property

import onnx

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.read.handles import Handles

# Operators that are nodes of a plan: Casts and constants are none.
_TOLD = frozenset(
    {
        "Add",
        "DequantizeLinear",
        "DynamicQuantizeLinear",
        "Identity",
        "MatMulInteger",
        "Mul",
        "QuantizeLinear",
        "Transpose",
    }
)
# Behind what is put behind the operator before.
_BEFORE = 0.25


class Placement:
    """Collects new nodes and puts them into their graphs, bodies and functions in one go."""

    def __init__(self, graph: Graph, handles: Handles) -> None:
        self._graph = graph
        self._handles = handles
        self._added: dict[int, list[tuple[int | None, onnx.NodeProto]]] = {}
        self._leading: dict[int, list[tuple[int, onnx.NodeProto]]] = {}

    def add(self, scope: int, after: int | None, node: onnx.NodeProto) -> None:
        """Note a node for a scope, after a planner's node; None: before all others."""
        self._added.setdefault(scope, []).append((after, node))
        if node.op_type in _TOLD:
            self._handles.made.append((scope, node))

    def add_before(self, scope: int, reader: int, node: onnx.NodeProto) -> None:
        """Note a node for a scope, right before an operator of the planner's; several stand as they
        are noted.
        """
        self._leading.setdefault(scope, []).append((reader, node))
        if node.op_type in _TOLD:
            self._handles.made.append((scope, node))

    def behind(self, number: int) -> int | None:
        """The node behind which forms of a value stand; None: before all others of its scope."""
        value = self._graph.values[number]
        producer = self._graph.nodes[value.producer]
        is_handed_in = producer.kind is Kind.INPUT or producer.scope != value.scope
        return None if is_handed_in else producer.id

    def place(self, dropped: set[int]) -> None:
        """Put new nodes after what they read and take dropped ones out. In place: handles to the
        others stay good.
        """
        scopes = {*self._added, *self._leading} | {
            scope for scope, proto in self._handles.casts if id(proto) in dropped
        }
        for scope in sorted(scopes, reverse=True):  # bodies before the nodes that hold them
            nodes = self._handles.owners[scope].node
            held = list(nodes)
            rank: dict[int, float] = {id(proto): at for at, proto in enumerate(held)}
            for producer, node in self._added.get(scope, ()):
                anchor = None if producer is None else self._anchor(producer, scope)
                added = nodes.add()
                added.CopyFrom(node)
                held.append(added)  # keeps its id from being used again
                rank[id(added)] = -1.0 if anchor is None else rank[anchor] + 0.5
            for reader, node in self._leading.get(scope, ()):
                added = nodes.add()
                added.CopyFrom(node)
                held.append(added)
                rank[id(added)] = rank[id(self._handles.protos[reader])] - _BEFORE
            here = [number for number in rank if number in dropped]
            for number in here:
                rank[number] = float("inf")
            nodes.sort(key=lambda node: rank[id(node)])
            if here:
                del nodes[-len(here) :]

    def _anchor(self, producer: int, scope: int) -> int | None:
        """Id of the proto after which a form of the producer's value can stand; None: at the start
        of the scope.
        """
        proto = self._handles.protos[producer]
        if proto is not None:
            return id(proto)
        node = self._graph.nodes[producer]
        if node.kind is Kind.TIE:
            for value in node.outputs:
                if (
                    value is not None
                    and self._graph.values[value].scope == scope
                    and scope == node.scope
                ):
                    return id(self.control_proto(producer, self._graph.values[value].name))
        return None

    def sort(self) -> None:
        """Put every node after what it reads, where an edit has made an earlier node read a later
        one.
        """
        for scope, owner in enumerate(self._handles.owners):
            if self._graph.scopes[scope].owner is None or isinstance(owner, onnx.FunctionProto):
                sort_nodes(owner)

    def control_proto(self, tie: int, name: str) -> onnx.NodeProto:
        """The control node or call whose output, named `name` in the model that came in, a tie
        stands for.
        """
        return self.control_protos[self._graph.nodes[tie].scope, name]

    @cached_property
    def control_protos(self) -> dict[tuple[int, str], onnx.NodeProto]:
        """The nodes by scope and output name, as they came."""
        protos: dict[tuple[int, str], onnx.NodeProto] = {}
        for node, proto in zip(self._graph.nodes, self._handles.protos, strict=True):
            if proto is not None:
                for name in proto.output:
                    protos.setdefault((node.scope, name), proto)
        return protos
