"""What a strategy is given and gives back, and what an assignment costs. A strategy is a pure function of a Problem."""

import enum
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from mezzo.dtypes import DType
from mezzo.facts import Cost
from mezzo.graph import Graph, Kind, Role
from mezzo.policy import GRANTED, Category
from mezzo.target import Costs

if TYPE_CHECKING:
    from mezzo.columns import Bools, Ints


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

    `gains`: per node id, what it saves by running low; below 0 where low costs more. `cast_prices`: per value id, what
    one cast of the value costs as often as it runs; at least 0.
    """

    gains: tuple[int, ...]
    cast_prices: tuple[int, ...]


@dataclass(frozen=True)
class Problem:
    """A graph with what is wanted and possible, per node id. Two precisions; `linked` nodes must agree.

    `choices` already unite policy, target, schema and the caller's contract; `categories` matter where FREE. `worths`
    say for how many casts each node is worth running low. `penalties` are paid by nodes that run low, for the error
    they make, in the unit of the costs; at least 0, and of any size: one that no gain outweighs means "never low".
    `measured` takes the place of what categories, worths and `prices` say of gains and casts.
    """

    graph: Graph
    high: DType
    low: DType
    choices: tuple[Choice, ...]
    categories: tuple[Category | None, ...]
    worths: tuple[int, ...]
    costs_of: tuple[Cost | None, ...]
    prices: Costs
    # Nodes whose result counts as high though they run low: they hand it on through a cast, which other nodes that run
    # low need not read.
    hands_on_high: frozenset[int] = frozenset()
    penalties: tuple[int, ...] | None = None
    measured: MeasuredCosts | None = None

    @cached_property
    def _choice_codes(self) -> "Ints":
        import numpy as np

        codes = {choice: code for code, choice in enumerate(Choice)}
        return np.array([codes[choice] for choice in self.choices], np.int64)

    def has_choice(self, choice: Choice) -> "Bools":
        """Which nodes have a choice."""
        found: Bools = self._choice_codes == list(Choice).index(choice)
        return found

    @cached_property
    def linked(self) -> tuple[int, ...]:
        """Per node the smallest id of the nodes it must agree with: those that share a value that cannot be cast."""
        parent = list(range(len(self.graph.nodes)))

        def find(node: int) -> int:
            while parent[node] != node:
                parent[node] = parent[parent[node]]
                node = parent[node]
            return node

        for number, value in enumerate(self.graph.values):
            if value.is_castable:
                continue
            for use in self.graph.uses[number]:
                node = self.graph.nodes[use.node]
                if node.signature.inputs[use.operand] is Role.ANY:
                    continue
                first, second = sorted((find(value.producer), find(use.node)))
                parent[second] = first
        return tuple(find(node) for node in range(len(parent)))

    @cached_property
    def gains(self) -> "Ints":
        """What each node saves by running low, in the unit of `Costs` or of what was measured: there maybe below 0."""
        import numpy as np

        if self.measured is not None:
            counts = self.graph.columns.is_kind(Kind.OP) & ~self.has_choice(Choice.ABSENT)
            return np.where(counts, np.array(self.measured.gains, np.int64), 0)
        return self._table_gains()

    def _table_gains(self) -> "Ints":
        import numpy as np

        from mezzo.columns import GROUP

        columns, size = self.graph.columns, len(self.graph.nodes)
        read_by, made_by = columns.use_role == GROUP, columns.value_role == GROUP
        read = np.zeros(size, np.int64)
        np.add.at(read, columns.use_node[read_by], columns.value_elements[columns.use_value[read_by]])
        made = np.zeros(size, np.int64)
        np.add.at(made, columns.value_producer[made_by], columns.value_elements[made_by])
        moved = 2 * (read + made) * columns.node_repeats  # two bytes fewer for each element read or written
        resizes = np.maximum(read, made) > 2 * np.minimum(read, made)
        counts = columns.is_kind(Kind.OP) & np.array(
            [c is not None and c is not Category.CLEAR for c in self.categories], bool
        )
        worths = np.array(self.worths, np.int64)
        is_allowed = np.array([category is Category.ALLOW for category in self.categories], bool)
        # Much smaller or larger than what it reads (Slice, Expand): cast where it is small.
        is_moving = np.array([cost is Cost.MOVEMENT for cost in self.costs_of], bool)
        is_allowed &= ~(resizes & is_moving & (worths < GRANTED))
        factors = np.where([cost in _HEAVY for cost in self.costs_of], self.prices.linear_factor, 1)
        wanted = worths * self.prices.cast_launch * columns.node_repeats + moved * factors
        return np.where(counts, np.where(is_allowed, wanted, moved), 0)

    @cached_property
    def cast_prices(self) -> "Ints":
        """Price of one cast of each value: it reads one form and writes the other, as often as its scope runs."""
        import numpy as np

        if self.measured is not None:
            return np.array(self.measured.cast_prices, np.int64)
        columns = self.graph.columns
        return (self.prices.cast_launch + 6 * columns.value_elements) * columns.value_repeats

    @cached_property
    def is_planned(self) -> "Bools":
        """Which values hold one of the two precisions today, and are made by an operator, an input or a tie."""
        columns = self.graph.columns
        held = columns.holds(self.high) | columns.holds(self.low)
        found: Bools = held & ~columns.is_kind(Kind.SOURCE)[columns.value_producer]
        return found


_HEAVY = frozenset({Cost.LINEAR, Cost.ATTENTION, Cost.RECURRENT})


class Strategy(ABC):
    """One algorithm. `name` is its option, `summary` its line in the table, `because` why a node follows another;
    `leaves` is the rule and reason of a node that nothing led to its precision.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    because: ClassVar[str]
    leaves: ClassVar[tuple[str, str]] = ("strategy", "the strategy finds nothing around it to follow")

    @abstractmethod
    def assign(self, problem: Problem) -> Sequence[bool]:
        """Say for each node whether it runs low. Must respect `choices` and `linked`; ABSENT nodes are ignored."""


def casts_of(problem: Problem, is_low: Sequence[bool]) -> list[tuple[int, DType]]:
    """The casts an assignment needs: one per value and dtype that some use wants and no form provides."""
    import numpy as np

    from mezzo.columns import ANY

    columns, low = problem.graph.columns, np.array(is_low, bool)
    made, wanted = columns.made_in(problem.low, low), columns.wanted_in(problem.low, low)
    differs = problem.is_planned[columns.use_value] & (columns.use_role != ANY) & (made[columns.use_value] != wanted)
    values = np.unique(columns.use_value[differs]).tolist()
    return [(value, problem.high if made[value] else problem.low) for value in values]


def cost(problem: Problem, is_low: Sequence[bool]) -> int:
    """What an assignment costs: gains forgone, losses and penalties taken and casts made. Min-cut's is the least.

    In the unit of the problem's gains.
    """
    import numpy as np

    counts, low, gains = ~problem.has_choice(Choice.ABSENT), np.array(is_low, bool), problem.gains
    forgone = sum(gains[counts & ~low & (gains > 0)].tolist()) - sum(gains[counts & low & (gains < 0)].tolist())
    paid = 0
    if problem.penalties is not None:
        pairs = zip(problem.penalties, (counts & low).tolist(), strict=True)
        paid = sum(penalty for penalty, runs_low in pairs if runs_low)
    prices = problem.cast_prices
    return int(forgone + paid + sum(int(prices[value]) for value, _ in casts_of(problem, is_low)))
