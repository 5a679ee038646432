"""Problem of a strategy: a graph with the choices, gains and cast prices of every level."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mezzo.common.union_find import joined
from mezzo.contracts.quantized_level import Quantized
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import PrecisionLine
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use
from mezzo.tables.facts import HEAVY, Cost
from mezzo.tables.policy import GRANTED, Category
from mezzo.tables.target import Costs

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools, Ints
    from mezzo.tables.kernels import Kernels


class Choice(enum.Enum):
    """What a strategy may do with a node. ABSENT: the node computes no floats."""

    ABSENT = "absent"
    FREE = "free"
    HIGH = "high"
    LOW = "low"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Costs measured on a target, which replace the tables' costs; all in one unit of the caller's
    choice.

    `gains`: by level and node id, the saving against the base; may be below 0. `cast_prices`: by
    threshold and value id, the cost of one conversion, times its executions; at least 0.
    """

    gains: tuple[tuple[int, ...], ...]
    cast_prices: tuple[tuple[int, ...], ...]


class _Chosen:
    """Base of records with a choice per node id."""

    choices: tuple[Choice, ...]

    @cached_property
    def _codes(self) -> "Ints":
        import numpy as np

        return np.array([_CODES[choice] for choice in self.choices], np.int64)

    def has_choice(self, choice: Choice) -> "Bools":
        """Which nodes have a choice."""
        is_chosen: Bools = self._codes == _CODES[choice]
        return is_chosen


@dataclass(frozen=True)
class LevelChoices(_Chosen):
    """Choices for one non-base level, per node id. LOW is this level; they combine policy, target,
    schema and requests.

    `categories` matter where a node is FREE. `worths`: the number of casts that running a node at
    the level is worth. `penalties`: cost of the error that a node causes, in the unit of the costs;
    at least 0, arbitrarily large for "never".
    """

    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    worths: tuple[int, ...]
    penalties: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Split(_Chosen):
    """One threshold as a two-colouring problem: low is beyond the threshold."""

    graph: Graph
    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    linked: tuple[int, ...]
    holds_low: "Bools"  # by value: whether its dtype today is beyond the threshold
    high_outputs: frozenset[int]  # nodes whose result is high though they run low


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A graph with what is preferred and possible at each level. `sides`: the levels of `line`
    without the base, in order.

    A node that is ABSENT on one side is so on all; a node that is LOW on a side runs at that level
    only. `links`: (threshold, node, node) that must be on one side of the threshold, in addition to
    nodes that share a value that cannot be cast. `caps`: lowest and highest level, inclusive, that
    a use may read, whatever its node runs at. `quantized`: data of the quantized level, if there is
    one. `in_blocks`: storage of weights in low-bit integers, by value id; `stored_floats`: the low
    float of those that are stored in one and cast to the base for all their readers.
    `base_outputs`: nodes at other levels whose outputs are cast to the base; users at the same
    level may skip that cast.
    `measured` replaces the gains and cast costs derived from categories, worths and `prices`.
    `kernels`: the target's fused kernels; None if unknown.
    """

    graph: Graph
    line: PrecisionLine
    sides: tuple[LevelChoices, ...]
    costs_of: tuple[Cost | None, ...]
    prices: Costs
    base_outputs: frozenset[int] = frozenset()
    links: tuple[tuple[int, int, int], ...] = ()
    caps: Mapping[Use, tuple[int, int]] = field(default_factory=dict)
    measured: MeasuredCosts | None = None
    kernels: "Kernels | None" = None
    quantized: Quantized | None = None
    in_blocks: Mapping[int, BlockStorage] = field(default_factory=dict)
    stored_floats: Mapping[int, DType] = field(default_factory=dict)

    def side(self, level: int) -> LevelChoices:
        """The choices for a non-base level."""
        return self.sides[self.line.side(level)]

    @cached_property
    def is_absent(self) -> "Bools":
        """Which nodes compute no floats, so that nothing is decided about them."""
        if self.sides:
            return self.sides[0].has_choice(Choice.ABSENT)
        import numpy as np

        columns = self.graph.columns
        has_none = np.array([s.dtype is None for s in columns.signatures], bool)
        is_absent: Bools = has_none[columns.node_signature] | columns.is_kind(Kind.SOURCE)
        return is_absent

    @cached_property
    def allowed(self) -> "Bools":
        """By level and node: whether the node may run there; False everywhere for ABSENT nodes."""
        import numpy as np

        is_allowed = np.zeros((len(self.line.levels), len(self.graph.nodes)), bool)
        is_fixed_low = np.zeros(len(self.graph.nodes), bool)
        for level in self.line.others:
            side = self.side(level)
            is_allowed[level] = side.has_choice(Choice.LOW) | side.has_choice(Choice.FREE)
            is_fixed_low |= side.has_choice(Choice.LOW)
        for level in self.line.others:
            is_allowed[level] &= ~is_fixed_low | self.side(level).has_choice(Choice.LOW)
        is_allowed[self.line.base] = ~is_fixed_low & ~self.is_absent
        return is_allowed

    @property
    def given_levels(self) -> list[int]:
        """The level of each node before a strategy decides: the fixed one, else the base."""
        import numpy as np

        base = self.line.base
        levels: list[int] = np.where(
            self.allowed[base] | self.is_absent, base, self.allowed.argmax(axis=0)
        ).tolist()
        return levels

    @cached_property
    def current_levels(self) -> "Ints":
        """Level of each value's dtype today; the base for dtypes of no level."""
        return self.graph.columns.levels_held(self.line)

    def produced_levels(self, levels: Sequence[int]) -> "Ints":
        """Level at which each value is produced, given each node's level."""
        import numpy as np

        produced = self.graph.columns.produced_levels(self.line, levels)
        return (
            produced
            if self.quantized is None
            else np.where(self.stays_inside, np.minimum(produced, self.line.base), produced)
        )

    @cached_property
    def stays_inside(self) -> "Bools":
        """Which values are produced at the base by a quantized node."""
        import numpy as np

        is_inside = np.zeros(len(self.graph.values), bool)
        is_inside[[] if self.quantized is None else sorted(self.quantized.stay_inside)] = True
        return is_inside

    def needed_levels(self, levels: Sequence[int]) -> "Ints":
        """Level that each use needs, clamped to its cap."""
        import numpy as np

        needed = self.graph.columns.needed_levels(self.line, levels)
        return np.clip(needed, *self.bounds) if self.caps else needed

    @cached_property
    def bounds(self) -> "tuple[Ints, Ints]":
        """Lowest and highest level of each use, in the order of the graph's columns."""
        import numpy as np

        columns, everything = self.graph.columns, (0, len(self.line.levels) - 1)
        uses = zip(columns.use_node.tolist(), columns.use_operand.tolist(), strict=True)
        lowest, highest = (
            np.array([self.caps.get(Use(*use), everything) for use in uses], np.int64)
            .reshape(-1, 2)
            .T
        )
        return lowest, highest

    def capped(self, use: Use, level: int) -> int:
        """The level that a use reads if its node runs at `level`."""
        lowest, highest = self.caps.get(use, (level, level))
        return min(max(level, lowest), highest)

    @cached_property
    def linked(self) -> tuple[tuple[int, ...], ...]:
        """Per threshold and node: the smallest node id of its group of linked nodes."""
        everywhere = self._shared()
        return tuple(
            everywhere if not pairs else joined(everywhere, pairs)
            for threshold in self.line.thresholds
            for pairs in [[link[1:] for link in self.links if link[0] == threshold]]
        )

    def _shared(self) -> tuple[int, ...]:
        """By node: smallest node id that it shares a value with that cannot be cast."""
        pairs = [
            (value.producer, use.node)
            for number, value in enumerate(self.graph.values)
            if not value.is_castable
            for use in self.graph.uses[number]
            if self.graph.nodes[use.node].signature.inputs[use.operand] is not Role.ANY
        ]
        return joined(range(len(self.graph.nodes)), pairs)

    @cached_property
    def gains(self) -> "Ints":
        """By level and node: saving against the base; may be below 0 if measured."""
        import numpy as np

        gains = np.zeros((len(self.line.levels), len(self.graph.nodes)), np.int64)
        if self.measured is not None:
            is_operator = self.graph.columns.is_kind(Kind.OP) & ~self.is_absent
            return np.where(is_operator, np.array(self.measured.gains, np.int64), gains)
        for level in self.line.others:
            gains[level] = self._gains_at(level)
        return gains

    @cached_property
    def elements_moved(self) -> "tuple[Ints, Ints]":
        """Elements read and written by each node, of operands and results in its group. Weights in
        blocks do not count: no level makes them smaller.
        """
        import numpy as np

        from mezzo.ir.columns import GROUP

        columns, size = self.graph.columns, len(self.graph.nodes)
        is_operand, is_result = columns.use_role == GROUP, columns.value_role == GROUP
        if self.in_blocks:
            is_operand &= ~np.isin(columns.use_value, [*self.in_blocks])
        read = np.zeros(size, np.int64)
        np.add.at(
            read,
            columns.use_node[is_operand],
            columns.value_elements[columns.use_value[is_operand]],
        )
        written = np.zeros(size, np.int64)
        np.add.at(written, columns.value_producer[is_result], columns.value_elements[is_result])
        return read, written

    def _elements_in_memory(self, level: int) -> "tuple[Ints, Ints]":
        """Elements moved at a level; without constant traffic, except for heavy operators."""
        if self.kernels is None:
            return self.elements_moved
        threshold = self.line.threshold_of(level)
        is_light = [cost not in HEAVY for cost in self.costs_of]
        read, written = self.elements_moved
        stays_read, stays_written = self.kernels.elements_staying(
            self.graph.columns, level, threshold, is_light
        )
        return read - stays_read, written - stays_written

    @cached_property
    def computes_base(self) -> "Bools":
        """By level and node: whether the kernel computes at the base whatever the node's level."""
        return (
            self.allowed & False
            if self.kernels is None
            else self.kernels.computes_base & ~self.is_absent
        )

    def _gains_at(self, level: int) -> "Ints":
        import numpy as np

        columns, side = self.graph.columns, self.side(level)
        read, written = self.elements_moved
        read_out, written_out = self._elements_in_memory(level)
        moved = (read_out + written_out) * self.line.narrower(level) // 8 * columns.node_repeats
        is_counted = columns.is_kind(Kind.OP) & np.array(
            [c is not None and c is not Category.CLEAR for c in side.categories], bool
        )
        worths = np.array(side.worths, np.int64)
        is_allowed = np.array([category is Category.ALLOW for category in side.categories], bool)
        # Data movement that resizes much (Slice, Expand): the cast goes where the value is small.
        is_moving = np.array([cost is Cost.MOVEMENT for cost in self.costs_of], bool)
        resizes = np.maximum(read, written) > 2 * np.minimum(read, written)
        is_allowed &= ~(resizes & is_moving & (worths < GRANTED))
        # A node whose kernel computes at the base is worth no casts, unless the user named it.
        is_allowed &= ~(self.computes_base[level] & (worths <= GRANTED))
        factors = np.where([cost in HEAVY for cost in self.costs_of], self.prices.linear_factor, 1)
        preferred = worths * self.prices.cast_launch * columns.node_repeats + moved * factors
        gains = np.where(is_counted, np.where(is_allowed, preferred, moved), 0)
        if self.kernels is None:
            return gains
        cast_prices = self.cast_prices[self.line.threshold_of(level)] * self.is_planned
        return gains - self.kernels.losses(columns, level, cast_prices) * ~self.is_absent

    @cached_property
    def cast_prices(self) -> "Ints":
        """By threshold and value: cost of one conversion, times the executions of its scope."""
        import numpy as np

        if self.measured is not None:
            return np.array(self.measured.cast_prices, np.int64).reshape(
                len(self.line.thresholds), -1
            )
        columns = self.graph.columns
        bits = np.array(
            [[self.line.conversion_bits(threshold)] for threshold in self.line.thresholds], np.int64
        )
        prices: Ints = (
            self.prices.cast_launch + bits * columns.value_elements // 8
        ) * columns.value_repeats
        return prices

    @cached_property
    def shared_prices(self) -> "Ints":
        """By threshold and value: cost of one conversion that all uses of `are_shared` share."""
        return (
            self.cast_prices
            if self.kernels is None
            else self.kernels.shared_prices(self.cast_prices)
        )

    @cached_property
    def are_shared(self) -> "Bools":
        """By threshold and use: whether a conversion is shared, not part of the use's kernel."""
        import numpy as np

        shape = len(self.line.thresholds), len(self.graph.columns.use_value)
        return np.ones(shape, bool) if self.kernels is None else ~self.kernels.reads_free

    @cached_property
    def use_prices(self) -> "Ints | None":
        """By threshold and use: cost of a conversion on top of the shared one, if any."""
        if self.kernels is None:
            return None
        return self.kernels.use_prices(self.cast_prices[:, self.graph.columns.use_value])

    @cached_property
    def is_planned(self) -> "Bools":
        """Which values have a level's dtype today and come from an operator, an input or a tie."""
        columns = self.graph.columns
        is_planned: Bools = (
            columns.holds(*self.line.dtypes) & ~columns.is_kind(Kind.SOURCE)[columns.value_producer]
        )
        return is_planned

    @cached_property
    def is_convertible(self) -> "Bools":
        """Which uses pay for a conversion if they need another level than their value's."""
        columns = self.graph.columns
        return self.is_planned[columns.use_value] & columns.use_wants

    def without_penalties(self) -> "Problem":
        """The same problem without error penalties."""
        return replace(self, sides=tuple(replace(side, penalties=None) for side in self.sides))

    def rechosen(self, change: Callable[[int, LevelChoices], Iterable[Choice]]) -> "Problem":
        """The same problem with other choices: `change` maps a level and its side to them."""
        levels = sorted(self.line.others)
        sides = [
            replace(side, choices=tuple(change(level, side)))
            for level, side in zip(levels, self.sides, strict=True)
        ]
        return replace(self, sides=tuple(sides))

    def without(self, levels: "Ints", nodes: "Bools") -> "Problem":
        """The same problem; the given nodes may not run at their `levels`."""

        def take(level: int, side: LevelChoices) -> Iterable[Choice]:
            excluded = (nodes & (levels == level)).tolist()
            return (
                Choice.HIGH if is_excluded else choice
                for is_excluded, choice in zip(excluded, side.choices, strict=True)
            )

        return self.rechosen(take)

    def split(self, threshold: int, levels: "Ints") -> Split:
        """One threshold's two-way problem; only nodes next to it may cross."""
        import numpy as np

        is_up = threshold >= self.line.base
        near, beyond = (threshold, threshold + 1) if is_up else (threshold + 1, threshold)
        far = self.allowed[beyond:] if is_up else self.allowed[: beyond + 1]
        is_near = (levels == near) & ~self.is_absent
        may_cross = is_near & far.any(axis=0)
        # A node that reached the near level on its way to a level beyond has to go on.
        may_stay = self.allowed[near]
        if near == self.line.base:
            allowed_before = self.allowed[: near + 1] if is_up else self.allowed[near:]
            may_stay = allowed_before.any(axis=0)
        codes = np.select(
            [self.is_absent, may_cross & may_stay, may_cross],
            [_CODES[Choice.ABSENT], _CODES[Choice.FREE], _CODES[Choice.LOW]],
            _CODES[Choice.HIGH],
        )
        members = list(Choice)
        order = range(beyond, len(self.line.levels)) if is_up else range(beyond, -1, -1)
        categories = self.side(beyond).categories
        if len(far) > 1:  # the category of a forbidden level does not count
            first_allowed = np.argmax(self.allowed[list(order)], axis=0).tolist()
            categories = tuple(
                self.side(order[first]).categories[node] for node, first in enumerate(first_allowed)
            )
        return Split(
            graph=self.graph,
            choices=tuple([members[code] for code in codes.tolist()]),
            categories=categories,
            linked=self.linked[threshold],
            holds_low=self.current_levels > threshold
            if is_up
            else self.current_levels <= threshold,
            high_outputs=self.base_outputs,
        )


_CODES = {choice: code for code, choice in enumerate(Choice)}
