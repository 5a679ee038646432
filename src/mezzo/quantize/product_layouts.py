"""How a product of a graph reads its data and lays its weights out, and which constants are its own."""

from collections.abc import Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.quantize.arithmetic.products import Convolution, Matrix, Product


def layout_of(graph: Graph, node: Node) -> Product | None:
    """How an operator multiplies its first operand by its second; None where it is no such product, or its attributes
    leave it open.
    """
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    shape = graph.shapes.get(node.inputs[1])
    if shape is None or any(not isinstance(size, int) or size < 1 for size in shape):
        return None
    match node.op:
        case "MatMul" if len(shape) == 2:
            return Matrix()
        case "Gemm" if len(shape) == 2:
            is_plain = not node.attributes.get("transA") and node.attributes.get("alpha", 1.0) == 1.0
            return Matrix(is_transposed=bool(node.attributes.get("transB"))) if is_plain else None
        case "Conv" if len(shape) > 2:
            return _convolution(node, [size for size in shape if size is not None])
    return None


def _convolution(node: Node, shape: Sequence[int]) -> Convolution | None:
    axes = len(shape) - 2
    pads, said = _numbers(node, "pads", 2 * axes, 0), node.attributes.get("auto_pad", "NOTSET")
    strides, dilations = _numbers(node, "strides", axes, 1), _numbers(node, "dilations", axes, 1)
    groups = node.attributes.get("group", 1)
    if said not in ("NOTSET", "VALID", b"NOTSET", b"VALID") or not isinstance(groups, int) or shape[0] % max(groups, 1):
        return None
    if pads is None or strides is None or dilations is None or groups < 1:
        return None
    return Convolution(window=tuple(shape[2:]), strides=strides, pads=pads, dilations=dilations, groups=groups)


def _numbers(node: Node, name: str, count: int, usual: int) -> tuple[int, ...] | None:
    """A list of whole numbers that an attribute holds; None where it holds another number of them."""
    held = node.attributes.get(name)
    if held is None:
        return (usual,) * count
    if not isinstance(held, list | tuple) or len(held) != count:
        return None
    found = tuple(one for one in held if isinstance(one, int) and one >= 0)
    return found if len(found) == count else None


def is_own_constant(graph: Graph, value: int) -> bool:
    """Whether a value is a constant of the main graph that one operand alone reads."""
    held = graph.values[value]
    is_source = graph.nodes[held.producer].kind is Kind.SOURCE and not held.scope
    return is_source and value in graph.constants and len(graph.uses[value]) == 1
