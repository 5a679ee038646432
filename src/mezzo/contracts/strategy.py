"""Strategy contract: a pure function from a Problem to a level per node. Assignment costs."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools


class Strategy(ABC):
    """One algorithm. `name`: its option; `summary`: its line in the table; `because`: why a node
    follows a neighbour; `leaves`: rule and reason of a node that follows nothing; `also`: aliases.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    because: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    leaves: ClassVar[tuple[str, str]] = (
        "strategy",
        "the strategy finds nothing around it to follow",
    )

    @abstractmethod
    def assign(self, problem: Problem) -> Sequence[int]:
        """The level of each node, within choices and `linked`; the base for ABSENT nodes."""


def conversions(problem: Problem, levels: Sequence[int]) -> "list[tuple[int, int, int]]":
    """The conversions that an assignment needs: (value, threshold, resulting level), one per value
    and form.

    A form is created if some use needs it or a level beyond it.
    """
    import numpy as np

    columns, produced = problem.graph.columns, problem.produced_levels(levels)
    conversions = []
    for threshold, differs in _differing(problem, levels):
        for value in np.unique(columns.use_value[differs]).tolist():
            # In one direction only: uses on the producer's side need no conversion.
            conversions.append(
                (value, threshold, threshold if produced[value] > threshold else threshold + 1)
            )
    return sorted(conversions)


def _differing(problem: Problem, levels: Sequence[int]) -> "Iterator[tuple[int, Bools]]":
    """By threshold: the uses on the other side of it than their value's producer."""
    produced, needed = (
        problem.produced_levels(levels)[problem.graph.columns.use_value],
        problem.needed_levels(levels),
    )
    for threshold in problem.line.thresholds:
        yield threshold, problem.is_convertible & ((produced > threshold) != (needed > threshold))


def casts_of(problem: Problem, levels: Sequence[int]) -> list[tuple[int, DType]]:
    """The casts that an assignment needs: one per value and dtype without a form. A conversion
    between two levels through the base is one cast, unless some use reads the base form.
    """
    line, columns = problem.line, problem.graph.columns
    reads_base = columns.use_value[
        problem.is_convertible & (problem.needed_levels(levels) == line.base)
    ]
    read_at_base = frozenset(reads_base.tolist())
    return [
        (value, line.dtypes[level])
        for value, _, level in conversions(problem, levels)
        if level != line.base or value in read_at_base
    ]


def cost(problem: Problem, levels: Sequence[int]) -> int:
    """Cost of an assignment, in the unit of the gains: gains forgone, penalties, casts. Min-cut's
    is minimal.
    """
    import numpy as np

    is_present, level_of, gains = ~problem.is_absent, np.array(levels, np.int64), problem.gains
    chosen_gains = np.take_along_axis(gains, level_of[None], axis=0)[0]
    total = sum((gains.max(axis=0) - chosen_gains)[is_present].tolist())
    for level in problem.line.others:
        penalties = problem.side(level).penalties
        if penalties is not None:
            total += sum(
                penalties[node]
                for node in np.flatnonzero(is_present & (level_of == level)).tolist()
            )
    return int(total) + conversion_cost(problem, levels)


def conversion_cost(problem: Problem, levels: Sequence[int]) -> int:
    """Cost of an assignment's conversions: shared ones once, plus those of single uses."""
    import numpy as np

    columns, use_prices, total = problem.graph.columns, problem.use_prices, 0
    for threshold, differs in _differing(problem, levels):
        values = np.unique(columns.use_value[differs & problem.are_shared[threshold]])
        total += sum(problem.shared_prices[threshold, values].tolist())
        if use_prices is not None:
            total += sum(use_prices[threshold, differs].tolist())
    return total
