"""Placement of new nodes in topological order, in the scope of the value that they convert."""

from collections.abc import Iterator
from functools import cached_property

import onnx

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.protos.entries import remove_named
from mezzo.onnx.protos.order import sort_nodes
from mezzo.onnx.read.handles import Handles

# Types of inserted operators that `Handles.made` does not list: a record of decisions skips them.
_UNLISTED = frozenset({"Cast", "Constant"})
# Distances of ranks: nodes after an operator come before those that precede the next one.
_AFTER, _BEFORE = 0.5, -0.25


class Placement:
    """Collects new nodes, then inserts all of them into their graphs, subgraphs and functions."""

    def __init__(self, graph: Graph, handles: Handles) -> None:
        self._graph = graph
        self._handles = handles
        # By scope: a node of the Graph, the distance of the new node's rank from its rank.
        self._queued: dict[int, list[tuple[int | None, float, onnx.NodeProto]]] = {}
        self._removed: dict[int, int] = {}  # scopes of protos, by their ids

    def add(self, scope: int, after: int | None, node: onnx.NodeProto) -> None:
        """Queue a node for insertion into a scope, after node `after` of the Graph; None: first."""
        self._queue(scope, after, _AFTER, node)

    def add_before(self, scope: int, reader: int, node: onnx.NodeProto) -> None:
        """Queue a node for insertion right before operator `reader` of the Graph. Nodes of one
        operator keep the order in which they are queued.
        """
        self._queue(scope, reader, _BEFORE, node)

    def remove(self, scope: int, proto: onnx.NodeProto) -> None:
        """Queue a node of a scope for removal, with what is known of its results."""
        self._removed[id(proto)] = scope
        remove_named(self._handles.owners[scope].value_info, {*proto.output})

    def _queue(self, scope: int, anchor: int | None, distance: float, node: onnx.NodeProto) -> None:
        self._queued.setdefault(scope, []).append((anchor, distance, node))
        if node.op_type not in _UNLISTED:
            self._handles.made.append((scope, node))

    def queued(self, scope: int) -> Iterator[onnx.NodeProto]:
        """The nodes that are queued for a scope."""
        return (node for _, _, node in self._queued.get(scope, ()))

    def behind(self, number: int) -> int | None:
        """The node after which casts of a value are placed; None: first in the value's scope."""
        value = self._graph.values[number]
        producer = self._graph.nodes[value.producer]
        is_external = producer.kind is Kind.INPUT or producer.scope != value.scope
        return None if is_external else producer.id

    def place(self, dropped: set[int]) -> None:
        """Insert the queued nodes and remove those whose ids are in `dropped`. Lists are edited in
        place, so handles to other nodes remain valid.
        """
        scopes = {scope for scope, proto in self._handles.casts if id(proto) in dropped}
        scopes.update(self._queued, self._removed.values())
        dropped = dropped | self._removed.keys()
        for scope in sorted(scopes, reverse=True):  # subgraphs before the nodes that own them
            nodes = self._handles.owners[scope].node
            protos = list(nodes)
            rank: dict[int, float] = {id(proto): at for at, proto in enumerate(protos)}
            for number, distance, node in self._queued.get(scope, ()):
                anchor = None if number is None else self._anchor(number, scope)
                added = nodes.add()
                added.CopyFrom(node)
                protos.append(added)  # a live reference, so that its id stays unique
                rank[id(added)] = -1.0 if anchor is None else rank[anchor] + distance
            removed = [number for number in rank if number in dropped]
            for number in removed:
                rank[number] = float("inf")
            nodes.sort(key=lambda node: rank[id(node)])
            if removed:
                del nodes[-len(removed) :]

    def _anchor(self, producer: int, scope: int) -> int | None:
        """Id of the proto after which casts of the producer's value can be placed; None: at the
        start of the scope.
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
        """Sort all graphs and functions topologically, after edits made a node depend on a later
        one.
        """
        for scope, owner in enumerate(self._handles.owners):
            if self._graph.scopes[scope].owner is None or isinstance(owner, onnx.FunctionProto):
                sort_nodes(owner)

    def control_proto(self, tie: int, name: str) -> onnx.NodeProto:
        """The control-flow node or function call of a tie node, by an output's name in the source
        model.
        """
        return self.control_protos[self._graph.nodes[tie].scope, name]

    @cached_property
    def control_protos(self) -> dict[tuple[int, str], onnx.NodeProto]:
        """Nodes by scope and output name in the source model."""
        protos: dict[tuple[int, str], onnx.NodeProto] = {}
        for node, proto in zip(self._graph.nodes, self._handles.protos, strict=True):
            if proto is not None:
                for name in proto.output:
                    protos.setdefault((node.scope, name), proto)
        return protos
