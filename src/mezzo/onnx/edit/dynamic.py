"""Dynamic quantization: replace float matmuls and LSTMs by integer ones that compute the scale and
zero point of their input at run time.
"""

from collections.abc import Iterable

import onnx
from onnx import helper

from mezzo.contracts.plans import RunDynamic
from mezzo.ir.graph import Graph
from mezzo.onnx.edit.dynamic_products import (
    RUNTIME_DIALECT,
    HeldWeight,
    QuantizedData,
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


class Dynamic:
    """Applies `RunDynamic` edits. Operators that read the same value in the same scope share one
    DynamicQuantizeLinear.
    """

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
        self._data: dict[tuple[int, str], QuantizedData] = {}

    def store(self, edits: Iterable[RunDynamic]) -> None:
        """Store the weights as integers. Called before other edits change the float weights."""
        for edit in edits:
            self._weights[edit.node] = []
            for use, quantization in edit.product.weights:
                value = self._graph.nodes[use.node].inputs[use.operand]
                assert value is not None, "a product has its weights"
                weight = HeldWeight(
                    use.operand, *self._quantizing.hold_integers(value, quantization), quantization
                )
                self._weights[edit.node].append(weight)
            self._edits.append(edit)

    def put_in_place(self) -> None:
        """Replace the float operators. Called when the names of all operands are final."""
        for edit in sorted(self._edits):
            self._replace(edit)

    def _replace(self, edit: RunDynamic) -> None:
        node, proto = self._graph.nodes[edit.node], self._handles.proto(edit.node)
        name_node(proto, node.name)
        container, result = self._handles.containers[node.scope], next(filter(None, proto.output))

        def fresh(word: str) -> str:
            return self._forms.names.fresh(container, f"{result}_{word}")

        if node.op == "LSTM":
            *preceding, last = lstm_nodes(proto, self._weights[edit.node], fresh)
            import_domain(self._handles.model, *RUNTIME_DIALECT)
            for name, value in zip(proto.output, node.outputs, strict=False):
                if value is not None:
                    state_own(self._handles.owners[node.scope], name, self._graph.shapes.get(value))
        else:
            (weight,) = self._weights[edit.node]
            data = self._quantized(edit, proto)
            *preceding, last = product_nodes(proto, data, weight, result, fresh)
        for helper_node in preceding:
            self._add(node.id, helper_node, proto)
        proto.op_type, proto.domain = last.op_type, last.domain
        del proto.input[:], proto.attribute[:]
        proto.input.extend(last.input)
        proto.attribute.extend(last.attribute)

    def _quantized(self, edit: RunDynamic, proto: onnx.NodeProto) -> QuantizedData:
        """Names of the quantized input. Its DynamicQuantizeLinear is placed before the first
        operator in the scope that reads it.
        """
        source = proto.input[edit.product.data]
        key = self._graph.nodes[edit.node].scope, source
        if key not in self._data:
            container = self._handles.containers[key[0]]
            outputs = [
                self._forms.names.fresh(container, f"{source}_{word}")
                for word in ("quantized", "scale", "zero_point")
            ]
            self._add(
                edit.node, helper.make_node("DynamicQuantizeLinear", [source], outputs), proto
            )
            self._data[key] = QuantizedData(*outputs)
        return self._data[key]

    def _add(self, reader: int, node: onnx.NodeProto, proto: onnx.NodeProto) -> None:
        scope = self._graph.nodes[reader].scope
        node.name = self._forms.names.fresh_node(
            self._handles.containers[scope], f"{node.output[0]}_{node.op_type.lower()}"
        )
        node.metadata_props.extend(proto.metadata_props)  # it implements this operator
        self._placement.add_before(scope, reader, node)
