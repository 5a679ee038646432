"""Kernel epilogues: bias, scale, activation, residual addition, activation after a matmul or
convolution.

The stages of a target's fusion list what its kernel can include, in order; `follow` extends a
kernel along sole readers as far as possible. A value with a second reader ends the epilogue, as it
has to be written to memory.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from mezzo.analysis.fusion.composites import composites_of
from mezzo.analysis.fusion.selector import Free, Make, shape
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function
from mezzo.tables.fusions import Fusion, Stage, Step

_ADDING = frozenset({Function.ADD, Function.SUBTRACT})
_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})
_RANK_OF_IMAGES = 4  # batch, channels, height, width


def follow(view: FusionView, seed: Node, stages: Sequence[Stage], free: Free) -> list[Node]:
    """The seed and its epilogue, in order. A stage without a match is skipped."""
    nodes, last = [seed], seed
    for stage in stages:
        for _ in range(stage.most):
            step = next(_steps(view, last, stage, free), None)
            if step is None:
                break
            nodes += step
            last = step[-1]
    return nodes


def _steps(view: FusionView, last: Node, stage: Stage, free: Free) -> Iterator[list[Node]]:
    """Candidates for the next operator: one node, or a composite with its last node last."""
    value = last.outputs[0] if last.outputs else None
    if value is None:
        return
    readers = {reader.id for reader, _ in view.readers(value)}
    for composite in composites_of(view).get(view.origin(value), ()):
        inside = composite.nodes
        if composite.name in stage.activations and readers <= inside and all(map(free, inside)):
            yield [
                *(view.graph.nodes[node] for node in sorted(inside - {composite.end.id})),
                composite.end,
            ]
    reader = view.sole_reader(last)
    if reader is None or not free(reader.id):
        return
    is_activation = view.op(reader) in stage.activations and _is_unary(view, reader)
    if is_activation or _is_step(view, stage, reader, last):
        yield [reader]


def _is_step(view: FusionView, stage: Stage, node: Node, last: Node) -> bool:
    """Whether a node that reads `last` is the step of a stage."""
    if stage.step is None or not _STEPS[stage.step](view, node, last):
        return False
    sizes = view.shape(node, 0) or view.shape(node, 1) or ()
    channels = sizes[1] if len(sizes) == _RANK_OF_IMAGES else None
    block = stage.channel_block
    return block is None or (channels is not None and channels % block == 0)


def _is_unary(view: FusionView, node: Node) -> bool:
    """Whether all operands but the first are constants, as kernels require."""
    return all(value is None or view.is_constant(value) for value in node.inputs[1:])


def _adds_constant(view: FusionView, node: Node) -> bool:
    """Whether a node adds or subtracts a constant: a bias of any shape."""
    return view.function(node) in _ADDING and _reads_constant(view, node)


def _scales_by_constant(view: FusionView, node: Node) -> bool:
    """Whether a node multiplies or divides by a constant."""
    is_divisor = view.function(node) is not Function.DIVIDE or view.is_constant(node.inputs[1])
    return view.function(node) in _SCALING and is_divisor and _reads_constant(view, node)


def _reads_constant(view: FusionView, node: Node) -> bool:
    return len(node.inputs) == 2 and any(view.is_constant(value) for value in node.inputs)


def _normalizes_batch(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node is a BatchNormalization with constant statistics."""
    is_norm = view.op(node) == "BatchNormalization" and all(map(view.is_constant, node.inputs[1:]))
    return (
        is_norm
        and view.same(node.inputs[0], last.outputs[0])
        and not node.attributes.get("training_mode")
    )


def _adds_bias(view: FusionView, node: Node, last: Node) -> bool:
    return _adds_constant(view, node) and _is_along(view, node, 1)


def _scales_columns(view: FusionView, node: Node, last: Node) -> bool:
    is_affine = _adds_constant(view, node) or _scales_by_constant(view, node)
    return is_affine and _is_along(view, node, 1)


def _scales_channels(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node is BatchNormalization, or adds or multiplies by a per-channel constant, which
    is folded into the weights.
    """
    if _normalizes_batch(view, node, last):
        return True
    value = last.outputs[0]
    sizes = None if value is None else view.graph.shapes.get(value)
    is_affine = _adds_constant(view, node) or _scales_by_constant(view, node)
    return sizes is not None and is_affine and _is_along(view, node, len(sizes) - 1)


def _adds_residual(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node adds another value of the same shape, as far as shapes are known."""
    is_sum = view.function(node) is Function.ADD or view.op(node) == "Sum"
    if not is_sum or len(node.inputs) != 2 or view.same(*node.inputs):
        return False
    if any(value is None or view.is_constant(value) for value in node.inputs):
        return False
    left, right = view.shape(node, 0), view.shape(node, 1)
    if left is None or right is None:
        return True
    return len(left) == len(right) and sizes_may_agree(left, right)


def sizes_may_agree(left: Sequence[int | None], right: Sequence[int | None]) -> bool:
    """Whether two shapes of one rank are equal as far as they are known."""
    pairs = zip(left, right, strict=True)
    return all(a is None or b is None or a == b for a, b in pairs)


def _is_along(view: FusionView, node: Node, axis_from_end: int) -> bool:
    """Whether a node's constant is a scalar or varies along one axis only, counted from the end, 1
    being the last. False if its shape is unknown.
    """
    for operand, value in enumerate(node.inputs[:2]):
        if value is not None and view.is_constant(value):
            sizes = view.shape(node, operand)
            return sizes is not None and all(
                size == 1 for place, size in enumerate(reversed(sizes), 1) if place != axis_from_end
            )
    return False


# Whether a node is a step after another: (view, the node, the node it reads).
_STEPS: Mapping[Step, Callable[[FusionView, Node, Node], bool]] = MappingProxyType(
    {
        Step.BIAS: _adds_bias,
        Step.SCALE_COLUMNS: _scales_columns,
        Step.SCALE_CHANNELS: _scales_channels,
        Step.RESIDUAL: _adds_residual,
    }
)


def chain(fusion: Fusion) -> Make:
    """A selector for an operator of a fusion with the longest epilogue that matches."""
    return shape(partial(_with_epilogue, fusion))


def weighted_chain(fusion: Fusion) -> Make:
    """The same for an operator whose second operand is a constant."""

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        nodes = _with_epilogue(fusion, view, seed, free)
        return nodes if nodes and view.is_constant(seed.inputs[1]) else None

    return shape(match)


def _with_epilogue(
    fusion: Fusion, view: FusionView, seed: Node, free: Free
) -> Sequence[Node] | None:
    if not view.is_float(seed) or view.op(seed) not in fusion.operators:
        return None
    # max returns the first of the longest, so the choice is deterministic.
    return max((follow(view, seed, stages, free) for stages in fusion.epilogues), key=len)
