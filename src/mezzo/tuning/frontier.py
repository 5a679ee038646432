"""The frontier between cost and error, traced exactly: each point is the optimum for one price of error."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mezzo.numerics.measures import Prediction


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """The cheapest assignment at one price of error.

    `weight` is that price in cost units per squared error; `cost` is without it; `square` is the predicted squared
    error. `key` names the assignment.
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


def trace(solve: Callable[[float], Candidate], most: int) -> tuple[Candidate, ...]:
    """Trace the frontier with at most `most` solutions, the cheapest and least accurate point first.

    `solve` gives the exact optimum of cost + weight * squared error. The optima are the corners of the lower convex
    hull of all assignments; between two known corners the price at which both are equal finds the next one, or shows
    that there is none. The widest gaps are closed first.
    """
    cheapest, safest = solve(0.0), solve(math.inf)
    by_key = {cheapest.key: cheapest}
    by_key.setdefault(safest.key, safest)
    gaps: list[tuple[float, int, Candidate, Candidate]] = []
    solved = 2

    def note(left: Candidate, right: Candidate) -> None:
        if left.square > right.square and left.cost < right.cost:
            width = math.log(max(left.square, 1e-300)) - math.log(max(right.square, left.square * 1e-12, 1e-300))
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
    """How well errors were predicted, by (predicted, measured) pairs; None where none tells."""
    ratios = [measured / said for said, measured in pairs if 0.0 < said < math.inf and 0.0 < measured < math.inf]
    if not ratios:
        return None
    factor = math.exp(math.fsum(map(math.log, ratios)) / len(ratios))
    return Prediction(factor, min(ratios) / factor, max(ratios) / factor, len(ratios))


def _hull(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Candidates that no other beats in both cost and error, the cheapest first."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.cost, c.square, c.key)):
        if not kept or candidate.square < kept[-1].square:
            kept.append(candidate)
    return tuple(kept)
