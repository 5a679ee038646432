"""Put products of integers, which find the range of their data as they run, in place of products of
floats.
"""

from collections.abc import Iterable

import onnx
from onnx import helper

from mezzo.contracts.plans import RunDynamic
from mezzo.ir.graph import Graph
from mezzo.onnx.edit.dynamic_products import (
    RUNTIME_DIALECT,
    HeldWeight,
    QuantizedInputs,
    lstm_nodes,
    product_nodes,
)
from mezzo.onnx.edit.forms import Forms
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.edit.quantizing import QuantizedForms
from mezzo.onnx.read.handles import Handles
from mezzo.onnx.read.origins import name_node
from mezzo.onnx.schema.domains import import_domain
from mezzo.onnx.schema.infos import state_own

_Data = tuple[str, str, str]  # integers, scale and zero point of data


class Dynamic:
    """Makes them, each with the data of all who read the same floats in one body."""

    def __init__(
        self,
        graph: Graph,
        handles: Handles,
        forms: Forms,
        placement: Placement,
        quantizing: QuantizedForms,
    ) -> None:
        self._graph, self._handles, self._forms = graph, handles, forms
        self._placement, self._quantizing = placement, quantizing
        self._weights: dict[int, list[HeldWeight]] = {}  # by node
        self._edits: list[RunDynamic] = []
        self._data: dict[tuple[int, str], _Data] = {}

    def store(self, edits: Iterable[RunDynamic]) -> None:
        """Hold the weights as integers, while their floats are what they were."""
        for edit in edits:
            self._weights[edit.node] = []
            for operand, how in edit.product.weights:
                value = self._graph.nodes[edit.node].inputs[operand]
                assert value is not None, "a product has its weights"
                held = HeldWeight(operand, *self._quantizing.hold_integers(value, how), how)
                self._weights[edit.node].append(held)
            self._edits.append(edit)

    def put_in_place(self) -> None:
        """Change the products, whose operands have their last names."""
        for edit in sorted(self._edits):
            self._replace(edit)

    def _replace(self, edit: RunDynamic) -> None:
        node, proto = self._graph.nodes[edit.node], self._handles.protos[edit.node]
        assert proto is not None, "a product is an operator"
        name_node(proto, node.name)
        container, result = self._handles.containers[node.scope], next(filter(None, proto.output))

        def fresh(word: str) -> str:
            return self._forms.names.fresh(container, f"{result}_{word}")

        if node.op == "LSTM":
            *others, last = lstm_nodes(proto, self._weights[edit.node], fresh)
            import_domain(self._handles.model, *RUNTIME_DIALECT)
            for name, value in zip(proto.output, node.outputs, strict=False):
                if value is not None:
                    state_own(self._handles.owners[node.scope], name, self._graph.shapes.get(value))
        else:
            *others, last = product_nodes(proto, self._integers(edit, proto), result, fresh)
        for other in others:
            self._add(node.id, other, proto)
        proto.op_type, proto.domain = last.op_type, last.domain
        del proto.input[:], proto.attribute[:]
        proto.input.extend(last.input)
        proto.attribute.extend(last.attribute)

    def _integers(self, edit: RunDynamic, proto: onnx.NodeProto) -> QuantizedInputs:
        """The integers that a product reads."""
        data, data_scale, zero_point = self._quantized(edit, proto)
        (weight,) = self._weights[edit.node]
        return QuantizedInputs(
            data=data,
            data_scale=data_scale,
            zero_point=zero_point,
            weight=weight.integers,
            weight_scales=weight.scales,
            is_turned=bool(self._graph.nodes[edit.node].attributes.get("transB")),
        )

    def _quantized(self, edit: RunDynamic, proto: onnx.NodeProto) -> _Data:
        """The integers of what a product reads, made before the first of those who read them in its
        body.
        """
        source = proto.input[edit.product.data]
        key = self._graph.nodes[edit.node].scope, source
        if key not in self._data:
            container = self._handles.containers[key[0]]
            made = [
                self._forms.names.fresh(container, f"{source}_{word}")
                for word in ("quantized", "scale", "zero_point")
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
