"""A kernel with what it does to its result before it writes it: bias, scale, activation, residual sum, activation.

`Epilogue` says what one target's kernel takes, in order; `follow` walks from the operator that computes along its only
readers as far as that goes. A reader that somebody else reads beside it ends the walk, as its value has to be written.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from mezzo.analysis.fusion.composites import composites_of
from mezzo.analysis.fusion.selector import Free, Make, shape
from mezzo.analysis.fusion.view import View
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Function

_ADDING = frozenset({Function.ADD, Function.SUBTRACT})
_SCALING = frozenset({Function.MULTIPLY, Function.DIVIDE})

# A question about a node that would join behind another: (view, the node, the node it reads).
Test = Callable[[View, Node, Node], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One kind of thing that may follow. `most`: how many of them, one after the other.

    `activations` name operators, and composites such as "gelu-erf"; `test` asks of other operators.
    """

    activations: frozenset[str] = frozenset()
    test: Test | None = None
    most: int = 1


def follow(view: View, seed: Node, stages: Sequence[Stage], free: Free) -> list[Node]:
    """The seed and what follows it inside the kernel, in order. A stage that finds nothing is passed over."""
    nodes, last = [seed], seed
    for stage in stages:
        for _ in range(stage.most):
            step = next(_steps(view, last, stage, free), None)
            if step is None:
                break
            nodes += step
            last = step[-1]
    return nodes


def _steps(view: View, last: Node, stage: Stage, free: Free) -> Iterator[list[Node]]:
    """What may come next: one operator, or a composite with its end last."""
    value = last.outputs[0] if last.outputs else None
    if value is None:
        return
    readers = {reader.id for reader, _ in view.readers(value)}
    for composite in composites_of(view).get(view.origin(value), ()):
        inside = composite.nodes
        if composite.name in stage.activations and readers <= inside and all(map(free, inside)):
            yield [*(view.graph.nodes[node] for node in sorted(inside - {composite.end.id})), composite.end]
    reader = view.sole_reader(last)
    if reader is None or not free(reader.id):
        return
    is_activation = view.op(reader) in stage.activations and _is_unary(view, reader)
    if is_activation or (stage.test is not None and stage.test(view, reader, last)):
        yield [reader]


def _is_unary(view: View, node: Node) -> bool:
    """Whether all operands but the first are constants, as a kernel wants an activation's bounds and slopes."""
    return all(value is None or view.is_constant(value) for value in node.inputs[1:])


def adds_constant(view: View, node: Node, last: Node) -> bool:
    """A constant added or taken away: a bias of any shape."""
    return view.function(node) in _ADDING and _reads_constant(view, node)


def scales_by_constant(view: View, node: Node, last: Node) -> bool:
    """A product with a constant, or a quotient by one."""
    is_divisor = view.function(node) is not Function.DIVIDE or view.is_constant(node.inputs[1])
    return view.function(node) in _SCALING and is_divisor and _reads_constant(view, node)


def moves_by_constant(view: View, node: Node, last: Node) -> bool:
    """A sum or a product with a constant."""
    return adds_constant(view, node, last) or scales_by_constant(view, node, last)


def normalizes_batch(view: View, node: Node, last: Node) -> bool:
    """A BatchNormalization with constant statistics, which is a scale and a shift per channel."""
    is_norm = view.op(node) == "BatchNormalization" and all(map(view.is_constant, node.inputs[1:]))
    return is_norm and view.same(node.inputs[0], last.outputs[0]) and not node.attributes.get("training_mode")


def adds_residual(view: View, node: Node, last: Node) -> bool:
    """A sum with another value of the same shape, as far as shapes are known; not with itself."""
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


def _reads_constant(view: View, node: Node) -> bool:
    return len(node.inputs) == 2 and any(view.is_constant(value) for value in node.inputs)


def is_along(view: View, node: Node, axis_from_end: int) -> bool:
    """Whether the constant that a node reads has one number, or some along one axis alone, counted from the end: 1 is
    the last. Where its shape is not known, it is not.
    """
    for operand, value in enumerate(node.inputs[:2]):
        if value is not None and view.is_constant(value):
            sizes = view.shape(node, operand)
            return sizes is not None and all(
                size == 1 for place, size in enumerate(reversed(sizes), 1) if place != axis_from_end
            )
    return False


def chain(*choices: Sequence[Stage], seeds: Callable[[View, Node], bool]) -> Make:
    """The selector of an operator and what follows it: of several lists of stages, the one that takes most."""

    def match(view: View, seed: Node, free: Free) -> Sequence[Node] | None:
        if not view.is_float(seed) or not seeds(view, seed):
            return None
        # The first of the longest, so that the choice does not hang on chance.
        return max((follow(view, seed, stages, free) for stages in choices), key=len)

    return shape(match)
