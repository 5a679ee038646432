"""Attention masks that absorb scores in FP32 as well as in a wide low-precision format, so that
softmax is unaffected.

Let all elements of a constant be 0 or one number c of at least 2^29, and let it reach only
softmaxes, or attention in one operator, through sums, selections, data movement, or products with 0
and 1. Then before the softmax

- an element without c is the same as without the mask;
- an element with c has no weight next to one without, as exp(-c) is zero in both formats;
- in a row of only c, a score added to c is lost in both: half a step of FP32 at 2^29 is 32, and
  scores are no larger;
- c beyond the range is stored as the largest finite number; two of these overflow as two of FP32's
  largest do, and a row of only such sums is NaN in both.

Graded or smaller masks are left to the rules that deny low precision: next to those, FP32 keeps
bits of a score that a coarser format loses. `tests/onnx/test_exact_masks.py` runs mask
decompositions over scores and rows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from mezzo.analysis.structure import StructureRule, StructureView, Ways
from mezzo.formats.dtypes import FORMATS, HIGH, QUANTIZED, DType, integer_span
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.facts import Function, Transfer

_LARGEST_SCORE = 32.0
_LEAST = 2 * _LARGEST_SCORE / FORMATS[HIGH].eps
_COMBINES = frozenset(
    {
        Function.SELECT,
        Function.ADD,
        Function.SUBTRACT,
        Function.NEGATE,
        Function.MAXIMUM,
        Function.MINIMUM,
    }
)
_PICKS = frozenset({Function.SELECT, Function.MAXIMUM, Function.MINIMUM})
_MOST_BEHIND = 32  # operators between a factor and the Cast that produces it

# Empty: this module exempts nodes from other rules; see `exact_masks`.
RULES: tuple[StructureRule, ...] = ()


def exact_masks(view: StructureView, may_end: Callable[[Node], bool]) -> frozenset[int]:
    """Mask constants, by value id, for which every softmax they reach gives the same result as in
    FP32; none in a narrow format. `may_end`: whether a softmax counts as an end of a path.
    """
    graph = view.graph
    # Of quantized formats the scale sets the range.
    if not view.low.is_wide or view.low.dtype in QUANTIZED:
        return frozenset()
    truths = _Truths(view)
    ways = Ways(
        view,
        passes=lambda node: (
            view.function(node) in _COMBINES or view.moves(node) or truths.is_factor(node)
        ),
        ends=lambda node: takes_masks(view, node) and may_end(node),
    )
    return frozenset(
        value
        for value in graph.constants
        if graph.producer(value).kind is not Kind.INPUT
        and ways.all_end(graph.readers(value))
        and _drowns(graph.constants[value])  # last, as it is the most expensive check
    )


def linked_by_masks(view: StructureView, masks: Iterable[int]) -> Iterator[tuple[Node, Node]]:
    """Pairs of producer and reader on the paths from masks to softmaxes, which need one precision:
    a clamped mask on one side and the original one on the other would become infinite. Linear over
    all masks.
    """
    graph, visited = view.graph, set[int]()
    queue: list[Node] = []
    for value in masks:
        maker, readers = graph.producer(value), graph.readers(value)
        queue += readers
        if maker.kind is Kind.OP:  # each reader of a weight can have its own copy
            yield from ((maker, reader) for reader in readers)
    while queue:
        node = queue.pop()
        if node.id not in visited and not takes_masks(view, node):
            visited.add(node.id)
            readers = view.readers(node)
            queue += readers
            yield from ((node, reader) for reader in readers)


def takes_masks(view: StructureView, node: Node) -> bool:
    """Whether masks end in a node: a softmax, or attention in one operator."""
    return view.function(node) is Function.SOFTMAX or view.transfer(node) is Transfer.ATTENTION


def _drowns(facts: ConstantFacts) -> bool:
    """Whether all elements are zero or one signed number large enough to absorb any score."""
    is_one = facts.smallest == facts.largest and not (facts.has_infinity or facts.has_nan)
    return is_one and facts.largest >= _LEAST and not facts.minimum < 0.0 < facts.maximum


@dataclass(frozen=True, slots=True)
class _Held:
    """Possible elements of a value, among -1, 0 and 1. `is_sure`: proven, not only assumed because
    integer inputs are usually 0 or 1.
    """

    numbers: frozenset[int]
    is_sure: bool = True


_TRUTHS = frozenset({0, 1})
_SIGNS = frozenset({-1, 0, 1})


@dataclass(frozen=True, slots=True)
class _Truths:
    """Values that contain only -1, 0 and 1 because of how they are computed. Cached per value."""

    view: StructureView
    memo: dict[int, _Held | None] = field(default_factory=dict)

    def is_factor(self, node: Node) -> bool:
        """Whether a node multiplies by 0 and 1, up to their sign."""
        if self.view.function(node) is not Function.MULTIPLY:
            return False
        contents = [self.of(value) for value in node.present_inputs]
        return any(content is not None and content.is_sure for content in contents)

    def of(self, value: int, depth: int = 0) -> _Held | None:
        """Possible elements of a value; None if unknown or not limited to -1, 0 and 1."""
        if value not in self.memo:
            self.memo[value] = None if depth > _MOST_BEHIND else self._found(value, depth + 1)
        return self.memo[value]

    def _found(self, value: int, depth: int) -> _Held | None:
        graph = self.view.graph
        maker, facts = graph.producer(value), graph.constants.get(value)
        if maker.kind is Kind.INPUT:
            return None
        if facts is not None:
            return _held_by(facts)
        if maker.kind is Kind.SOURCE and maker.inputs and maker.inputs[0] is not None:
            return _cast_from(graph.values[maker.inputs[0]].dtype)
        if maker.kind is not Kind.OP:
            return None
        operands = [self.of(number, depth) for number in maker.group_inputs]
        contents = [content for content in operands if content is not None]
        return self._made(maker, contents) if contents and len(contents) == len(operands) else None

    def _made(self, node: Node, operands: list[_Held]) -> _Held | None:
        function, first, is_sure = (
            self.view.function(node),
            operands[0],
            all(operand.is_sure for operand in operands),
        )
        if function is Function.MULTIPLY and len(operands) == 2:
            return _Held(
                frozenset(a * b for a in first.numbers for b in operands[1].numbers), is_sure
            )
        if function is Function.SUBTRACT and len(operands) == 2:
            # An integer m in 1 - m or m - 1 is a 0/1 mask.
            is_meant = frozenset({1}) in [operand.numbers for operand in operands]
            numbers = frozenset(a - b for a in first.numbers for b in operands[1].numbers)
            return _Held(numbers, is_sure or is_meant) if numbers <= _SIGNS else None
        if function in _PICKS:
            return _Held(_united(operands), is_sure)
        # Data movement pads with zero unless an operand says otherwise.
        return _Held(_united(operands) | {0}, is_sure) if self.view.moves(node) else None


def _united(operands: Iterable[_Held]) -> frozenset[int]:
    return frozenset().union(*(operand.numbers for operand in operands))


def _held_by(facts: ConstantFacts) -> _Held | None:
    if facts.values is not None and _SIGNS.issuperset(facts.values):
        return _Held(frozenset(map(int, facts.values)))
    is_truth = facts.is_whole and facts.largest <= 1.0 and not (facts.has_infinity or facts.has_nan)
    return _Held(_SIGNS if facts.has_negative else _TRUTHS) if is_truth else None


def _cast_from(dtype: DType | None) -> _Held | None:
    if dtype is DType.BOOL:
        return _Held(_TRUTHS)
    return None if dtype is None or integer_span(dtype) is None else _Held(_TRUTHS, is_sure=False)
