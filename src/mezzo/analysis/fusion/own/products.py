"""Convolutions and matrix products with what stands around them: FusedConv, FusedGemm, FusedMatMul."""

from collections.abc import Mapping, Sequence

from mezzo.analysis.fusion.own.rule import DIALECT, Rule, end_of, in_order, vector_of
from mezzo.analysis.fusion.view import View
from mezzo.formats.dtypes import FORMATS, HIGH
from mezzo.ir.nodes import Node, Use
from mezzo.tables.facts import Function
from mezzo.tables.fused_operators import Attribute, Fused

# What the operators call an activation, as ONNX does, with the numbers that it takes and their defaults in ONNX.
_NUMBERS: Mapping[str, Mapping[str, float]] = {
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "LeakyRelu": {"alpha": 0.01},
    "Relu": {},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "Sigmoid": {},
    "Softplus": {},
    "Softsign": {},
    "Tanh": {},
}
_OF_CONV = frozenset({"HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_FAR = FORMATS[HIGH].max_finite  # a bound that cuts no number of FP32


def _numbers_of(node: Node) -> dict[str, float]:
    """The numbers of an activation, by attribute."""
    held = {name: node.attributes.get(name, usual) for name, usual in _NUMBERS[node.op].items()}
    return {name: float(number) for name, number in held.items() if isinstance(number, int | float)}


def _write_conv(view: View, nodes: Sequence[Node]) -> Fused | None:
    """A convolution and the activation right behind it."""
    conv = next((node for node in nodes if view.op(node) == "Conv"), None)
    activation = None if conv is None else view.sole_reader(conv)
    if conv is None or activation is None or activation not in nodes:
        return None
    numbers = None
    if view.op(activation) == "Clip":
        numbers = _bounds_of(view, activation)
    elif view.op(activation) in _OF_CONV:
        numbers = tuple(_numbers_of(activation).values())
    if numbers is None:
        return None
    attributes: dict[str, Attribute] = {"activation": activation.op}
    if numbers:
        attributes["activation_params"] = numbers
    reads = tuple(None if value is None else Use(conv.id, at) for at, value in enumerate(conv.inputs))
    return Fused(
        dialect=DIALECT,
        op="FusedConv",
        nodes=(conv.id, activation.id),
        reads=reads,
        like=conv.id,
        attributes=attributes,
    )


def _bounds_of(view: View, clip: Node) -> tuple[float, ...] | None:
    """The bounds of a Clip; None where one is computed, or what is below the lower lies above the upper."""
    bounds = []
    for operand, name, usual in ((1, "min", -_FAR), (2, "max", _FAR)):
        held = clip.attributes.get(name, usual)
        number = held if isinstance(held, int | float) else None
        if operand < len(clip.inputs) and clip.inputs[operand] is not None:
            number = view.number(clip, operand)
        if number is None:
            return None
        bounds.append(min(max(float(number), -_FAR), _FAR))
    return tuple(bounds) if bounds[0] <= bounds[1] else None


def _write_gemm(view: View, nodes: Sequence[Node]) -> Fused | None:
    """A product of two matrices, its bias and an activation."""
    product = next((node for node in nodes if view.op(node) in ("Gemm", "MatMul")), None)
    end = end_of(view, nodes)
    if product is None or end is None or view.op(end) not in _NUMBERS:
        return None
    reads = tuple(None if value is None else Use(product.id, at) for at, value in enumerate(product.inputs))
    if view.op(product) == "MatMul":
        added, left, right = view.sole_reader(product), view.shape(product, 0), view.shape(product, 1)
        if (
            added is None
            or view.op(added) != "Add"
            or left is None
            or right is None
            or not len(left) == len(right) == 2
        ):
            return None
        bias = vector_of(view, added, right[1])
        if bias is None:
            return None
        reads = (*reads, bias)
    attributes: dict[str, Attribute] = {f"activation_{name}": number for name, number in _numbers_of(end).items()}
    return Fused(
        dialect=DIALECT,
        op="FusedGemm",
        nodes=in_order(nodes, end),
        reads=reads,
        like=product.id if view.op(product) == "Gemm" else None,
        attributes={"activation": end.op, **attributes},
    )


def _write_matmul(view: View, nodes: Sequence[Node]) -> Fused | None:
    """A product with numbers that scale it and operands transposed in their last two axes."""
    product, end = next(node for node in nodes if view.op(node) == "MatMul"), end_of(view, nodes)
    if end is None:
        return None
    alpha, reads, attributes = 1.0, [], dict[str, Attribute]()
    for operand, word in enumerate(("transA", "transB")):
        use, is_turned = Use(product.id, operand), False
        while (made := view.maker(view.graph.nodes[use.node], use.operand)) is not None and made in nodes:
            if view.op(made) == "Transpose":
                is_turned, use = not is_turned, Use(made.id, 0)
                continue
            scaled = _scaled_by(view, made)
            if scaled is None:
                return None
            alpha, use = alpha * scaled[1], Use(made.id, scaled[0])
        attributes |= {word: 1} if is_turned else {}
        reads.append(use)
    behind: Node | None = product
    while behind is not None and behind is not end:
        behind = view.sole_reader(behind)
        scaled = None if behind is None else _scaled_by(view, behind)
        if scaled is None:
            return None
        alpha *= scaled[1]
    return Fused(
        dialect=DIALECT,
        op="FusedMatMul",
        nodes=in_order(nodes, end),
        reads=tuple(reads),
        attributes={**attributes, "alpha": alpha},
    )


def _scaled_by(view: View, node: Node) -> tuple[int, float] | None:
    """The operand that a node multiplies, and by what one number that makes no more axes of it."""
    if len(node.inputs) != 2 or view.function(node) not in (Function.MULTIPLY, Function.DIVIDE):
        return None
    for operand in range(2):
        number, shape = view.number(node, 1 - operand), view.shape(node, 1 - operand)
        if number is None or shape is None or len(shape) > len(view.shape(node, operand) or ()):
            continue
        if view.function(node) is Function.MULTIPLY:
            return operand, number
        return (0, 1 / number) if operand == 0 and number else None
    return None


PRODUCTS: Mapping[str, Rule] = {
    "convolution": _write_conv,
    "matmul": _write_gemm,
    "gemm-activation": _write_gemm,
    "matmul-scale": _write_matmul,
}
