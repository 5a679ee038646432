"""Finds the cheapest point of a frontier that holds its budget when it is really run, in few runs.

Predictions order the points and are nearly proportional to what is measured; so each measurement corrects the factor,
and the next point to try is the cheapest that should hold. Points between a known good and a known bad one are all
that is ever tried, so the search ends.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mezzo.tuning.frontier import Candidate

# A plan that is cheaper by less than this share is not worth another evaluation.
_WORTHWHILE = 0.005


@dataclass(frozen=True, slots=True)
class Outcome:
    """One evaluation: the error, infinite where an output is broken, and whether the budget holds."""

    error: float
    holds: bool


@dataclass(frozen=True, slots=True)
class Found:
    """Where a search ended. `best` is None if no point holds; `tried` has the outcome of each point by its key."""

    best: Candidate | None
    tried: dict[str, Outcome]
    is_settled: bool  # no untried point could be better by much


def search(
    points: Sequence[Candidate],
    evaluate: Callable[[Candidate], Outcome | None],
    limit: float,
    may_go_on: Callable[[], bool],
    known: dict[str, Outcome] | None = None,
) -> Found:
    """Find the cheapest of `points`, the cheapest first, that holds. `limit` is the error that should just hold.

    `may_go_on` is asked before each evaluation, and one that gives None had to end on its way: so does the search.
    `known` are outcomes from before.
    """
    tried = dict(known or {})
    factor = 1.0
    bad, good = -1, len(points)  # everything up to `bad` fails, everything from `good` on holds
    for at, point in enumerate(points):
        outcome = tried.get(point.key)
        if outcome is not None:
            bad, good = (bad, min(good, at)) if outcome.holds else (max(bad, at), good)
    while bad + 1 < good:
        if good < len(points) and points[good].cost - points[bad + 1].cost <= _WORTHWHILE * abs(points[good].cost):
            break
        at = _next(points, bad, good, limit / factor)
        if points[at].key not in tried:
            evaluated = evaluate(points[at]) if may_go_on() else None
            if evaluated is None:
                return Found(points[good] if good < len(points) else None, tried, False)
            tried[points[at].key] = evaluated
        outcome = tried[points[at].key]
        if outcome.holds:
            good = at
        else:
            bad = at
        if math.isfinite(outcome.error) and outcome.error > 0 and points[at].error > 0:
            factor = outcome.error / points[at].error
    return Found(points[good] if good < len(points) else None, tried, True)


def _next(points: Sequence[Candidate], bad: int, good: int, limit: float) -> int:
    """The cheapest open point whose prediction is within the limit; if none is, the safest; never the same twice."""
    for at in range(bad + 1, good):
        if points[at].error <= limit:
            # A prediction beside a known failure is not trusted twice: halve the way instead of creeping.
            return at if at > bad + 1 or bad < 0 else min((bad + good) // 2 + (bad + good) % 2, good - 1)
    return good - 1
