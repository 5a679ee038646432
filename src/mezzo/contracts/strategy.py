"""What a strategy is given and gives back, and what an assignment costs. A strategy is a pure function of a Problem."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from mezzo.contracts.problem import Problem
from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.ir.columns import Bools


class Strategy(ABC):
    """One algorithm. `name` is its option, `summary` its line in the table, `because` why a node follows another;
    `leaves` is the rule and reason of a node that nothing led to its precision; `also` are other words for it.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    because: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    leaves: ClassVar[tuple[str, str]] = ("strategy", "the strategy finds nothing around it to follow")

    @abstractmethod
    def assign(self, problem: Problem) -> Sequence[int]:
        """Say for each node at which level it runs. Must respect choices and `linked`; ABSENT nodes are ignored and
        stand at the base.
        """


def conversions(problem: Problem, levels: Sequence[int]) -> "list[tuple[int, int, int]]":
    """The conversions an assignment needs: (value, threshold, level that is made), one per value and form.

    A form is made where some use wants it, or one beyond it.
    """
    import numpy as np

    columns, made = problem.graph.columns, problem.made_at(levels)
    found = []
    for threshold, differs in _differing(problem, levels):
        for value in np.unique(columns.use_value[differs]).tolist():
            # One way only: whoever is on the maker's side reads it without crossing.
            found.append((value, threshold, threshold if made[value] > threshold else threshold + 1))
    return sorted(found)


def _differing(problem: Problem, levels: Sequence[int]) -> "Iterator[tuple[int, Bools]]":
    """By threshold, the uses that stand on the other side of it than what makes their value."""
    made, wanted = problem.made_at(levels)[problem.graph.columns.use_value], problem.wanted_at(levels)
    for threshold in problem.line.thresholds:
        yield threshold, problem.is_convertible & ((made > threshold) != (wanted > threshold))


def casts_of(problem: Problem, levels: Sequence[int]) -> list[tuple[int, DType]]:
    """The casts an assignment needs: one per value and dtype that some use wants and no form provides."""
    return [(value, problem.line.dtypes[level]) for value, _, level in conversions(problem, levels)]


def cost(problem: Problem, levels: Sequence[int]) -> int:
    """What an assignment costs: gains forgone, losses and penalties taken and casts made. Min-cut's is the least.

    In the unit of the problem's gains.
    """
    import numpy as np

    counts, at, gains = ~problem.is_absent, np.array(levels, np.int64), problem.gains
    taken = np.take_along_axis(gains, at[None], axis=0)[0]
    paid = sum((gains.max(axis=0) - taken)[counts].tolist())
    for level in problem.line.others:
        penalties = problem.side(level).penalties
        if penalties is not None:
            paid += sum(penalties[node] for node in np.flatnonzero(counts & (at == level)).tolist())
    return int(paid) + conversion_cost(problem, levels)


def conversion_cost(problem: Problem, levels: Sequence[int]) -> int:
    """What the conversions of an assignment cost: one for all who share it, and what single uses pay beside it."""
    import numpy as np

    columns, use_prices, found = problem.graph.columns, problem.use_prices, 0
    for threshold, differs in _differing(problem, levels):
        values = np.unique(columns.use_value[differs & problem.are_shared[threshold]])
        found += sum(problem.shared_prices[threshold, values].tolist())
        if use_prices is not None:
            found += sum(use_prices[threshold, differs].tolist())
    return found
