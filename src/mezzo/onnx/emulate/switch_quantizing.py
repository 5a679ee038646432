"""Nodes that take FP32 numbers to the steps of a scale and back, and weights that were taken there once."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.contracts.quantized_level import DynamicProduct
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.edit.dynamic_products import HeldWeight, QuantizedInputs, lstm_nodes, product_nodes
from mezzo.onnx.files.marks import is_marked, mark_quantized
from mezzo.onnx.files.quantized_payloads import payload_of
from mezzo.onnx.protos.rounding import STORAGE


class Quantizer:
    """Makes them for one model. `tensors` are what they read, for the main graph to hold."""

    def __init__(self, fresh: Callable[[], str]) -> None:
        self._fresh = fresh
        self._parameters: dict[Quantization, tuple[str, str]] = {}
        self._kept: list[onnx.TensorProto] = []  # so that their identities last
        self._weights: dict[tuple[int, Quantization], str] = {}
        self._integers: dict[tuple[int, Quantization], tuple[str, str]] = {}  # with their scales
        self.tensors: dict[str, onnx.TensorProto] = {}

    def nodes(self, source: str, result: str, how: Quantization) -> list[onnx.NodeProto]:
        """Make the nodes that take FP32 numbers to the steps of a scale, `result` being FP32 again."""
        scale, zero = self._parameters.setdefault(how, ("", ""))
        if not scale:
            shape = () if how.axis is None else (len(how.scales),)
            scale = self._hold(np.array(how.scales, np.float32).reshape(shape))
            zero = self._hold(np.array(how.zero_points).astype(STORAGE[how.dtype]).reshape(shape))
            self._parameters[how] = scale, zero
        stored = self._fresh()
        made = [
            onnx.helper.make_node("QuantizeLinear", [source, scale, zero], [stored]),
            onnx.helper.make_node("DequantizeLinear", [stored, scale, zero], [result]),
        ]
        for node in made if how.axis is not None else ():
            node.attribute.append(onnx.helper.make_attribute("axis", how.axis))
        return made

    def product(
        self,
        node: onnx.NodeProto,
        product: DynamicProduct,
        constants: Mapping[str, onnx.TensorProto],
        is_turned: bool,
    ) -> list[onnx.NodeProto]:
        """Make the nodes of a product that finds the range of its data as it runs. `constants` by name; a weight that
        is none of them is made.
        """
        made, weights = list[onnx.NodeProto](), list[HeldWeight]()
        for operand, how in product.weights:
            weight = constants.get(node.input[operand])
            if weight is None:
                made += self.nodes(node.input[operand], self._fresh(), how)[:1]
                weights.append(HeldWeight(operand, made[-1].output[0], made[-1].input[1], how))
            else:
                weights.append(HeldWeight(operand, *self._held_integers(weight, how), how))
        if node.op_type == "LSTM":
            return [*made, *lstm_nodes(node, weights, lambda word: self._fresh())]
        data, scale, zero_point = self._fresh(), self._fresh(), self._fresh()
        (held,) = weights
        integers = QuantizedInputs(
            data=data,
            data_scale=scale,
            zero_point=zero_point,
            weight=held.integers,
            weight_scales=held.scales,
            is_turned=is_turned,
        )
        made.append(
            onnx.helper.make_node("DynamicQuantizeLinear", [node.input[product.data]], [data, scale, zero_point])
        )
        return [*made, *product_nodes(node, integers, node.output[0], lambda word: self._fresh())]

    def _held_integers(self, weight: onnx.TensorProto, how: Quantization) -> tuple[str, str]:
        """Names of a weight's integers and of their scales."""
        key = id(weight), how
        if key not in self._integers:
            scales = np.array(how.scales, np.float32).reshape(() if how.axis is None else (-1,))
            self._integers[key] = self._stored(weight, how, how.dtype), self._hold(scales)
        return self._integers[key]

    def weight(self, weight: onnx.TensorProto, how: Quantization) -> str:
        """Name of what a weight's integers stand for, as FP32."""
        key = id(weight), how
        if key not in self._weights:
            self._weights[key] = self._stored(weight, how, DType.FLOAT32)
        return self._weights[key]

    def _stored(self, weight: onnx.TensorProto, how: Quantization, dtype: DType) -> str:
        """Name of the integers of a weight, or of what they stand for; it is kept so that its identity lasts."""
        self._kept.append(weight)
        payload, name = payload_of(how, weight.dims, weight.name), self._fresh()
        if is_marked(weight):
            self.tensors[name] = mark_quantized(weight, payload, dtype, name)
            return name
        numbers = numpy_helper.to_array(weight)
        stored = payload.quantize(numbers.ravel())
        held = payload.dequantize(stored) if dtype is DType.FLOAT32 else stored
        self.tensors[name] = numpy_helper.from_array(np.ascontiguousarray(held.reshape(numbers.shape)), name)
        return name

    def _hold(self, numbers: "np.ndarray") -> str:
        name = self._fresh()
        self.tensors[name] = numpy_helper.from_array(np.ascontiguousarray(numbers), name)
        return name
