"""Search for the cheapest frontier point whose measured error is within the budget, in few runs.

Predicted errors order the points correctly and are nearly proportional to measured ones; so each
measurement corrects the factor, and the next point is the cheapest that should hold. Only points
between a known failure and a known success are tried, so the search ends.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mezzo.tuning.frontier import FrontierCandidate

# Minimum relative gain in cost for which another evaluation is worthwhile.
_WORTHWHILE = 0.005


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation: the error, infinite if an output is broken, and whether the budget holds."""

    error: float
    holds: bool


@dataclass(frozen=True, slots=True)
class SearchEnd:
    """The end of a search. `best`: None if no point holds."""

    best: FrontierCandidate | None
    is_settled: bool  # no untried point could be much better


def search(
    points: Sequence[FrontierCandidate],
    evaluate: Callable[[FrontierCandidate], Evaluation | None],
    limit: float,
    may_go_on: Callable[[], bool],
    known: dict[str, Evaluation] | None = None,
) -> SearchEnd:
    """Find the cheapest of `points`, given cheapest first, that holds. `limit`: the largest error
    that should hold.

    `may_go_on` is called before each evaluation; the search ends if it returns False, or an
    evaluation returns None. `known`: outcomes from earlier searches.
    """
    tried = dict(known or {})
    factor = 1.0
    bad, good = -1, len(points)  # all up to `bad` fail, all from `good` on hold
    for at, point in enumerate(points):
        outcome = tried.get(point.key)
        if outcome is not None:
            bad, good = (bad, min(good, at)) if outcome.holds else (max(bad, at), good)
    while bad + 1 < good:
        if good < len(points) and points[good].cost - points[bad + 1].cost <= _WORTHWHILE * abs(
            points[good].cost
        ):
            break
        at = _next(points, bad, good, limit / factor)
        if points[at].key not in tried:
            evaluated = evaluate(points[at]) if may_go_on() else None
            if evaluated is None:
                return SearchEnd(points[good] if good < len(points) else None, False)
            tried[points[at].key] = evaluated
        outcome = tried[points[at].key]
        if outcome.holds:
            good = at
        else:
            bad = at
        if math.isfinite(outcome.error) and outcome.error > 0 and points[at].error > 0:
            factor = outcome.error / points[at].error
    return SearchEnd(points[good] if good < len(points) else None, True)


def _next(points: Sequence[FrontierCandidate], bad: int, good: int, limit: float) -> int:
    """The cheapest open point predicted to be within the limit, else the most accurate."""
    for at in range(bad + 1, good):
        if points[at].error <= limit:
            # Next to a known failure, a prediction is not trusted again: bisect instead of
            # advancing one by one.
            return (
                at
                if at > bad + 1 or bad < 0
                else min((bad + good) // 2 + (bad + good) % 2, good - 1)
            )
    return good - 1
