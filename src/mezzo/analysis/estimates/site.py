"""What a law may ask of the graph: shapes, lengths, small constants, and which values are one value moved."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from mezzo.analysis.estimates.moments import LOST, MASKED, UNKNOWN, Moments
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import OpFacts, Transfer

# Open dimensions count as this long where numbers are summed along them.
OPEN_LENGTH = 256
# Positions along an open dimension reach this far: the context of a language model, seconds of sound.
OPEN_POSITIONS = 4096

Shape = tuple[int | None, ...]
Entries = tuple[int | None, ...]


class Axis(NamedTuple):
    """Along which axis a loop takes a value apart, or puts one together. `has_batches`: within each of a batch."""

    loop: int
    place: int
    leaves: bool
    has_batches: bool


@dataclass(kw_only=True)
class Site:
    """A graph under estimation. `tolerance`: the share of its worth that an output may be off by. `held` are the
    estimates by value id; laws read it, the walk writes it.

    `transfers` are the laws by node id, `made_by` those that make the values, by value id, None where there is none.
    `origin`: the value of which a value is the same numbers moved, itself elsewhere; `kept`: in their order, too.
    `reduced`: of a value that an axis was reduced to, the law that did it and the value reduced, each seen through
    moves. `sums`: sums of two that are not recognised as anything else.
    """

    graph: Graph
    rows: Sequence[OpFacts | None]
    held: list[Moments]
    origin: list[int]
    kept: list[int]
    tolerance: float
    reduced: dict[int, tuple[Transfer, int]] = field(default_factory=dict)
    tangents: dict[int, Mapping[int, float]] = field(
        default_factory=dict
    )  # see mezzo.analysis.estimates.patterns.tangents
    clamped: set[int] = field(default_factory=set)  # constants of which nothing follows
    masks: frozenset[int] = frozenset()  # constants that hide what they are added to
    derived: dict[int, Shape] = field(default_factory=dict)  # see mezzo.analysis.estimates.shapes
    counts: dict[int, Entries] = field(default_factory=dict)  # see mezzo.analysis.estimates.counts
    worked_out: set[int] = field(default_factory=set)  # values that either of them ever had
    trips: dict[int, int] = field(default_factory=dict)  # by loop: how often it runs, where that is known
    scanned: dict[int, Axis] = field(default_factory=dict)  # by tie that hands slices into a body or out of it
    sums: set[int] = field(default_factory=set)
    chains: dict[int, float] = field(default_factory=dict)  # see mezzo.analysis.estimates.patterns.running_totals
    continued: set[int] = field(default_factory=set)  # links of chains that another link follows
    gated: dict[int, int] = field(default_factory=dict)  # see mezzo.analysis.estimates.patterns.gates
    inflated: dict[int, float] = field(default_factory=dict)  # see mezzo.analysis.estimates.evidence
    transfers: Sequence[Transfer | None] = field(init=False)
    made_by: Sequence[Transfer | None] = field(init=False)
    _terms: dict[int, float] = field(default_factory=dict)  # by node: how many numbers it sums up for one

    def __post_init__(self) -> None:
        self.transfers = transfers = [None if row is None else row.transfer for row in self.rows]
        self.made_by = [transfers[node] for node in self.graph.columns.value_producer.tolist()]

    def transfer(self, node: Node) -> Transfer | None:
        return self.transfers[node.id]

    @cached_property
    def shapeless(self) -> Set[int]:
        """Values of which the front end tells no shape."""
        return frozenset(range(len(self.graph.values))).difference(self.graph.shapes)

    def shape(self, value: int | None) -> Shape | None:
        """Shape of a value as far as it is known: what the front end tells, else what the walk derived."""
        if value is None:
            return None
        derived = self.derived.get(value)
        return self.graph.shapes.get(value) if derived is None else derived

    def constant(self, value: int | None) -> ConstantFacts | None:
        """Facts of a floating constant, seen through moves and casts."""
        if value is None:
            return None
        facts = self.graph.constants.get(self.origin[value])
        return self.graph.wide_constants.get(self.origin[value]) if facts is None else facts

    def number(self, value: int | None) -> float | None:
        """The one number that a constant holds."""
        if value is None:
            return None
        x = self.held[value]
        return x.mean if x.low == x.high and not x.flags & (LOST | MASKED) else None

    def note_shape(self, value: int, shape: Shape) -> None:
        self.derived[value] = shape
        self.worked_out.add(value)

    def note_entries(self, value: int, entries: Entries) -> None:
        self.counts[value] = entries
        self.worked_out.add(value)

    def entries(self, value: int | None) -> Entries | None:
        """The whole numbers of a small value that shapes and constants make, None for each that is open."""
        if value is None:
            return None
        counted = self.counts.get(value)
        return self.graph.integers.get(value) if counted is None else counted

    def integers(self, value: int | None) -> tuple[int, ...] | None:
        """The same where all of them are known, seen through moves."""
        if value is None:
            return None
        numbers = [entry for entry in self.counts.get(value, ()) if entry is not None]
        if numbers:
            return tuple(numbers) if len(numbers) == len(self.counts[value]) else None
        return self.graph.integers.get(self.origin[value])

    def operand(self, node: Node, index: int) -> int | None:
        return node.inputs[index] if index < len(node.inputs) else None

    def estimate(self, node: Node, index: int) -> Moments:
        """Estimate of an operand; of one left out, nothing known."""
        value = self.operand(node, index)
        return UNKNOWN if value is None else self.held[value]

    def is_same(self, node: Node) -> bool:
        """Whether the first two operands are the same numbers in the same order."""
        first, second = node.inputs[:2]
        return first is not None and second is not None and self.are_same(first, second)

    def are_same(self, first: int, second: int) -> bool:
        """Whether two values are the same numbers in the same order, each beside itself."""
        return self.kept[first] == self.kept[second] and self.pairs_up(first, second)

    def pairs_up(self, first: int, second: int) -> bool:
        """Whether an operator meets the numbers of two values one by one, rather than all of one with all of the other:
        a column with a row.
        """
        if first == second:
            return True
        one, other = self.shape(first), self.shape(second)
        if one is None or other is None or one == other:
            return True
        pairs = [*zip_longest(reversed(one), reversed(other), fillvalue=1)]
        return not (any(a == 1 != b for a, b in pairs) and any(a != 1 == b for a, b in pairs))

    def times(self, node: Node) -> Sequence[int] | None:
        """How often the numbers of each operand are among the operands; None where each is there once."""
        inputs = node.inputs
        if len(inputs) == 2:
            return (2, 2) if self.is_same(node) else None
        kept = [None if value is None else self.kept[value] for value in inputs]
        return None if len(set(kept)) == len(kept) else [kept.count(value) for value in kept]

    def is_moved(self, node: Node) -> bool:
        """Whether the first two operands are the same numbers, moved or not."""
        first, second = node.inputs[:2]
        return first is not None and second is not None and self.origin[first] == self.origin[second]

    def without_part(self, total: int, part: int) -> Moments | None:
        """What is left of a sum once one of its parts is taken off again."""
        total = self.kept[total]
        if total not in self.sums:
            return None
        first, second = self.producer(total).inputs
        if first is None or second is None or not self.held[first].std or not self.held[second].std:
            return None
        for kept, rest in ((first, second), (second, first)):
            if self.kept[kept] == self.kept[part]:
                return self.held[rest]
        return None

    def step_of_running_sum(self, first: int, second: int) -> Moments | None:
        """What two parts of one running sum differ by: what was added between them."""
        if self.origin[first] != self.origin[second] or self.kept[first] == self.kept[second]:
            return None
        maker = self.producer(self.origin[first])
        if self.transfer(maker) is not Transfer.RUNNING_SUM or maker.inputs[0] is None:
            return None
        return self.held[maker.inputs[0]]

    def begin_sweep(self) -> None:
        """Forget what follows from estimates and shapes: both may be others this time."""
        self.tangents.clear()
        self._terms.clear()

    def producer(self, value: int) -> Node:
        return self.graph.nodes[self.graph.values[value].producer]

    # -- lengths --------------------------------------------------------------------------------------------------

    def length(self, value: int | None, axis: int) -> int | None:
        """Size of one axis; None where it is open or unknown."""
        shape = self.shape(value)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        return shape[axis]

    def reduced_axes(self, node: Node) -> tuple[int, ...] | None:
        """The axes that a reduction runs over; None for all of them."""
        axes = node.attributes.get("axes") if node.attributes else None
        if isinstance(axes, tuple):
            return tuple(map(int, axes))
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return self.integers(node.inputs[1]) or (-1,)
        return None

    def terms(self, node: Node) -> float:
        """How many numbers go into one of a reduction's result; worked out once, for both ways."""
        terms = self._terms.get(node.id)
        if terms is None:
            terms = self._terms[node.id] = self._count_reduced(node)
        return terms

    def _count_reduced(self, node: Node) -> float:
        value, result = node.inputs[0], node.outputs[0]
        shape = self.shape(value)
        if shape is None:
            return self._ratio(value, result)
        rank = len(shape)
        axes: Sequence[int] | None = self.reduced_axes(node)
        if axes is None:
            axes = range(2, rank) if node.op.startswith("Global") else range(rank)
        return math.prod([_counted(shape[axis]) for axis in axes if -rank <= axis < rank])

    def _ratio(self, value: int | None, result: int | None) -> float:
        if value is None or result is None:
            return OPEN_LENGTH
        values = self.graph.values
        ratio = values[value].elements / max(values[result].elements, 1)
        return ratio if ratio > 1 else OPEN_LENGTH

    def contracted(self, node: Node) -> float:
        """How many products a contraction sums up for one number of its result; worked out once, for both ways."""
        terms = self._terms.get(node.id)
        if terms is None:
            terms = self._terms[node.id] = self._count_products(node)
        return terms

    def _count_products(self, node: Node) -> float:
        op, data = node.signature.op, self.shape(node.inputs[0])
        if is_convolution(node):
            weight = self.shape(self.operand(node, 1))
            if weight is None or len(weight) < 3:
                return OPEN_LENGTH
            if is_transposed(node):
                strides = node.attributes.get("strides")
                step = math.prod(strides) if isinstance(strides, tuple) else 1
                kernel = math.prod(size or 1 for size in weight[2:])
                return max((weight[0] or 1) * max(kernel / max(step, 1), 1.0), 1.0)
            return max(math.prod(size or 1 for size in weight[1:]), 1)
        is_turned = bool(node.attributes.get("transA")) if op == "Gemm" and node.attributes else False
        length = data[-2 if is_turned and len(data) > 1 else -1] if data else None
        if length is not None:
            return max(length, 1)
        weight = self.shape(self.operand(node, 1))
        if weight:
            turned = bool(node.attributes.get("transB")) if node.attributes else False
            size = weight[-1 if turned or len(weight) == 1 else -2]
            if size is not None:
                return max(size, 1)
        return OPEN_LENGTH


def is_convolution(node: Node) -> bool:
    """Whether a contraction slides a weight over its input."""
    return "conv" in node.signature.op.lower()


def is_transposed(node: Node) -> bool:
    """Whether a convolution slides its weight over its output: by its name, or as an attribute says."""
    return "transpose" in node.signature.op.lower() or bool(node.attributes.get("transposed"))


def _counted(size: int | None) -> int:
    """The length of an axis, where it is open what is taken for it."""
    return OPEN_LENGTH if size is None else max(size, 1)
