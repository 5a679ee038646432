"""Error prices: penalties per node and level for output error, and the cheapest plan."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mezzo.contracts.problem import Problem
from mezzo.contracts.strategy import Strategy, cost
from mezzo.ir.nodes import Kind
from mezzo.tuning.frontier import FrontierCandidate

# Above any model's costs: a node with this penalty stays at the base level.
_FORBIDDEN = 1 << 50


@dataclass(frozen=True, slots=True)
class UnitSquares:
    """A unit's nodes, by id, and the squared output error of the unit per low level; infinite if it
    breaks an output. Levels that are absent are covered by other units.
    """

    nodes: tuple[int, ...]
    by_level: Mapping[int, float]

    def price(self, weight: float, level: int) -> int:
        """One node's penalty for its share of the unit's error at a level, as an integer."""
        square = self.by_level[level]
        if square == 0.0 or (weight == 0.0 and math.isfinite(square)):
            return 0
        is_finite = math.isfinite(square) and math.isfinite(weight)
        price = weight * square / len(self.nodes) if is_finite else math.inf
        return _FORBIDDEN if price >= _FORBIDDEN else math.ceil(price)

    def square_of(self, levels: Sequence[int], base: int) -> float:
        """The unit's squared error in an assignment: that of the worst level of its nodes."""
        return max(
            (self.by_level.get(levels[node], 0.0) for node in self.nodes if levels[node] != base),
            default=0.0,
        )


def with_prices(problem: Problem, units: Sequence[UnitSquares], weight: float) -> Problem:
    """The problem with penalties for each node's error at each level, at `weight` per squared
    error, added to existing penalties.
    """
    sides = list(problem.sides)
    low_levels = [level for level in range(len(problem.line.levels)) if level != problem.line.base]
    for position, level in enumerate(low_levels):
        penalties = [*(sides[position].penalties or (0,) * len(problem.graph.nodes))]
        for unit in units:
            for node in unit.nodes if level in unit.by_level else ():
                penalties[node] += unit.price(weight, level)
        sides[position] = replace(sides[position], penalties=tuple(penalties))
    return replace(problem, sides=tuple(sides))


def solve(
    problem: Problem, units: Sequence[UnitSquares], weight: float, strategy: Strategy
) -> FrontierCandidate:
    """The optimum of cost + weight * squared error, exact if the strategy is and units are single
    nodes; larger units split their penalty among nodes. The cost excludes penalties.
    """
    levels = strategy.assign(with_prices(problem, units, weight))
    base = problem.line.base
    ran_at = np.where(problem.is_absent, base, np.array(levels, np.int64))
    by_node: list[int] = ran_at.tolist()
    square = sum(unit.square_of(by_node, base) for unit in units)
    low_nodes = int(((ran_at != base) & problem.graph.columns.is_kind(Kind.OP)).sum())
    marks = b"".join(np.packbits(ran_at == level).tobytes() for level in problem.line.others)
    key = hashlib.sha256(marks).hexdigest()[:32]
    return FrontierCandidate(
        weight=weight,
        cost=cost(problem, levels),
        square=square,
        low_nodes=low_nodes,
        key=key,
        levels=levels,
    )
