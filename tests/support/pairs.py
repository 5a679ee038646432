"""Problems of two levels, said in one breath: FP32, which is level 0, and one format beside it, which is level 1."""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from mezzo.contracts.problem import Choice, LevelChoices, MeasuredCosts, Problem, Split
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import PrecisionLine, line_of
from mezzo.ir.graph import Graph
from mezzo.tables.facts import Cost
from mezzo.tables.policy import Category
from mezzo.tables.target import Costs

F16_LINE = line_of(HIGH, DType.FLOAT16)
BF16_LINE = line_of(HIGH, DType.BFLOAT16)
_SIDE_FIELDS = frozenset(field.name for field in fields(LevelChoices))


def pair_problem(
    graph: Graph,
    choices: Sequence[Choice],
    categories: Sequence[Category | None] | None = None,
    worths: Sequence[int] | None = None,
    costs_of: Sequence[Cost | None] | None = None,
    prices: Costs | None = None,
    line: PrecisionLine = F16_LINE,
) -> Problem:
    """A problem whose one side is given by its columns: operators that only follow, unless something else is said."""
    size = len(graph.nodes)
    side = LevelChoices(tuple(choices), tuple(categories or (Category.INFER,) * size), tuple(worths or (0,) * size))
    return Problem(
        graph=graph, line=line, sides=(side,), costs_of=tuple(costs_of or (None,) * size), prices=prices or Costs()
    )


def side_of(problem: Problem) -> LevelChoices:
    """The level beside FP32."""
    (side,) = problem.sides
    return side


def with_fields(problem: Problem, **changes: object) -> Problem:
    """The problem with fields changed: its own, or those of its one side."""
    of_side = {name: value for name, value in changes.items() if name in _SIDE_FIELDS}
    own = {name: value for name, value in changes.items() if name not in _SIDE_FIELDS}
    side = replace(side_of(problem), **of_side)  # type: ignore[arg-type]  # fields by name
    return replace(problem, sides=(side,), **own)  # type: ignore[arg-type]  # fields by name


def split_of(problem: Problem) -> Split:
    """The one threshold of the problem, as colouring strategies see it."""
    return problem.split(0, np.zeros(len(problem.graph.nodes), np.int64))


def pair_costs(gains: Sequence[int], prices: Sequence[int]) -> MeasuredCosts:
    """Measured gains by node of running low, and prices of a cast by value."""
    return MeasuredCosts(((0,) * len(gains), tuple(gains)), (tuple(prices),))
