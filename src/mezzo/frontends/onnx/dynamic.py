"""Put products of integers, which find the range of their data as they run, in place of products of floats."""

from collections.abc import Iterable

import onnx
from onnx import helper

from mezzo.core.graph import Graph
from mezzo.core.plans import RunDynamic
from mezzo.frontends.onnx.dynamic_products import Integers, product_nodes
from mezzo.frontends.onnx.forms import Forms
from mezzo.frontends.onnx.handles import Handles
from mezzo.frontends.onnx.origins import name_node
from mezzo.frontends.onnx.placement import Placement
from mezzo.frontends.onnx.quantizing import Quantizing

_Data = tuple[str, str, str]  # integers, scale and zero point of data


class Dynamic:
    """Makes them, each with the data of all who read the same floats in one body."""

    def __init__(
        self, graph: Graph, handles: Handles, forms: Forms, placement: Placement, quantizing: Quantizing
    ) -> None:
        self._graph, self._handles, self._forms = graph, handles, forms
        self._placement, self._quantizing = placement, quantizing
        self._weights: dict[int, tuple[str, str]] = {}  # by node
        self._edits: list[RunDynamic] = []
        self._data: dict[tuple[int, str], _Data] = {}

    def store(self, edits: Iterable[RunDynamic]) -> None:
        """Hold the weights as integers, while their floats are what they were."""
        for edit in edits:
            value = self._graph.nodes[edit.node].inputs[edit.product.weight]
            assert value is not None, "a product has a weight"
            self._weights[edit.node] = self._quantizing.hold_integers(value, edit.product.how)
            self._edits.append(edit)

    def put_in_place(self) -> None:
        """Change the products, whose operands have their last names."""
        for edit in sorted(self._edits):
            self._replace(edit)

    def _replace(self, edit: RunDynamic) -> None:
        node, proto = self._graph.nodes[edit.node], self._handles.protos[edit.node]
        assert proto is not None, "a product is an operator"
        name_node(proto, node.name)
        container = self._handles.containers[node.scope]
        data, data_scale, zero_point = self._quantized(edit, proto)
        weight, weight_scales = self._weights[edit.node]
        integers = Integers(
            data=data,
            data_scale=data_scale,
            zero_point=zero_point,
            weight=weight,
            weight_scales=weight_scales,
            is_turned=bool(node.attributes.get("transB")),
        )
        result = proto.output[0]
        *others, last = product_nodes(
            proto, integers, result, lambda word: self._forms.names.fresh(container, f"{result}_{word}")
        )
        for other in others:
            self._add(node.id, other, proto)
        proto.op_type, proto.domain = last.op_type, ""
        del proto.input[:], proto.attribute[:]
        proto.input.extend(last.input)

    def _quantized(self, edit: RunDynamic, proto: onnx.NodeProto) -> _Data:
        """The integers of what a product reads, made before the first of those who read them in its body."""
        source = proto.input[edit.product.data]
        key = self._graph.nodes[edit.node].scope, source
        if key not in self._data:
            container = self._handles.containers[key[0]]
            made = [
                self._forms.names.fresh(container, f"{source}_{word}") for word in ("quantized", "scale", "zero_point")
            ]
            self._add(edit.node, helper.make_node("DynamicQuantizeLinear", [source], made), proto)
            self._data[key] = made[0], made[1], made[2]
        return self._data[key]

    def _add(self, reader: int, node: onnx.NodeProto, proto: onnx.NodeProto) -> None:
        scope = self._graph.nodes[reader].scope
        node.name = self._forms.names.fresh_node(
            self._handles.containers[scope], f"{node.output[0]}_{node.op_type.lower()}"
        )
        node.metadata_props.extend(proto.metadata_props)  # they are the operator, written out
        self._placement.add_before(scope, reader, node)
