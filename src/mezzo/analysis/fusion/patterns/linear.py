"""Fusion patterns of matmuls and convolutions with what follows them: bias, BatchNormalization,
activation, residual addition, scale; and of transposed operands.
"""

from collections.abc import Sequence

from mezzo.analysis.fusion.chains import chain, weighted_chain
from mezzo.analysis.fusion.selector import Free, Make, shape, whole
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function
from mezzo.tables.fusions import Fusion

_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})
_ROUNDS = 2  # maximum number of consecutive scales


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


def _as_gemm(fusion: Fusion) -> Make:
    """Matches MatMul with a bias, and an activation if no Reshape is needed in between."""
    activations = {
        name for stages in fusion.epilogues for stage in stages for name in stage.activations
    }

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        if not view.is_float(seed) or not _is_flat(view, seed):
            return None
        bias_add = view.sole_reader(seed)
        if bias_add is None or not free(bias_add.id) or not _adds_gemm_bias(view, bias_add, seed):
            return None
        activation = view.sole_reader(bias_add)
        left = view.shape(seed, 0)
        is_matrix = left is not None and len(left) == 2
        if activation is None or not is_matrix or view.op(activation) not in activations:
            return [seed, bias_add]
        return [seed, bias_add, activation] if free(activation.id) else [seed, bias_add]

    return shape(match)


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
            producer = view.sole_maker(reader, place)
            if producer is None or not free(producer.id):
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


PATTERNS = (
    Pattern(
        name="convolution",
        summary=(
            "a convolution, BatchNormalization or scale and shift, activation, residual sum,"
            " activation"
        ),
        forms={"": chain},
    ),
    Pattern(
        name="matmul",
        summary="a matrix product with a weight, bias, activation",
        forms={"": chain, "weight": weighted_chain, "gemm": _as_gemm},
    ),
    Pattern(
        name="gemm-activation",
        summary="a Gemm with the activation that follows it",
        forms={"": chain},
    ),
    Pattern(
        name="matmul-scale",
        summary="a matrix product with one number that scales it, and transposed operands",
        forms={"": whole(_scaled)},
    ),
)
