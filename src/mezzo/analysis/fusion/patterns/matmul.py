"""Fusion patterns of matmuls: bias, activation, scale, transposed operands."""

from collections.abc import Sequence

from mezzo.analysis.fusion import activations
from mezzo.analysis.fusion.chains import (
    Stage,
    adds_constant,
    chain,
    is_along,
    moves_by_constant,
)
from mezzo.analysis.fusion.selector import Free, shape
from mezzo.analysis.fusion.unit import Constraint, FusedKernel, Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_ORT = "ONNX Runtime 1.31.1"
_OPENVINO = "OpenVINO 2026.4.1"
_TENSORRT = "TensorRT 10.15"
# As for convolutions: a Cast inside prevents the fusion; a Cast after a BF16 kernel is separate.
_BF16 = Constraint(
    formats=frozenset({DType.BFLOAT16}), writes_free=frozenset({DType.INT8, DType.UINT8})
)
_HALVES = Constraint(formats=HALF_FORMATS)
_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})
_ROUNDS = 2  # maximum number of consecutive scales


def _is_product(view: FusionView, node: Node) -> bool:
    return view.op(node) in ("MatMul", "Gemm")


def _is_weighted(view: FusionView, node: Node) -> bool:
    return _is_product(view, node) and view.is_constant(node.inputs[1])


def _is_gemm(view: FusionView, node: Node) -> bool:
    return view.op(node) == "Gemm"


def _is_flat(view: FusionView, node: Node) -> bool:
    """Whether ONNX Runtime rewrites a MatMul as Gemm: the right operand is a matrix, the left has
    rank 2 or a static shape.
    """
    left, right = view.shape(node, 0), view.shape(node, 1)
    if view.op(node) != "MatMul" or right is None or len(right) != 2 or None in right:
        return False
    if left is None:
        return view.has_fixed_inputs
    return len(left) == 2 or (len(left) > 2 and (view.has_fixed_inputs or None not in left))


def _adds_bias(view: FusionView, node: Node, last: Node) -> bool:
    return adds_constant(view, node, last) and is_along(view, node, 1)


def _adds_gemm_bias(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node adds a bias with one number per column, which ONNX Runtime makes the Gemm's
    third operand.
    """
    right = view.shape(last, 1)
    for operand in range(2):
        sizes = view.shape(node, operand)
        if sizes is not None and view.is_constant(node.inputs[operand]) and right is not None:
            return (
                view.function(node) is Function.ADD
                and len(sizes) in (1, 2)
                and sizes[-1] == right[-1]
                and sizes[:-1] in ((), (1,))
            )
    return False


def _moves_columns(view: FusionView, node: Node, last: Node) -> bool:
    return moves_by_constant(view, node, last) and is_along(view, node, 1)


def _gemm(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches MatMul with a bias, and an activation if no Reshape is needed in between."""
    if not view.is_float(seed) or not _is_flat(view, seed):
        return None
    bias_add = view.sole_reader(seed)
    if bias_add is None or not free(bias_add.id) or not _adds_gemm_bias(view, bias_add, seed):
        return None
    activation = view.sole_reader(bias_add)
    left = view.shape(seed, 0)
    if (
        activation is None
        or left is None
        or len(left) != 2
        or view.op(activation) not in _ORT_ACTIVATIONS
    ):
        return [seed, bias_add]
    return [seed, bias_add, activation] if free(activation.id) else [seed, bias_add]


def _scaled(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches MatMul with scalar scales of an operand or the result, and operands transposed in
    their last two axes.
    """
    if view.op(seed) != "MatMul" or not view.is_float(seed):
        return None
    nodes = [seed]
    for operand in range(2):
        reader, place = seed, operand
        for _ in range(_ROUNDS + 1):
            producer = view.maker(reader, place)
            if (
                producer is None
                or not free(producer.id)
                or view.sole_reader(producer) is not reader
            ):
                break
            scaled = _scaled_operand(view, producer)
            if scaled is None and not _swaps_last_axes(view, producer):
                break
            nodes.append(producer)
            reader, place = producer, scaled or 0
    last = seed
    for _ in range(_ROUNDS):
        scale = view.sole_reader(last)
        if scale is None or not free(scale.id) or _scaled_operand(view, scale) is None:
            break
        nodes.append(scale)
        last = scale
    return nodes


def _scaled_operand(view: FusionView, node: Node) -> int | None:
    """Index of the operand that a node multiplies or divides by a scalar; else None."""
    if view.function(node) not in _SCALING or len(node.inputs) != 2:
        return None
    if view.number(node, 1) is not None:
        return 0
    return (
        1 if view.function(node) is Function.MULTIPLY and view.number(node, 0) is not None else None
    )


def _swaps_last_axes(view: FusionView, node: Node) -> bool:
    order = view.integers(node, "perm")
    swapped = (*range(len(order) - 2), len(order) - 1, len(order) - 2)
    return view.op(node) == "Transpose" and len(order) >= 2 and order == swapped


_BIAS = Stage(test=_adds_bias)
_ORT_ACTIVATIONS = frozenset(
    {"Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh"}
)
_TENSORRT_ACTIVATIONS = frozenset(
    {"Gelu", "Relu", "Sigmoid", "Tanh", "gelu-erf", "gelu-tanh", "silu"}
)
_FUSED_MATMUL = "optimized graphs at level EXTENDED (FusedMatMul)"

PATTERNS = (
    Pattern(
        name="matmul",
        summary="a matrix product with a weight, bias, activation",
        kernels=(
            FusedKernel(
                target="onnxruntime-cpu",
                order=10,
                make=shape(_gemm),
                source="optimized graphs at level EXTENDED (Gemm, FusedGemm)",
                since=_ORT,
            ),
            FusedKernel(
                target="onnxruntime-cuda",
                order=10,
                make=shape(_gemm),
                source="documentation, Graph Optimizations (MatMul Add fusion)",
                since=_ORT,
                constraint=_HALVES,
            ),
            FusedKernel(
                target="openvino-cpu",
                order=30,
                make=chain(
                    (_BIAS, Stage(activations=activations.OPENVINO, test=_moves_columns, most=8)),
                    seeds=_is_weighted,
                ),
                source="runtime graphs: FullyConnected with original layers MatMul, Gelu",
                since=_OPENVINO,
                constraint=_BF16,
            ),
            FusedKernel(
                target="tensorrt",
                order=30,
                make=chain((_BIAS, Stage(activations=_TENSORRT_ACTIVATIONS)), seeds=_is_product),
                source=(
                    "documentation, Layer Fusion Catalog (PointWise fusion into matrix products)"
                ),
                since=_TENSORRT,
                constraint=_HALVES,
            ),
        ),
    ),
    Pattern(
        name="gemm-activation",
        summary="a Gemm with the activation that follows it",
        kernels=(
            FusedKernel(
                target="onnxruntime-cpu",
                order=11,
                make=chain((Stage(activations=_ORT_ACTIVATIONS),), seeds=_is_gemm),
                source="optimized graphs at level EXTENDED (FusedGemm)",
                since=_ORT,
            ),
        ),
    ),
    Pattern(
        name="matmul-scale",
        summary="a matrix product with one number that scales it, and transposed operands",
        kernels=tuple(
            FusedKernel(
                target=target,
                order=60,
                make=shape(_scaled),
                source=source,
                since=_ORT,
                constraint=constraint,
            )
            for target, source, constraint in (
                ("onnxruntime-cpu", _FUSED_MATMUL, Constraint()),
                ("onnxruntime-cuda", "kernel FusedMatMul in docs/OperatorKernels.md", _HALVES),
            )
        ),
    ),
)
