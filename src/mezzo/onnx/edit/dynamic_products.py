"""ONNX nodes of dynamically quantized matmuls and LSTMs. A matmul becomes DynamicQuantizeLinear,
MatMulInteger, and a Mul with the scales of both operands. ONNX has no integer LSTM: that becomes
ONNX Runtime's DynamicQuantizeLSTM.

Operands are in the order that ONNX Runtime's fusions match: input scale times weight scale.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.formats.quantization import Quantization
from mezzo.onnx.protos.attributes import read_int

# Position of a Gemm's optional bias.
_BIAS = 2
# An LSTM's operands. DynamicQuantizeLSTM has the weights' scales and zero points after them.
_LSTM_OPERANDS = 8
# Domain of ONNX Runtime's contrib operators, and its only version.
RUNTIME_DIALECT = ("com.microsoft", 1)


class HeldWeight(NamedTuple):
    """A weight stored as integers: its operand position, the names of integers and scales, and its
    quantization parameters (`how`).
    """

    operand: int
    integers: str
    scales: str
    how: Quantization


class QuantizedData(NamedTuple):
    """Names of an input that is quantized at run time: integers, scale and zero point."""

    integers: str
    scale: str
    zero_point: str


def product_nodes(
    product: onnx.NodeProto,
    data: QuantizedData,
    weight: HeldWeight,
    result: str,
    fresh: Callable[[str], str],
) -> list[onnx.NodeProto]:
    """Nodes that replace a float matmul or Gemm; the last one outputs `result`.

    `fresh` makes a unique value name from a suffix.
    """
    nodes, integers = list[onnx.NodeProto](), weight.integers
    if read_int(product, "transB", 0):  # MatMulInteger transposes no operand
        integers = fresh("turned")
        nodes.append(helper.make_node("Transpose", [weight.integers], [integers], perm=[1, 0]))
    sums, floats, scale = fresh("sums"), fresh("floats"), fresh("scale")
    bias = product.input[_BIAS] if product.op_type == "Gemm" and len(product.input) > _BIAS else ""
    scaled = fresh("product") if bias else result
    nodes += [
        helper.make_node("MatMulInteger", [data.integers, integers, data.zero_point], [sums]),
        helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
        helper.make_node("Mul", [data.scale, weight.scales], [scale]),
        helper.make_node("Mul", [floats, scale], [scaled]),
    ]
    return [*nodes, helper.make_node("Add", [scaled, bias], [result])] if bias else nodes


def lstm_nodes(
    lstm: onnx.NodeProto, weights: Sequence[HeldWeight], fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """Nodes that replace an LSTM; the last one is DynamicQuantizeLSTM. `fresh` as above.

    Weights [directions, 4 hidden, inputs] are transposed to [directions, inputs, 4 hidden]. Scales
    and zero points are [directions], or [directions, 4 hidden] if quantized per channel.
    """
    nodes = list[onnx.NodeProto]()
    attributes = [attribute for attribute in lstm.attribute if attribute.name != "layout"]
    is_double = any(
        attribute.name == "direction" and attribute.s == b"bidirectional"
        for attribute in attributes
    )
    inputs = [*lstm.input, *[""] * (_LSTM_OPERANDS - len(lstm.input))]

    def constant(word: str, numbers: "np.ndarray") -> str:
        nodes.append(
            helper.make_node("Constant", [], [fresh(word)], value=numpy_helper.from_array(numbers))
        )
        name: str = nodes[-1].output[0]
        return name

    for weight in weights:
        transposed, scales, axis = fresh("turned"), weight.scales, weight.how.axis
        nodes.append(helper.make_node("Transpose", [weight.integers], [transposed], perm=[0, 2, 1]))
        shape = (1, len(weight.how.scales)) if axis else (1 + is_double,)
        if axis != 0:
            dims, scales = constant("shape", np.array(shape)), fresh("scales")
            shape_op = "Reshape" if axis else "Expand"  # Expand: repeat it per direction
            nodes.append(helper.make_node(shape_op, [weight.scales, dims], [scales]))
        inputs[weight.operand] = transposed
        inputs += [scales, constant("zeros", np.zeros(shape, np.int8))]
    dialect, _ = RUNTIME_DIALECT
    nodes.append(helper.make_node("DynamicQuantizeLSTM", inputs, lstm.output, domain=dialect))
    nodes[-1].attribute.extend(attributes)
    return nodes
