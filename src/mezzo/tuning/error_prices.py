"""Errors as prices: what a plan pays for each unit at each level, and the cheapest plan at one price of error."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import Strategy, cost
from mezzo.ir.nodes import Kind
from mezzo.tuning.frontier import Candidate

# More than any model's costs: what is priced so never leaves the base.
_FORBIDDEN = 1 << 50


@dataclass(frozen=True, slots=True)
class UnitSquares:
    """Nodes that are judged together, by id, and the squared error that they make at levels beside the base; infinite
    where they break an output there. At a level that is not named others judge them.
    """

    nodes: tuple[int, ...]
    by_level: Mapping[int, float]

    def price(self, weight: float, level: int) -> int:
        """What one node pays for its share of the unit's error at a level, as an integer."""
        square = self.by_level[level]
        if square == 0.0 or (weight == 0.0 and math.isfinite(square)):
            return 0
        is_finite = math.isfinite(square) and math.isfinite(weight)
        price = weight * square / len(self.nodes) if is_finite else math.inf
        return _FORBIDDEN if price >= _FORBIDDEN else math.ceil(price)

    def square_of(self, levels: Sequence[int], base: int) -> float:
        """The unit's part of an assignment's squared error: that of the worst level at which some of it runs."""
        return max((self.by_level.get(levels[node], 0.0) for node in self.nodes if levels[node] != base), default=0.0)


def with_prices(problem: Problem, units: Sequence[UnitSquares], weight: float) -> Problem:
    """The problem where every node pays for its error at every level, at a price per squared error, beside what it pays
    there already.
    """
    sides = list(problem.sides)
    beside = [level for level in range(len(problem.line.levels)) if level != problem.line.base]
    for place, level in enumerate(beside):
        penalties = [*(sides[place].penalties or (0,) * len(problem.graph.nodes))]
        for unit in units:
            for node in unit.nodes if level in unit.by_level else ():
                penalties[node] += unit.price(weight, level)
        sides[place] = replace(sides[place], penalties=tuple(penalties))
    return replace(problem, sides=tuple(sides))


def solve(problem: Problem, units: Sequence[UnitSquares], weight: float, strategy: Strategy) -> Candidate:
    """The optimum of cost + weight * squared error, where the strategy is exact and units are single nodes; units of
    several share their price out. The cost is the problem's own, without what errors cost.
    """
    levels = strategy.assign(with_prices(problem, units, weight))
    base = problem.line.base
    ran_at = np.where(problem.is_absent, base, np.array(levels, np.int64))
    by_node: list[int] = ran_at.tolist()
    square = sum(unit.square_of(by_node, base) for unit in units)
    low_nodes = int(((ran_at != base) & problem.graph.columns.is_kind(Kind.OP)).sum())
    marks = b"".join(np.packbits(ran_at == level).tobytes() for level in problem.line.others)
    key = hashlib.sha256(marks).hexdigest()[:32]
    return Candidate(
        weight=weight, cost=cost(problem, levels), square=square, low_nodes=low_nodes, key=key, levels=levels
    )
