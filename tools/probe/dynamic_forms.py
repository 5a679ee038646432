"""Test models with one dynamically quantized matmul or LSTM, in the form that conversions write."""

from itertools import count

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.edit.dynamic_products import RUNTIME_DIALECT, HeldWeight, QuantizedData, lstm_nodes, product_nodes
from mezzo.quantize.arithmetic.arithmetic import quantize
from mezzo.tables.quantized_kernels import Bias, Storage
from probe.quantized_forms import ASKED, Array, Built, Form, scales_of_weight

_DATA, _WEIGHT = Storage(DType.UINT8), Storage(DType.INT8, is_symmetric=True)
_SEED, _IR_VERSION = 7, 10


def is_dynamic(form: Form) -> bool:
    """Whether a form is dynamically quantizable: UINT8 data times a symmetric INT8 weight, with one
    scale per tensor or per output column.
    """
    if form.op not in ("Gemm", "MatMul") or form.followers or form.bias is Bias.INT32 or len(form.ports) != 2:
        return False
    data, weight = form.ports
    if data.is_weight or not weight.is_weight or (data.storage, weight.storage) != (_DATA, _WEIGHT):
        return False
    last = 0 if form.attributes.get("transB") else len(weight.shape) - 1
    return {*form.attributes} <= {"transB"} and (weight.axis is None or weight.axis % len(weight.shape) == last)


def build_dynamic(form: Form) -> Built:
    """The model of such a form; its integer matmul is named ASKED."""
    return _build_lstm(form) if form.op == "LSTM" else _build_product(form)


def _build_lstm(form: Form) -> Built:
    random, constants = np.random.default_rng(_SEED), dict[str, Array]()
    data, *weights = (random.standard_normal(port.shape).astype(np.float32) for port in form.ports)
    weights_int8 = list[HeldWeight]()
    for operand, (weight, port) in enumerate(zip(weights, form.ports[1:], strict=True), start=1):
        integers, scales = _held(weight / np.sqrt(weight.shape[-1]), port.axis)
        constants |= {f"weight{operand}": integers, f"scales{operand}": scales}
        how = _how(scales, port.axis)
        weights_int8.append(HeldWeight(operand, f"weight{operand}", f"scales{operand}", how))
    lstm, numbering = helper.make_node(form.op, ["x", "w", "r"], ["y"], **form.attributes), count()
    nodes = lstm_nodes(lstm, weights_int8, lambda word: f"{word}_{next(numbering)}")
    for number, node in enumerate(nodes):
        node.name = ASKED if node is nodes[-1] else f"beside.{number}"
    return Built(_model(form, nodes, constants), {"x": data})


def _build_product(form: Form) -> Built:
    random = np.random.default_rng(_SEED)
    data, weight = (random.standard_normal(port.shape).astype(np.float32) for port in form.ports)
    integers, scales = _held(weight, form.ports[1].axis)
    constants = {"weight": integers, "weight_scales": scales}
    product = helper.make_node(form.op, ["x", "weight"], ["y"], **form.attributes)
    data_names = QuantizedData("data", "scale", "zero_point")
    weight_int8 = HeldWeight(1, "weight", "weight_scales", _how(scales, form.ports[1].axis))
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], data_names)]
    if form.bias is not None:
        constants["bias"] = random.standard_normal(form.channels).astype(np.float32)
    if form.bias is not None and form.op == "Gemm":
        product.input.append("bias")
    numbers, result = count(), "floats" if form.bias is not None and form.op == "MatMul" else "y"
    nodes += product_nodes(product, data_names, weight_int8, result, lambda word: f"{word}{next(numbers)}")
    if result != "y":
        nodes.append(helper.make_node("Add", [result, "bias"], ["y"]))
    for number, node in enumerate(nodes):
        node.name = ASKED if node.op_type == "MatMulInteger" else f"beside.{number}"
    return Built(_model(form, nodes, constants), {"x": data})


def _held(weight: Array, axis: int | None) -> tuple[Array, Array]:
    """A weight in symmetric INT8, and its scales: one per tensor, or one per slice of `axis`."""
    scales, _ = scales_of_weight(weight, Storage(DType.INT8, is_symmetric=True), axis)
    how = _how(scales, None if axis is None else axis % weight.ndim)
    return quantize(weight, how), scales


def _how(scales: Array, axis: int | None) -> Quantization:
    numbers = tuple(scales.ravel().tolist())
    return Quantization(dtype=DType.INT8, scales=numbers, zero_points=(0,) * len(numbers), axis=axis)


def _model(form: Form, nodes: list[onnx.NodeProto], constants: dict[str, Array]) -> onnx.ModelProto:
    graph_input = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(form.ports[0].shape))
    graph_output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "form", [graph_input], [graph_output], tensors)
    opsets = [helper.make_opsetid("", form.opset), helper.make_opsetid(*RUNTIME_DIALECT)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
