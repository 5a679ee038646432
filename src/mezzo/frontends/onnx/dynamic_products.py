"""A product of floats as ONNX spells one that finds the range of its data as it runs: DynamicQuantizeLinear, a product
of integers, and the way back to floats by the scales of both.

The order of operands is what ONNX Runtime's fusions ask for: the scale of the data times that of the weight.
"""

from collections.abc import Callable
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

# Of a product, the operand that is added to it, where it has one.
_BIAS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Integers:
    """Names of the integers that a product reads: of data with its scale and zero point, and of a weight with its
    scales. `is_turned`: the product reads its weight turned around, which one of integers does not.
    """

    data: str
    data_scale: str
    zero_point: str
    weight: str
    weight_scales: str
    is_turned: bool


def product_nodes(
    product: onnx.NodeProto, integers: Integers, result: str, fresh: Callable[[str], str]
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
