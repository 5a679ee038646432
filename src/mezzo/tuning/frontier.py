"""Exact cost-error frontier: each point is the optimum for one price of error."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzo.numerics.measures import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierCandidate:
    """The cheapest assignment at one price of error.

    `weight`: that price, not part of `cost`; `square`: predicted squared error; `key`: identity.
    """

    weight: float
    cost: float
    square: float
    low_nodes: int
    key: str
    levels: Sequence[int] = field(repr=False, compare=False)

    @property
    def error(self) -> float:
        """The predicted relative L2 error."""
        return math.sqrt(self.square)


def trace(solve: Callable[[float], FrontierCandidate], most: int) -> tuple[FrontierCandidate, ...]:
    """Trace the frontier with at most `most` solutions, cheapest and least accurate first.

    `solve` returns the exact optimum of cost + weight * squared error. Optima are vertices of the
    lower convex hull of all assignments; the price at which two adjacent vertices tie yields the
    vertex between them, or proves that there is none. The widest gaps are closed first.
    """
    cheapest, safest = solve(0.0), solve(math.inf)
    by_key = {cheapest.key: cheapest}
    by_key.setdefault(safest.key, safest)
    gaps: list[tuple[float, int, FrontierCandidate, FrontierCandidate]] = []
    solved = 2

    def note(left: FrontierCandidate, right: FrontierCandidate) -> None:
        if left.square > right.square and left.cost < right.cost:
            width = math.log(max(left.square, 1e-300)) - math.log(
                max(right.square, left.square * 1e-12, 1e-300)
            )
            heapq.heappush(gaps, (-width, len(gaps) + solved, left, right))

    note(cheapest, safest)
    while gaps and solved < most:
        _, _, left, right = heapq.heappop(gaps)
        weight = (right.cost - left.cost) / (left.square - right.square)
        middle = solve(weight)
        solved += 1
        if middle.key in by_key:
            continue
        by_key[middle.key] = middle
        note(left, middle)
        note(middle, right)
    return _hull(tuple(by_key.values()))


def predict(pairs: Sequence[tuple[float, float]]) -> Prediction | None:
    """Accuracy of predicted errors, from (predicted, measured) pairs; None without any."""
    ratios = [
        measured / predicted
        for predicted, measured in pairs
        if 0.0 < predicted < math.inf and 0.0 < measured < math.inf
    ]
    if not ratios:
        return None
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return Prediction(factor, min(ratios) / factor, max(ratios) / factor, len(ratios))


def _hull(candidates: Sequence[FrontierCandidate]) -> tuple[FrontierCandidate, ...]:
    """Pareto-optimal candidates in cost and error, cheapest first."""
    pareto: list[FrontierCandidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.cost, c.square, c.key)):
        if not pareto or candidate.square < pareto[-1].square:
            pareto.append(candidate)
    return tuple(pareto)
