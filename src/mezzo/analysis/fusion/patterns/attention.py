"""Fusion patterns of decomposed attention: matmul, scale, mask, softmax, matmul, transposes."""

from collections.abc import Sequence
from typing import TypeAlias

from mezzo.analysis.fusion.selector import Free, whole
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})
_MOST_BETWEEN = 6  # scales and masks between the first matmul and the softmax
_HEADS_FIRST = (0, 2, 1, 3)
_RANK = 4  # batch, heads, rows, channels

Shape: TypeAlias = tuple[int | None, ...]


def _attention(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches attention around a softmax along the last axis."""
    if not _is_softmax(view, seed) or not _is_along_last(view, seed):
        return None
    nodes = [seed]
    scores: Node | None = seed
    for _ in range(_MOST_BETWEEN):
        scores = _scores(view, scores, free)
        if scores is None or view.op(scores) == "MatMul":
            break
        nodes.append(scores)
    output_matmul = view.sole_reader(seed)
    if scores is None or output_matmul is None or not free(output_matmul.id):
        return None
    if view.op(scores) != "MatMul" or view.op(output_matmul) != "MatMul":
        return None
    if not view.same(output_matmul.inputs[0], seed.outputs[0]):
        return None
    if any(view.is_constant(value) for value in (*scores.inputs, *output_matmul.inputs)):
        return None
    return [*nodes, scores, output_matmul]


def _scores(view: FusionView, reader: Node | None, free: Free) -> Node | None:
    """The producer of the scores before a scale, a mask or the softmax: a matmul, scale or mask
    with no other reader; else None.
    """
    if reader is None:
        return None
    operands = range(1) if view.function(reader) is Function.SOFTMAX else range(len(reader.inputs))
    for operand in operands:
        producer = view.sole_maker(reader, operand)
        if producer is None or not free(producer.id):
            continue
        if view.op(producer) == "MatMul" or _scales_or_masks(view, producer):
            return producer
    return None


def _scales_or_masks(view: FusionView, node: Node) -> bool:
    """Whether a node multiplies by a scalar or adds a mask."""
    function = view.function(node)
    if function in _SCALING:
        return any(view.number(node, operand) is not None for operand in range(len(node.inputs)))
    return function is Function.ADD


def _is_along_last(view: FusionView, node: Node) -> bool:
    axis = node.attributes.get("axis", -1)
    sizes = view.shape(node, 0)
    return axis == -1 or (sizes is not None and axis == len(sizes) - 1)


def _with_transposes(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches attention with the head transposes of its operands and result."""
    core = _attention(view, seed, free)
    if core is None or len(view.shape(seed, 0) or ()) not in (0, _RANK):
        return None
    nodes = list(core)
    for product in core[-2:]:
        for operand in range(2):
            producer = view.sole_maker(product, operand)
            if producer is not None and _swaps_heads(view, producer) and free(producer.id):
                nodes.append(producer)
    transpose = view.sole_reader(core[-1])
    if transpose is not None and _swaps_heads(view, transpose) and free(transpose.id):
        nodes.append(transpose)
    return nodes


def _swaps_heads(view: FusionView, node: Node) -> bool:
    """Whether a node swaps heads and rows; transposes that also transpose the keys do not count."""
    return view.op(node) == "Transpose" and view.integers(node, "perm") == _HEADS_FIRST


def _alone(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    return [seed] if _is_softmax(view, seed) else None


def _is_softmax(view: FusionView, node: Node) -> bool:
    return view.function(node) is Function.SOFTMAX and view.is_float(node)


def _masked_softmax(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
    """Matches a softmax and the addition before it, for shapes that fit BiasSoftmax."""
    if not _is_softmax(view, seed) or not _is_along_last(view, seed):
        return None
    mask_add = view.sole_maker(seed, 0)
    if mask_add is None or view.function(mask_add) is not Function.ADD or not free(mask_add.id):
        return None
    fits = _repeats_in_one_piece(view.shape(mask_add, 0), view.shape(mask_add, 1))
    return [seed, mask_add] if fits else None


def _repeats_in_one_piece(left: Shape | None, right: Shape | None) -> bool:
    """Whether one operand is broadcast along leading axes only and known in all others: a mask of
    (1, 1, rows, columns) is, one of (batch, 1, rows, columns) is not.
    """
    return any(
        small is not None
        and large is not None
        and len(small) == len(large)
        and _is_tail(small, large)
        for small, large in ((left, right), (right, left))
    )


def _is_tail(small: Shape, large: Shape) -> bool:
    start = next((axis for axis, size in enumerate(small) if size != 1), len(small))
    pairs = zip(small[start:], large[start:], strict=True)
    return all(size is not None and repeated in (None, size) for size, repeated in pairs)


PATTERNS = (
    Pattern(
        name="attention",
        summary="product, scale, mask, softmax, product",
        forms={
            "": whole(_attention),
            "with-transposes": whole(_with_transposes),
        },
    ),
    Pattern(
        name="bias-softmax",
        summary="a sum and the softmax of it",
        forms={"": whole(_masked_softmax)},
    ),
    Pattern(
        name="softmax",
        summary="a softmax in one operator, which computes in FP32 inside",
        forms={"": whole(_alone)},
    ),
)
