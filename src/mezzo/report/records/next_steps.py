"""The next step after a result."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mezzo.contracts.plans import Plan
from mezzo.report.layout.numbers import round_up
from mezzo.report.records.groups import choose_example, group_high_nodes, runs_low
from mezzo.report.records.headline import Aim, Move, ResultStanding
from mezzo.report.records.speeds import Speed
from mezzo.report.records.trust import bounds_errors

if TYPE_CHECKING:
    from mezzo.numerics.measures import Comparison, Measured

# A faster target installed here, and the format that it is faster in.
Alternative = tuple[str, str]


def retarget(better: Alternative | None) -> Aim:
    """Use the faster target, or look for one."""
    return (
        Aim(Move.RETARGET)
        if better is None
        else Aim(Move.RETARGET, {"target": better[0], "to": better[1]})
    )


def after_judging(
    standing: ResultStanding,
    comparison: "Comparison",
    plan: Plan,
    speed: Speed,
    better: Alternative | None,
) -> Aim:
    """The next step for a result with a verdict."""
    if standing is ResultStanding.WRONG:
        return Aim(Move.TUNE)
    if standing is ResultStanding.OPEN:
        return Aim(Move.MEASURE)
    if standing is ResultStanding.UNREFUTED:
        return Aim(Move.JUDGE_ON_OWN_DATA)
    if speed.is_faster is False and runs_low(plan):
        return retarget(better)
    if group_high_nodes(plan):
        return Aim(
            Move.TUNE,
            {"max_error": _round(comparison.verdict.budget)} if bounds_errors(comparison) else {},
        )
    return explain_example(plan)


def explain_example(plan: Plan) -> Aim:
    """Ask why a node of the plan stays high."""
    node = choose_example(plan)
    words: Mapping[str, str] = {} if node is None else {"node": node.name}
    return Aim(Move.EXPLAIN, words)


def allow_more(measured: "Measured") -> Aim | None:
    """The smallest budget with a low node on the frontier, as a next step; None if unknown."""
    comparison, search = measured.comparison, measured.search
    if (
        comparison is None
        or search is None
        or (comparison.metric is not None and not bounds_errors(comparison))
    ):
        return None
    errors = [point.best_error for point in measured.frontier if point.low_nodes]
    smallest = min((error for error in errors if 0 < error < math.inf), default=None)
    return (
        None
        if smallest is None
        else Aim(Move.LOOSEN, {"max_error": _round(smallest * search.margin)})
    )


def loosen(comparison: "Comparison", plan: Plan) -> Aim:
    """Search with a budget that the result's error is within."""
    error = comparison.verdict.error.estimate
    if comparison.metric is not None and not bounds_errors(comparison):
        return explain_example(plan)
    return Aim(Move.LOOSEN, {"max_error": _round(1.5 * error)})


def _round(error: float) -> str:
    """A bound to ask for."""
    return round_up(error) if 0 < error < math.inf else "1e-3"
