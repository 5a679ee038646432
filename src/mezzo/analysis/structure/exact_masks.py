"""Masks that drown in a wide format what they are added to and drown it in FP32, too, so that a softmax cannot tell.

Let every number of a constant be zero or one c of at least 2^29, and let it reach a softmax alone, through sums,
selections and movements, or times what is nought or one. Then on its way there

- a number with no c in it is what it would be without the mask;
- a number with c in it counts for nothing beside one without, as exp(-c) is zero in either format;
- in a row that holds c everywhere, a score that is added to c is lost in both: half a step of FP32 at 2^29 is 32, and
  scores are no larger;
- c past the range is stored as the largest number, of which two pass the range as two of FP32's largest do: a row of
  nothing but such sums is NaN in both.

What holds graded numbers, or smaller ones, is left to the rules that deny: of a score FP32 keeps beside those what a
coarser format drowns. `tests/onnx/test_exact_masks.py` runs spellings of masks over scores and rows.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from mezzo.analysis.structure import StructureRule, View, Ways
from mezzo.formats.dtypes import FORMATS, HIGH, QUANTIZED, DType, integer_span
from mezzo.ir.graph import ConstantFacts
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Cost, Function

_LARGEST_SCORE = 32.0
_LEAST = 2 * _LARGEST_SCORE / FORMATS[HIGH].eps
_COMBINES = frozenset(
    {Function.SELECT, Function.ADD, Function.SUBTRACT, Function.NEGATE, Function.MAXIMUM, Function.MINIMUM}
)
_PICKS = frozenset({Function.SELECT, Function.MAXIMUM, Function.MINIMUM})
_MOST_BEHIND = 32  # operators between a factor and the Cast that makes it

# What is found here keeps other rules from denying nodes; see `exact_masks`.
RULES: tuple[StructureRule, ...] = ()


def exact_masks(view: View, may_end: Callable[[Node], bool]) -> frozenset[int]:
    """Constants, by value id, for which every softmax that they reach answers in the format as it does in FP32; none in
    a narrow format. `may_end`: whether a softmax is one that the caller asks about.
    """
    graph = view.graph
    if not view.low.is_wide or view.low.dtype in QUANTIZED:  # of those the scale decides how far
        return frozenset()
    truths = _Truths(view)
    ways = Ways(
        view,
        passes=lambda node: _hands_on(view, node) or truths.is_factor(node),
        ends=lambda node: view.function(node) is Function.SOFTMAX and may_end(node),
    )
    return frozenset(
        value
        for value in graph.constants
        if graph.nodes[graph.values[value].producer].kind is not Kind.INPUT
        and ways.all_end([graph.nodes[use.node] for use in graph.uses[value]])
        and _drowns(graph.constants[value])  # last, as looking at numbers takes longest
    )


def held_together(view: View, masks: Iterable[int]) -> Iterator[tuple[Node, Node]]:
    """Who makes and who reads what masks are in, up to the softmax: a mask that is stored within bounds is so for both,
    and what FP32 makes of it as it came would be infinite in the format. Linear over all masks.
    """
    graph, seen = view.graph, set[int]()
    queue: list[Node] = []
    for value in masks:
        maker, readers = graph.nodes[graph.values[value].producer], [graph.nodes[use.node] for use in graph.uses[value]]
        queue += readers
        if maker.kind is Kind.OP:  # every reader of a weight has a copy of its own
            yield from ((maker, reader) for reader in readers)
    while queue:
        node = queue.pop()
        if node.id not in seen and view.function(node) is not Function.SOFTMAX:
            seen.add(node.id)
            readers = view.readers(node)
            queue += readers
            yield from ((node, reader) for reader in readers)


def _drowns(facts: ConstantFacts) -> bool:
    """Whether every number is zero or one, of one sign, that leaves nothing of a score."""
    is_one = facts.smallest == facts.largest and not (facts.has_infinity or facts.has_nan)
    return is_one and facts.largest >= _LEAST and not facts.minimum < 0.0 < facts.maximum


def _hands_on(view: View, node: Node) -> bool:
    return view.function(node) in _COMBINES or _moves(view, node)


def _moves(view: View, node: Node) -> bool:
    row = view.rows[node.id]
    return row is not None and row.keeps_values and row.cost is Cost.MOVEMENT


@dataclass(frozen=True, slots=True)
class _Held:
    """What a value may hold, of -1, 0 and 1. `is_sure`: not only because whoever feeds whole numbers means 0 and 1."""

    numbers: frozenset[int]
    is_sure: bool = True


_TRUTHS = frozenset({0, 1})
_SIGNS = frozenset({-1, 0, 1})


@dataclass(frozen=True, slots=True)
class _Truths:
    """Which values are noughts and ones by the way they are made. Each is looked at once."""

    view: View
    memo: dict[int, _Held | None] = field(default_factory=dict)

    def is_factor(self, node: Node) -> bool:
        """Whether a node is a product whose one operand is noughts and ones, up to their sign."""
        if self.view.function(node) is not Function.MULTIPLY:
            return False
        held = [self.of(value) for value in node.inputs if value is not None]
        return any(one is not None and one.is_sure for one in held)

    def of(self, value: int, depth: int = 0) -> _Held | None:
        """What a value may hold; None where that is unknown, or more."""
        if value not in self.memo:
            self.memo[value] = None if depth > _MOST_BEHIND else self._found(value, depth + 1)
        return self.memo[value]

    def _found(self, value: int, depth: int) -> _Held | None:
        graph = self.view.graph
        maker, facts = graph.nodes[graph.values[value].producer], graph.constants.get(value)
        if maker.kind is Kind.INPUT:
            return None
        if facts is not None:
            return _held_by(facts)
        if maker.kind is Kind.SOURCE and maker.inputs and maker.inputs[0] is not None:
            return _cast_from(graph.values[maker.inputs[0]].dtype)
        if maker.kind is not Kind.OP:
            return None
        roles = zip(maker.inputs, maker.signature.inputs, strict=True)
        operands = [self.of(number, depth) for number, role in roles if number is not None and role is Role.GROUP]
        held = [one for one in operands if one is not None]
        return self._made(maker, held) if held and len(held) == len(operands) else None

    def _made(self, node: Node, operands: list[_Held]) -> _Held | None:
        function, first, is_sure = self.view.function(node), operands[0], all(one.is_sure for one in operands)
        if function is Function.MULTIPLY and len(operands) == 2:
            return _Held(frozenset(a * b for a in first.numbers for b in operands[1].numbers), is_sure)
        if function is Function.SUBTRACT and len(operands) == 2:
            # Whoever takes a whole number off 1, or 1 off it, means 0 and 1 by it.
            is_meant = frozenset({1}) in [one.numbers for one in operands]
            numbers = frozenset(a - b for a in first.numbers for b in operands[1].numbers)
            return _Held(numbers, is_sure or is_meant) if numbers <= _SIGNS else None
        if function in _PICKS:
            return _Held(_united(operands), is_sure)
        # What a movement fills up with, where no operand says, is zero.
        return _Held(_united(operands) | {0}, is_sure) if _moves(self.view, node) else None


def _united(operands: Iterable[_Held]) -> frozenset[int]:
    return frozenset().union(*(one.numbers for one in operands))


def _held_by(facts: ConstantFacts) -> _Held | None:
    if facts.values is not None and _SIGNS.issuperset(facts.values):
        return _Held(frozenset(map(int, facts.values)))
    is_truth = facts.is_whole and facts.largest <= 1.0 and not (facts.has_infinity or facts.has_nan)
    return _Held(_SIGNS if facts.has_negative else _TRUTHS) if is_truth else None


def _cast_from(dtype: DType | None) -> _Held | None:
    if dtype is DType.BOOL:
        return _Held(_TRUTHS)
    return None if dtype is None or integer_span(dtype) is None else _Held(_TRUTHS, is_sure=False)
