"""A product of floats as a file spells one that finds the range of its data as it runs:
DynamicQuantizeLinear, a product of integers, and the way back to floats by the scales of both. ONNX
has none for an LSTM: that becomes ONNX Runtime's DynamicQuantizeLSTM.

The order of operands is what ONNX Runtime's fusions ask for: the scale of the data times that of
the weight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.formats.quantization import Quantization

# Of a product, the operand that is added to it, where it has one.
_BIAS = 2
# Operands of an LSTM, behind which DynamicQuantizeLSTM has scales and zero points of both weights.
_LSTM_OPERANDS = 8
# ONNX Runtime's dialect, with its only version.
RUNTIME_DIALECT = ("com.microsoft", 1)


class HeldWeight(NamedTuple):
    """A weight as integers, by name, with its scales: how they are held, and the operand that it
    is.
    """

    operand: int
    integers: str
    scales: str
    how: Quantization


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedInputs:
    """Names of the integers that a product reads: of data with its scale and zero point, and of a
    weight with its scales. `is_turned`: the product reads its weight turned around, which one of
    integers does not.
    """

    data: str
    data_scale: str
    zero_point: str
    weight: str
    weight_scales: str
    is_turned: bool


def product_nodes(
    product: onnx.NodeProto, integers: QuantizedInputs, result: str, fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """The nodes in place of a product of floats, the one that gives its result last.

    `fresh` makes the name of a value that a word tells of.
    """
    made, weight = list[onnx.NodeProto](), integers.weight
    if integers.is_turned:
        weight = fresh("turned")
        made.append(helper.make_node("Transpose", [integers.weight], [weight], perm=[1, 0]))
    sums, floats, scale = fresh("sums"), fresh("floats"), fresh("scale")
    added = product.input[_BIAS] if product.op_type == "Gemm" and len(product.input) > _BIAS else ""
    scaled = fresh("product") if added else result
    made += [
        helper.make_node("MatMulInteger", [integers.data, weight, integers.zero_point], [sums]),
        helper.make_node("Cast", [sums], [floats], to=TensorProto.FLOAT),
        helper.make_node("Mul", [integers.data_scale, integers.weight_scales], [scale]),
        helper.make_node("Mul", [floats, scale], [scaled]),
    ]
    return [*made, helper.make_node("Add", [scaled, added], [result])] if added else made


def lstm_nodes(
    lstm: onnx.NodeProto, weights: Sequence[HeldWeight], fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """The nodes in place of an LSTM, which gives its results last. `fresh` is as above.

    Weights [directions, 4 hidden, inputs] are read as [directions, inputs, 4 hidden]; scales and
    zero points are [directions], or [directions, 4 hidden] where each gate of each state has its
    own.
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
        turned, scales, axis = fresh("turned"), weight.scales, weight.how.axis
        nodes.append(helper.make_node("Transpose", [weight.integers], [turned], perm=[0, 2, 1]))
        shape = (1, len(weight.how.scales)) if axis else (1 + is_double,)
        if axis != 0:
            wanted, scales = constant("shape", np.array(shape)), fresh("scales")
            spread = "Reshape" if axis else "Expand"  # one scale is every direction's
            nodes.append(helper.make_node(spread, [weight.scales, wanted], [scales]))
        inputs[weight.operand] = turned
        inputs += [scales, constant("zeros", np.zeros(shape, np.int8))]
    dialect, _ = RUNTIME_DIALECT
    nodes.append(helper.make_node("DynamicQuantizeLSTM", inputs, lstm.output, domain=dialect))
    nodes[-1].attribute.extend(attributes)
    return nodes
