"""Layouts of a graph's matmuls and convolutions, and constants with a single reader."""

from collections.abc import Sequence

from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.quantize.arithmetic.products import Convolution, Matrix, Product


def layout_of(graph: Graph, node: Node) -> Product | None:
    """The layout of a matmul or convolution; None for other operators or attributes."""
    if len(node.inputs) < 2 or node.inputs[1] is None:
        return None
    shape = graph.shapes.get(node.inputs[1])
    if shape is None or any(not isinstance(size, int) or size < 1 for size in shape):
        return None
    sizes = [size for size in shape if size is not None]
    match node.op:
        case "MatMul" | "mm" if len(sizes) == 2:
            return Matrix()
        case "linear" if len(sizes) == 2:
            return Matrix(is_transposed=True)
        case "Gemm" | "addmm" if len(sizes) == 2:
            is_plain = (
                not node.attributes.get("transA") and node.attributes.get("alpha", 1.0) == 1.0
            )
            return Matrix(is_transposed=bool(node.attributes.get("transB"))) if is_plain else None
        case "Conv" | "conv1d" | "conv2d" | "convolution" if _is_of_batches(graph, node, sizes):
            return _convolution(node, sizes)
    return None


def weight_of(graph: Graph, node: Node) -> tuple[int, Product] | None:
    """The weight of a matmul or convolution, and its layout; None as in `layout_of`. A matrix that
    is transposed for one matmul is the weight itself.
    """
    product, operand = layout_of(graph, node), node.operand(1)
    if product is None or operand is None:
        return None
    maker = graph.producer(operand)
    is_transposed = maker.op == "permute" and maker.attributes.get("perm") == (1, 0)
    source = maker.operand(0) if is_transposed and len(graph.uses[operand]) == 1 else None
    if source is None or not isinstance(product, Matrix):
        return operand, product
    return source, Matrix(is_transposed=not product.is_transposed)


def _is_of_batches(graph: Graph, node: Node, shape: Sequence[int]) -> bool:
    """Whether a convolution's input has a batch axis, which PyTorch's may lack."""
    data = node.inputs[0]
    data_shape = None if data is None else graph.shapes.get(data)
    return len(shape) > 2 and (data_shape is None or len(data_shape) == len(shape))


def _convolution(node: Node, shape: Sequence[int]) -> Convolution | None:
    axes = len(shape) - 2
    pads, auto_pad = _numbers(node, "pads", 2 * axes, 0), node.attributes.get("auto_pad", "NOTSET")
    strides, dilations = _numbers(node, "strides", axes, 1), _numbers(node, "dilations", axes, 1)
    groups = node.attributes.get("group", 1)
    if (
        auto_pad not in ("NOTSET", "VALID", b"NOTSET", b"VALID")
        or not isinstance(groups, int)
        or shape[0] % max(groups, 1)
        or node.attributes.get("transposed")
    ):
        return None
    if pads is None or strides is None or dilations is None or groups < 1:
        return None
    return Convolution(
        window=tuple(shape[2:]), strides=strides, pads=pads, dilations=dilations, groups=groups
    )


def _numbers(node: Node, name: str, count: int, usual: int) -> tuple[int, ...] | None:
    """An attribute of `count` nonnegative integers, each `usual` if absent; None if invalid. In
    PyTorch one number may stand for all axes.
    """
    attribute = node.attributes.get(name)
    if attribute is None:
        return (usual,) * count
    if isinstance(attribute, tuple) and len({*attribute}) == 1:
        attribute = attribute[:1] * count
    if not isinstance(attribute, list | tuple) or len(attribute) != count:
        return None
    numbers = tuple(number for number in attribute if isinstance(number, int) and number >= 0)
    return numbers if len(numbers) == count else None


def is_own_constant(graph: Graph, value: int) -> bool:
    """Whether a value is a constant of the main graph with exactly one reader, and its elements
    are no other one's.
    """
    record = graph.values[value]
    is_source = graph.nodes[record.producer].kind is Kind.SOURCE and not record.scope
    return (
        is_source
        and value not in graph.shared
        and value in graph.constants
        and len(graph.uses[value]) == 1
    )
