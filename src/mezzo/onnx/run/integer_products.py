"""Matmuls and convolutions of a file that runtimes compute in INT8 with constant weights."""

from collections.abc import Iterator, Sequence

import numpy as np
import onnx

from mezzo.formats.neighbouring_pairs import largest_pairs
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.protos.graphs import graphs_of, nodes_of
from mezzo.onnx.read.origins import title_of
from mezzo.tables.sums import MOST_IN_PAIR

# Operators that multiply integers, in any domain.
_INTEGER = frozenset(
    {
        "ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger",
        "MatMulIntegerToFloat", "QAttention", "QGemm", "QLinearConv", "QLinearMatMul",
    }
)  # fmt: skip
# Operators that runtimes run so if both operands come from DequantizeLinear.
_DEQUANTIZED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def saturating_products(whole: RunnableModel) -> tuple[str, ...]:
    """Names of products, some of whose INT8 weights are too large for pairs of products in INT16:
    two neighbours of one sign add up to more than 128. In the order of the file.
    """
    tensors = {tensor.name: tensor for tensor in _constants(whole.model)}
    stored = {
        node.output[0]: node.input[0]
        for node in nodes_of(whole.model)
        if node.op_type == "DequantizeLinear"
    }
    names = []
    for node in nodes_of(whole.model):
        operands = _integers(node, stored)
        weights = ((at, tensors[name]) for at, name in enumerate(operands) if name in tensors)
        if any(_may_saturate(whole, node, at, tensor) for at, tensor in weights):
            names.append(title_of(node))
    return tuple(names)


def _constants(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for graph in graphs_of(model):
        yield from graph.initializer
    for node in nodes_of(model):
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(node.attribute[0].t)
            tensor.name = node.output[0]
            yield tensor


def _integers(node: onnx.NodeProto, stored: dict[str, str]) -> Sequence[str]:
    """The integers that a product multiplies; none if a runtime runs it in floats."""
    if node.op_type in _INTEGER:
        return [*node.input]
    is_quantized = node.op_type in _DEQUANTIZED and all(name in stored for name in node.input[:2])
    return [stored[name] for name in node.input[:2]] if is_quantized else ()


def _may_saturate(
    whole: RunnableModel, node: onnx.NodeProto, position: int, tensor: onnx.TensorProto
) -> bool:
    if tensor.data_type != onnx.TensorProto.INT8 or len(tensor.dims) < 2:
        return False
    integers = whole.array(tensor).astype(np.float32)
    slices = np.moveaxis(integers, _output_axis(node, position), 0)
    return bool(largest_pairs(slices).max(initial=0) > MOST_IN_PAIR)


def _output_axis(node: onnx.NodeProto, position: int) -> int:
    """The axis of a weight that is not summed over."""
    if node.op_type == "ConvTranspose":
        return 1
    if "Conv" in node.op_type:
        return 0
    transposed = "transA" if position == 0 else "transB"
    is_transposed = any(each.name == transposed and each.i for each in node.attribute)
    return -2 if (position == 0) != is_transposed else -1
