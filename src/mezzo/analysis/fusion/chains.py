"""Kernel epilogues: bias, scale, activation, residual addition, activation after a matmul or
convolution.

`Stage` lists what one target's kernel can fuse, in order; `follow` extends a kernel along sole
readers as far as possible. A value with a second reader ends the epilogue, as it has to be written
to memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mezzo.analysis.fusion.composites import composites_of
from mezzo.analysis.fusion.selector import Free, Make, shape
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_ADDING = frozenset({Function.ADD, Function.SUBTRACT})
_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})

# Predicate for fusing a node after another: (view, the node, the node it reads).
Test = Callable[[FusionView, Node, Node], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of an epilogue. `most`: maximum number of operators in it.

    `activations` names operators and composites such as "gelu-erf"; `test` checks other operators.
    """

    activations: frozenset[str] = frozenset()
    test: Test | None = None
    most: int = 1


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
    if is_activation or (stage.test is not None and stage.test(view, reader, last)):
        yield [reader]


def _is_unary(view: FusionView, node: Node) -> bool:
    """Whether all operands but the first are constants, as kernels require."""
    return all(value is None or view.is_constant(value) for value in node.inputs[1:])


def adds_constant(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node adds or subtracts a constant: a bias of any shape."""
    return view.function(node) in _ADDING and _reads_constant(view, node)


def scales_by_constant(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node multiplies or divides by a constant."""
    is_divisor = view.function(node) is not Function.DIVIDE or view.is_constant(node.inputs[1])
    return view.function(node) in _SCALING and is_divisor and _reads_constant(view, node)


def moves_by_constant(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node adds or multiplies by a constant."""
    return adds_constant(view, node, last) or scales_by_constant(view, node, last)


def normalizes_batch(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node is a BatchNormalization with constant statistics."""
    is_norm = view.op(node) == "BatchNormalization" and all(map(view.is_constant, node.inputs[1:]))
    return (
        is_norm
        and view.same(node.inputs[0], last.outputs[0])
        and not node.attributes.get("training_mode")
    )


def adds_residual(view: FusionView, node: Node, last: Node) -> bool:
    """Whether a node adds another value of the same shape, as far as shapes are known."""
    is_sum = view.function(node) is Function.ADD or view.op(node) == "Sum"
    if not is_sum or len(node.inputs) != 2 or view.same(*node.inputs):
        return False
    if any(value is None or view.is_constant(value) for value in node.inputs):
        return False
    left, right = view.shape(node, 0), view.shape(node, 1)
    if left is None or right is None:
        return True
    pairs = zip(left, right, strict=False)
    return len(left) == len(right) and all(a is None or b is None or a == b for a, b in pairs)


def _reads_constant(view: FusionView, node: Node) -> bool:
    return len(node.inputs) == 2 and any(view.is_constant(value) for value in node.inputs)


def is_along(view: FusionView, node: Node, axis_from_end: int) -> bool:
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


def chain(*choices: Sequence[Stage], seeds: Callable[[FusionView, Node], bool]) -> Make:
    """A selector for an operator with the longest epilogue that matches a list of stages."""

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        if not view.is_float(seed) or not seeds(view, seed):
            return None
        # max returns the first of the longest, so the choice is deterministic.
        return max((follow(view, seed, stages, free) for stages in choices), key=len)

    return shape(match)
