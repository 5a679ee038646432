"""Fake quantization (QuantizeLinear, DequantizeLinear) of activations, and quantized weights."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.contracts.quantized_level import DynamicProduct
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.edit.dynamic_products import HeldWeight, QuantizedData, lstm_nodes, product_nodes
from mezzo.onnx.files.marks import is_marked, mark_quantized
from mezzo.onnx.files.quantized_payloads import payload_of
from mezzo.onnx.protos.rounding import STORAGE


class Quantizer:
    """Builds fake-quantization nodes for a model; `tensors`: initializers for its main graph."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self._fresh = fresh
        self._parameters: dict[Quantization, tuple[str, str]] = {}
        self._kept: list[onnx.TensorProto] = []  # keeps id() of each weight unique
        self._weights: dict[tuple[int, Quantization], str] = {}
        self._integers: dict[tuple[int, Quantization], tuple[str, str]] = {}  # with their scales
        self.tensors: dict[str, onnx.TensorProto] = {}

    def nodes(self, source: str, result: str, how: Quantization) -> list[onnx.NodeProto]:
        """Build QuantizeLinear and DequantizeLinear from FP32 `source` to FP32 `result`."""
        scale, zero = self._parameters.setdefault(how, ("", ""))
        if not scale:
            shape = () if how.axis is None else (len(how.scales),)
            scale = self._hold(np.array(how.scales, np.float32).reshape(shape))
            zero = self._hold(np.array(how.zero_points).astype(STORAGE[how.dtype]).reshape(shape))
            self._parameters[how] = scale, zero
        stored = self._fresh()
        nodes = [
            onnx.helper.make_node("QuantizeLinear", [source, scale, zero], [stored]),
            onnx.helper.make_node("DequantizeLinear", [stored, scale, zero], [result]),
        ]
        for node in nodes if how.axis is not None else ():
            node.attribute.append(onnx.helper.make_attribute("axis", how.axis))
        return nodes

    def product(
        self,
        node: onnx.NodeProto,
        product: DynamicProduct,
        constants: Mapping[str, onnx.TensorProto],
    ) -> list[onnx.NodeProto]:
        """Build the nodes of a dynamically quantized operator.

        A weight missing from `constants` (by name) is quantized at run time.
        """
        nodes, weights = list[onnx.NodeProto](), list[HeldWeight]()
        for (_, operand), how in product.weights:
            weight = constants.get(node.input[operand])
            if weight is None:
                nodes += self.nodes(node.input[operand], self._fresh(), how)[:1]
                weights.append(HeldWeight(operand, nodes[-1].output[0], nodes[-1].input[1], how))
            else:
                weights.append(HeldWeight(operand, *self._held_integers(weight, how), how))
        if node.op_type == "LSTM":
            return [*nodes, *lstm_nodes(node, weights, lambda word: self._fresh())]
        data = QuantizedData(self._fresh(), self._fresh(), self._fresh())
        (quantized_weight,) = weights
        nodes.append(
            onnx.helper.make_node("DynamicQuantizeLinear", [node.input[product.data]], data)
        )
        fresh, result = lambda word: self._fresh(), node.output[0]
        return [*nodes, *product_nodes(node, data, quantized_weight, result, fresh)]

    def _held_integers(self, weight: onnx.TensorProto, how: Quantization) -> tuple[str, str]:
        """Names of the initializers with a weight's integers and scales."""
        key = id(weight), how
        if key not in self._integers:
            scales = np.array(how.scales, np.float32).reshape(() if how.axis is None else (-1,))
            self._integers[key] = self._stored(weight, how, how.dtype), self._hold(scales)
        return self._integers[key]

    def weight(self, weight: onnx.TensorProto, how: Quantization) -> str:
        """Name of the initializer with the dequantized weight, FP32."""
        key = id(weight), how
        if key not in self._weights:
            self._weights[key] = self._stored(weight, how, DType.FLOAT32)
        return self._weights[key]

    def _stored(self, weight: onnx.TensorProto, how: Quantization, dtype: DType) -> str:
        """Name of a new initializer: the weight quantized, then dequantized if `dtype` is FP32."""
        self._kept.append(weight)
        payload, name = payload_of(how, weight.dims, weight.name), self._fresh()
        if is_marked(weight):
            self.tensors[name] = mark_quantized(weight, payload, dtype, name)
            return name
        numbers = numpy_helper.to_array(weight)
        stored = payload.quantize(numbers.ravel())
        values = payload.dequantize(stored) if dtype is DType.FLOAT32 else stored
        self.tensors[name] = numpy_helper.from_array(
            np.asarray(values.reshape(numbers.shape), order="C"), name
        )
        return name

    def _hold(self, numbers: "np.ndarray") -> str:
        name = self._fresh()
        self.tensors[name] = numpy_helper.from_array(np.asarray(numbers, order="C"), name)
        return name
