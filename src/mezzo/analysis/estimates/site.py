"""Graph queries for transfer laws: shapes, lengths, small constants, and which values are copies of
each other.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

from mezzo.analysis.estimates.moments import LOST, MASKED, UNKNOWN, Moments
from mezzo.formats.dtypes import DType, integer_span
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Node
from mezzo.tables.facts import OpFacts, Transfer

# Assumed length of symbolic dimensions in reductions.
OPEN_LENGTH = 256
# Assumed number of positions along a symbolic dimension: a context window, seconds of audio.
OPEN_POSITIONS = 4096

Shape = tuple[int | None, ...]
Entries = tuple[int | None, ...]


class LoopAxis(NamedTuple):
    """The axis along which a loop slices a value (`leaves` False) or stacks one. `has_batches`:
    counted after the batch axis.
    """

    loop: int
    place: int
    leaves: bool
    has_batches: bool


@dataclass(kw_only=True)
class EstimatedGraph:
    """A graph during estimation. `tolerance`: the tolerated relative error of outputs. `estimates`
    are by value id; laws read them, the forward pass writes them.

    `transfers` are the laws by node id, `made_by` those of the producers by value id, None without
    a law. `origin`: the value with the same elements before data movement; `kept`: the value with
    the same elements in the same order. `reduced`: for the result of a reduction, its law and the
    reduced value, both through data movement. `sums`: sums of two values that match no pattern.
    """

    graph: Graph
    rows: Sequence[OpFacts | None]
    estimates: list[Moments]
    origin: list[int]
    kept: list[int]
    tolerance: float
    reduced: dict[int, tuple[Transfer, int]] = field(default_factory=dict)
    # See mezzo.analysis.estimates.patterns.tangents.
    tangents: dict[int, Mapping[int, float]] = field(default_factory=dict)
    # Clamped constants, from which nothing is derived.
    clamped: set[int] = field(default_factory=set)
    masks: frozenset[int] = frozenset()  # mask constants
    derived: dict[int, Shape] = field(default_factory=dict)  # see mezzo.analysis.estimates.shapes
    counts: dict[int, Entries] = field(default_factory=dict)  # see mezzo.analysis.estimates.counts
    worked_out: set[int] = field(default_factory=set)  # values ever in `derived` or `counts`
    trips: dict[int, int] = field(default_factory=dict)  # by loop: number of trips, if known
    # By tie that slices for a body or stacks its outputs.
    scanned: dict[int, LoopAxis] = field(default_factory=dict)
    sums: set[int] = field(default_factory=set)
    # See mezzo.analysis.estimates.patterns.running_totals.
    chains: dict[int, float] = field(default_factory=dict)
    continued: set[int] = field(default_factory=set)  # links of chains that have a successor
    # See mezzo.analysis.estimates.patterns.gates.
    gated: dict[int, int] = field(default_factory=dict)
    # See mezzo.analysis.estimates.evidence.
    inflated: dict[int, float] = field(default_factory=dict)
    transfers: Sequence[Transfer | None] = field(init=False)
    made_by: Sequence[Transfer | None] = field(init=False)
    # By node: number of terms per output element.
    _terms: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.transfers = transfers = [None if row is None else row.transfer for row in self.rows]
        self.made_by = [transfers[node] for node in self.graph.columns.value_producer.tolist()]

    def transfer(self, node: Node) -> Transfer | None:
        return self.transfers[node.id]

    @cached_property
    def shapeless(self) -> Set[int]:
        """Values without a shape from the front end."""
        return frozenset(range(len(self.graph.values))).difference(self.graph.shapes)

    def shape(self, value: int | None) -> Shape | None:
        """Shape of a value as far as known: the inferred one, which includes the front end's, else
        the front end's.
        """
        if value is None:
            return None
        derived = self.derived.get(value)
        return self.graph.shapes.get(value) if derived is None else derived

    def dtype(self, value: int | None) -> DType | None:
        return None if value is None else self.graph.values[value].dtype

    def integer_span(self, value: int | None) -> tuple[int, int] | None:
        """The smallest and largest number of a value's integer dtype; None for other dtypes."""
        dtype = self.dtype(value)
        return None if dtype is None else integer_span(dtype)

    def constant(self, value: int | None) -> ConstantFacts | None:
        """Statistics of a floating-point constant, through data movement and casts; else None."""
        if value is None:
            return None
        facts = self.graph.constants.get(self.origin[value])
        return self.graph.wide_constants.get(self.origin[value]) if facts is None else facts

    def number(self, value: int | None) -> float | None:
        """The number of a constant of equal elements; else None."""
        if value is None:
            return None
        x = self.estimates[value]
        return x.mean if x.low == x.high and not x.flags & (LOST | MASKED) else None

    def note_copy(self, value: int, source: int) -> None:
        """Record that a value has the same elements as another, in the same order."""
        self.estimates[value], self.origin[value] = self.estimates[source], self.origin[source]
        self.kept[value] = self.kept[source]

    def note_shape(self, value: int, shape: Shape) -> None:
        self.derived[value] = shape
        self.worked_out.add(value)

    def note_entries(self, value: int, entries: Entries) -> None:
        self.counts[value] = entries
        self.worked_out.add(value)

    def entries(self, value: int | None) -> Entries | None:
        """Folded integers of a small value, None for each unknown entry; None if nothing is
        known.
        """
        if value is None:
            return None
        counted = self.counts.get(value)
        return self.graph.integers.get(value) if counted is None else counted

    def integers(self, value: int | None) -> tuple[int, ...] | None:
        """Folded integers of a value if all are known, through data movement; else None."""
        if value is None:
            return None
        numbers = [entry for entry in self.counts.get(value, ()) if entry is not None]
        if numbers:
            return tuple(numbers) if len(numbers) == len(self.counts[value]) else None
        return self.graph.integers.get(self.origin[value])

    def estimate(self, node: Node, index: int) -> Moments:
        """Estimate of an operand; unknown for an omitted one."""
        value = node.operand(index)
        return UNKNOWN if value is None else self.estimates[value]

    def is_same(self, node: Node) -> bool:
        """Whether the first two operands are equal elementwise."""
        first, second = node.inputs[:2]
        return first is not None and second is not None and self.are_same(first, second)

    def are_same(self, first: int, second: int) -> bool:
        """Whether two values are equal and an elementwise operator pairs equal elements."""
        return self.kept[first] == self.kept[second] and self.pairs_up(first, second)

    def pairs_up(self, first: int, second: int) -> bool:
        """Whether an elementwise operator pairs the elements of two values one to one, instead of
        broadcasting a column against a row.
        """
        if first == second:
            return True
        left, right = self.shape(first), self.shape(second)
        if left is None or right is None or left == right:
            return True
        pairs = [*zip_longest(reversed(left), reversed(right), fillvalue=1)]
        return not (any(a == 1 != b for a, b in pairs) and any(a != 1 == b for a, b in pairs))

    def times(self, node: Node) -> Sequence[int] | None:
        """Multiplicity of each operand among equal operands; None if all are distinct."""
        inputs = node.inputs
        if len(inputs) == 2:
            return (2, 2) if self.is_same(node) else None
        numbers = [None if value is None else self.kept[value] for value in inputs]
        if len(set(numbers)) == len(numbers):
            return None
        return [numbers.count(value) for value in numbers]

    def is_moved(self, node: Node) -> bool:
        """Whether the first two operands have the same elements, in any order."""
        first, second = node.inputs[:2]
        return (
            first is not None and second is not None and self.origin[first] == self.origin[second]
        )

    def without_part(self, total: int, part: int) -> Moments | None:
        """Estimate of a sum minus one of its terms, which is the other term; else None."""
        total = self.kept[total]
        if total not in self.sums:
            return None
        first, second = self.producer(total).inputs
        if first is None or second is None:
            return None
        if not self.estimates[first].std or not self.estimates[second].std:
            return None
        for term, rest in ((first, second), (second, first)):
            if self.kept[term] == self.kept[part]:
                return self.estimates[rest]
        return None

    def step_of_running_sum(self, first: int, second: int) -> Moments | None:
        """Estimate of the difference of two elements of a cumulative sum: its summand; else
        None.
        """
        if self.origin[first] != self.origin[second] or self.kept[first] == self.kept[second]:
            return None
        maker = self.producer(self.origin[first])
        if self.transfer(maker) is not Transfer.RUNNING_SUM or maker.inputs[0] is None:
            return None
        return self.estimates[maker.inputs[0]]

    def begin_sweep(self) -> None:
        """Clear caches that depend on estimates and shapes, which change between sweeps."""
        self.tangents.clear()
        self._terms.clear()

    def producer(self, value: int) -> Node:
        return self.graph.nodes[self.graph.values[value].producer]

    # -- lengths -----------------------------------------------------------------------------------

    def length(self, value: int | None, axis: int) -> int | None:
        """Length of an axis; None if unknown."""
        shape = self.shape(value)
        if shape is None or not -len(shape) <= axis < len(shape):
            return None
        return shape[axis]

    def reduced_axes(self, node: Node) -> tuple[int, ...] | None:
        """Axes of a reduction; None for all."""
        axes = node.attributes.get("axes")
        if isinstance(axes, tuple):
            return tuple(map(int, axes))
        if len(node.inputs) > 1 and node.inputs[1] is not None:
            return self.integers(node.inputs[1]) or (-1,)
        return None

    def terms(self, node: Node) -> float:
        """Number of elements reduced into one output element; cached for both passes."""
        if node.id not in self._terms:
            self._terms[node.id] = self._count_reduced(node)
        return self._terms[node.id]

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
        """Number of terms summed into one output element of a matmul or convolution; cached for
        both passes.
        """
        if node.id not in self._terms:
            self._terms[node.id] = self._count_products(node)
        return self._terms[node.id]

    def _count_products(self, node: Node) -> float:
        op, data = node.signature.op, self.shape(node.inputs[0])
        if is_convolution(node):
            weight = self.shape(node.operand(1))
            if weight is None or len(weight) < 3:
                return OPEN_LENGTH
            if is_transposed(node):
                strides = node.attributes.get("strides")
                step = math.prod(strides) if isinstance(strides, tuple) else 1
                kernel = math.prod(size or 1 for size in weight[2:])
                return max((weight[0] or 1) * max(kernel / max(step, 1), 1.0), 1.0)
            return max(math.prod(size or 1 for size in weight[1:]), 1)
        is_transposed_left = op == "Gemm" and bool(node.attributes.get("transA"))
        length = data[-2 if is_transposed_left and len(data) > 1 else -1] if data else None
        if length is not None:
            return max(length, 1)
        weight = self.shape(node.operand(1))
        if weight:
            is_transposed_right = bool(node.attributes.get("transB"))
            size = weight[-1 if is_transposed_right or len(weight) == 1 else -2]
            if size is not None:
                return max(size, 1)
        return OPEN_LENGTH


def is_convolution(node: Node) -> bool:
    """Whether a contraction is a convolution."""
    return "conv" in node.signature.op.lower()


def is_transposed(node: Node) -> bool:
    """Whether a convolution is transposed, by its name or its attribute."""
    return "transpose" in node.signature.op.lower() or bool(node.attributes.get("transposed"))


def _counted(size: int | None) -> int:
    """The length of an axis, `OPEN_LENGTH` if unknown."""
    return OPEN_LENGTH if size is None else max(size, 1)
