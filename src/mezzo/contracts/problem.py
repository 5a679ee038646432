"""What a strategy is asked: a graph with what is wanted and possible at each level."""

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mezzo.common.union_find import joined
from mezzo.contracts.quantized_level import Quantized
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
    """What a strategy may do with a node. ABSENT: the node has no floating compute group."""

    ABSENT = "absent"
    FREE = "free"
    HIGH = "high"
    LOW = "low"

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """What was measured on a target, in place of what tables say; all in one unit of the measurer's choice.

    `gains`: per level and node id, what the node saves by running there and not at the base; below 0 where it costs
    more, 0 at the base. `cast_prices`: per threshold and value id, what one conversion of the value costs as often as
    it runs; at least 0.
    """

    gains: tuple[tuple[int, ...], ...]
    cast_prices: tuple[tuple[int, ...], ...]


class _Chosen:
    """What has a choice per node id."""

    choices: tuple[Choice, ...]

    @cached_property
    def _codes(self) -> "Ints":
        import numpy as np

        return np.array([_CODES[choice] for choice in self.choices], np.int64)

    def has_choice(self, choice: Choice) -> "Bools":
        """Which nodes have a choice."""
        found: Bools = self._codes == _CODES[choice]
        return found


@dataclass(frozen=True)
class LevelChoices(_Chosen):
    """One level beside the base as it is wanted and possible, per node id.

    `choices` already unite policy, target, schema and the caller's contract; LOW is this level. `categories` matter
    where FREE. `worths` say for how many casts each node is worth running at the level. `penalties` are paid by nodes
    that do, for the error they make, in the unit of the costs; at least 0, and of any size: one that no gain outweighs
    means "never".
    """

    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    worths: tuple[int, ...]
    penalties: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Split(_Chosen):
    """One threshold of a problem, for a strategy that colours nodes in two: low is beyond the threshold.

    `holds_low`: per value, whether the dtype it has today is beyond. `hands_on_high`: nodes whose result counts as high
    though they run low.
    """

    graph: Graph
    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    linked: tuple[int, ...]
    holds_low: "Bools"
    hands_on_high: frozenset[int]


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A graph with what is wanted and possible. `sides` are the levels of `line` beside the base, in their order.

    A node that is ABSENT on one side is so on all. What is LOW on a side runs at that level and no other.
    `links`: (threshold, node, node) that have to be on one side of the threshold, beside those that share a value that
    cannot be cast. `caps`: uses that read nothing outside the levels given, both ends included, whatever their node
    runs at. `quantized`: what is known of the level that takes scales, if there is one.
    `hands_on_base`: nodes that hand on their result at the base though they run beside it: through a cast,
    which other nodes that run as they do need not read. `measured` takes the place of what categories, worths and
    `prices` say of gains and casts. `kernels`: what the target runs as one kernel; None where nothing is known of it.
    """

    graph: Graph
    line: PrecisionLine
    sides: tuple[LevelChoices, ...]
    costs_of: tuple[Cost | None, ...]
    prices: Costs
    hands_on_base: frozenset[int] = frozenset()
    links: tuple[tuple[int, int, int], ...] = ()
    caps: Mapping[Use, tuple[int, int]] = field(default_factory=dict)
    measured: MeasuredCosts | None = None
    kernels: "Kernels | None" = None
    quantized: Quantized | None = None

    def side(self, level: int) -> LevelChoices:
        """What is wanted and possible at a level beside the base."""
        return self.sides[self.line.side(level)]

    @cached_property
    def is_absent(self) -> "Bools":
        """Which nodes have no floating compute group, and nothing to decide."""
        return self.sides[0].has_choice(Choice.ABSENT)

    @cached_property
    def allowed(self) -> "Bools":
        """By level and node: whether the node may run there. Nobody ABSENT may anywhere."""
        import numpy as np

        found = np.zeros((len(self.line.levels), len(self.graph.nodes)), bool)
        given = np.zeros(len(self.graph.nodes), bool)
        for level in self.line.others:
            side = self.side(level)
            found[level] = side.has_choice(Choice.LOW) | side.has_choice(Choice.FREE)
            given |= side.has_choice(Choice.LOW)
        for level in self.line.others:
            found[level] &= ~given | self.side(level).has_choice(Choice.LOW)
        found[self.line.base] = ~given & ~self.is_absent
        return found

    @property
    def given_levels(self) -> list[int]:
        """What runs beside the base whatever a strategy says, and all else at the base."""
        import numpy as np

        base = self.line.base
        found: list[int] = np.where(self.allowed[base] | self.is_absent, base, self.allowed.argmax(axis=0)).tolist()
        return found

    @cached_property
    def held(self) -> "Ints":
        """The level of the dtype that each value has today; the base where that is no level's."""
        return self.graph.columns.levels_held(self.line)

    def made_at(self, levels: Sequence[int]) -> "Ints":
        """The level at which its producer makes each value, given the level that each node runs at."""
        import numpy as np

        made = self.graph.columns.made_at(self.line, levels)
        return made if self.quantized is None else np.where(self.stays_inside, np.minimum(made, self.line.base), made)

    @cached_property
    def stays_inside(self) -> "Bools":
        """Which values are made at the base though their maker runs quantized."""
        import numpy as np

        found = np.zeros(len(self.graph.values), bool)
        found[[] if self.quantized is None else sorted(self.quantized.stay_inside)] = True
        return found

    def wanted_at(self, levels: Sequence[int]) -> "Ints":
        """The level at which each use wants its value, inside what it is capped to."""
        import numpy as np

        wanted = self.graph.columns.wanted_at(self.line, levels)
        return np.clip(wanted, *self.bounds) if self.caps else wanted

    @cached_property
    def bounds(self) -> "tuple[Ints, Ints]":
        """The least and the greatest level of each use, as they stand in the columns."""
        import numpy as np

        columns, everything = self.graph.columns, (0, len(self.line.levels) - 1)
        uses = zip(columns.use_node.tolist(), columns.use_operand.tolist(), strict=True)
        least, most = np.array([self.caps.get(Use(*use), everything) for use in uses], np.int64).reshape(-1, 2).T
        return least, most

    def capped(self, use: Use, level: int) -> int:
        """The level at which one use reads what its node would read at a level."""
        least, most = self.caps.get(use, (level, level))
        return min(max(level, least), most)

    @cached_property
    def linked(self) -> tuple[tuple[int, ...], ...]:
        """Per threshold and node, the smallest id of the nodes that it must agree with."""
        everywhere = self._shared()
        return tuple(
            everywhere if not pairs else joined(everywhere, pairs)
            for threshold in self.line.thresholds
            for pairs in [[link[1:] for link in self.links if link[0] == threshold]]
        )

    def _shared(self) -> tuple[int, ...]:
        """Those who share a value that cannot be cast agree at every threshold."""
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
        """By level and node: what running there and not at the base saves, in the unit of `Costs` or of what was
        measured: there maybe below 0.
        """
        import numpy as np

        found = np.zeros((len(self.line.levels), len(self.graph.nodes)), np.int64)
        if self.measured is not None:
            counts = self.graph.columns.is_kind(Kind.OP) & ~self.is_absent
            return np.where(counts, np.array(self.measured.gains, np.int64), found)
        for level in self.line.others:
            found[level] = self._gains_at(level)
        return found

    @cached_property
    def elements_moved(self) -> "tuple[Ints, Ints]":
        """Elements that each node reads in its group, and those it makes in it."""
        import numpy as np

        from mezzo.ir.columns import GROUP

        columns, size = self.graph.columns, len(self.graph.nodes)
        read_by, made_by = columns.use_role == GROUP, columns.value_role == GROUP
        read = np.zeros(size, np.int64)
        np.add.at(read, columns.use_node[read_by], columns.value_elements[columns.use_value[read_by]])
        made = np.zeros(size, np.int64)
        np.add.at(made, columns.value_producer[made_by], columns.value_elements[made_by])
        return read, made

    def _elements_in_memory(self, level: int) -> "tuple[Ints, Ints]":
        """The same without what moves as ever whatever the node runs in. Of what computes most, elements stand for the
        work, and all count.
        """
        if self.kernels is None:
            return self.elements_moved
        threshold = self.line.threshold_of(level)
        is_light = [cost not in HEAVY for cost in self.costs_of]
        read, made = self.elements_moved
        stays_read, stays_made = self.kernels.elements_staying(self.graph.columns, level, threshold, is_light)
        return read - stays_read, made - stays_made

    @cached_property
    def computes_base(self) -> "Bools":
        """By level and node: whether its kernel computes at the base whatever the node runs in."""
        return self.allowed & False if self.kernels is None else self.kernels.computes_base & ~self.is_absent

    def _gains_at(self, level: int) -> "Ints":
        import numpy as np

        columns, side = self.graph.columns, self.side(level)
        read, made = self.elements_moved
        read_out, made_out = self._elements_in_memory(level)
        moved = (read_out + made_out) * self.line.narrower(level) // 8 * columns.node_repeats
        counts = columns.is_kind(Kind.OP) & np.array(
            [c is not None and c is not Category.CLEAR for c in side.categories], bool
        )
        worths = np.array(side.worths, np.int64)
        is_allowed = np.array([category is Category.ALLOW for category in side.categories], bool)
        # Much smaller or larger than what it reads (Slice, Expand): cast where it is small.
        is_moving = np.array([cost is Cost.MOVEMENT for cost in self.costs_of], bool)
        resizes = np.maximum(read, made) > 2 * np.minimum(read, made)
        is_allowed &= ~(resizes & is_moving & (worths < GRANTED))
        # What computes at the base all the same is not worth casts, unless somebody asked for that very node.
        is_allowed &= ~(self.computes_base[level] & (worths <= GRANTED))
        factors = np.where([cost in HEAVY for cost in self.costs_of], self.prices.linear_factor, 1)
        wanted = worths * self.prices.cast_launch * columns.node_repeats + moved * factors
        gains = np.where(counts, np.where(is_allowed, wanted, moved), 0)
        return gains if self.kernels is None else gains - self.kernels.losses(level) * ~self.is_absent

    @cached_property
    def cast_prices(self) -> "Ints":
        """By threshold and value: one conversion reads one form and writes the other, as often as its scope runs."""
        import numpy as np

        if self.measured is not None:
            return np.array(self.measured.cast_prices, np.int64).reshape(len(self.line.thresholds), -1)
        columns = self.graph.columns
        bits = np.array([[self.line.conversion_bits(threshold)] for threshold in self.line.thresholds], np.int64)
        found: Ints = (self.prices.cast_launch + bits * columns.value_elements // 8) * columns.value_repeats
        return found

    @cached_property
    def shared_prices(self) -> "Ints":
        """By threshold and value: what one conversion costs, once for all uses of `are_shared`."""
        return self.cast_prices if self.kernels is None else self.kernels.shared_prices(self.cast_prices)

    @cached_property
    def are_shared(self) -> "Bools":
        """By threshold and use: whether the use wants a conversion that others share, and not one of its kernel's."""
        import numpy as np

        shape = len(self.line.thresholds), len(self.graph.columns.use_value)
        return np.ones(shape, bool) if self.kernels is None else ~self.kernels.reads_free

    @cached_property
    def use_prices(self) -> "Ints | None":
        """By threshold and use: what a conversion there costs beside what is shared. None where it nowhere does."""
        if self.kernels is None:
            return None
        return self.kernels.use_prices(self.cast_prices[:, self.graph.columns.use_value])

    @cached_property
    def is_planned(self) -> "Bools":
        """Which values hold a level's dtype today, and are made by an operator, an input or a tie."""
        columns = self.graph.columns
        found: Bools = columns.holds(*self.line.dtypes) & ~columns.is_kind(Kind.SOURCE)[columns.value_producer]
        return found

    @cached_property
    def is_convertible(self) -> "Bools":
        """Which uses pay for a conversion where they want a level that their value is not made at."""
        columns = self.graph.columns
        return self.is_planned[columns.use_value] & columns.use_wants

    def without_penalties(self) -> "Problem":
        """The same problem where errors cost nothing."""
        return replace(self, sides=tuple(replace(side, penalties=None) for side in self.sides))

    def rechosen(self, change: Callable[[int, LevelChoices], Iterable[Choice]]) -> "Problem":
        """The same problem with other choices. `change` gives those of a level and its side."""
        levels = sorted(self.line.others)
        sides = [
            replace(side, choices=tuple(change(level, side))) for level, side in zip(levels, self.sides, strict=True)
        ]
        return replace(self, sides=tuple(sides))

    def without(self, levels: "Ints", nodes: "Bools") -> "Problem":
        """The same problem where some nodes may not run at the levels given for them."""

        def take(level: int, side: LevelChoices) -> Iterable[Choice]:
            taken = (nodes & (levels == level)).tolist()
            return (Choice.HIGH if is_taken else held for is_taken, held in zip(taken, side.choices, strict=True))

        return self.rechosen(take)

    def split(self, threshold: int, levels: "Ints") -> Split:
        """The question of one threshold, where nodes run at `levels` so far and only those next to it may cross."""
        import numpy as np

        is_up = threshold >= self.line.base
        near, beyond = (threshold, threshold + 1) if is_up else (threshold + 1, threshold)
        far = self.allowed[beyond:] if is_up else self.allowed[: beyond + 1]
        reached = (levels == near) & ~self.is_absent
        may_cross = reached & far.any(axis=0)
        # What stands at the near level because it was led over it has to go on.
        may_stay = self.allowed[near]
        if near == self.line.base:
            here = self.allowed[: near + 1] if is_up else self.allowed[near:]
            may_stay = here.any(axis=0)
        codes = np.select(
            [self.is_absent, may_cross & may_stay, may_cross],
            [_CODES[Choice.ABSENT], _CODES[Choice.FREE], _CODES[Choice.LOW]],
            _CODES[Choice.HIGH],
        )
        members = list(Choice)
        order = range(beyond, len(self.line.levels)) if is_up else range(beyond, -1, -1)
        categories = self.side(beyond).categories
        if len(far) > 1:  # of a level that a node may not have, its policy's word does not count
            firsts = np.argmax(self.allowed[list(order)], axis=0).tolist()
            categories = tuple(self.side(order[first]).categories[node] for node, first in enumerate(firsts))
        return Split(
            graph=self.graph,
            choices=tuple([members[code] for code in codes.tolist()]),
            categories=categories,
            linked=self.linked[threshold],
            holds_low=self.held > threshold if is_up else self.held <= threshold,
            hands_on_high=self.hands_on_base,
        )


_CODES = {choice: code for code, choice in enumerate(Choice)}
