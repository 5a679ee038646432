"""Final plan of a search: it is verified on the converted model, with the account of the search."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mezzo.evaluate.data_session import DataSession
from mezzo.numerics.measures import (
    Comparison,
    Deviation,
    FrontierPoint,
    Measured,
    Ranges,
    Ruling,
    SearchRecord,
)
from mezzo.planner.options import Options
from mezzo.tuning.frontier import FrontierCandidate, predict
from mezzo.tuning.goals import MARGIN_UNSEEN, Goal, RunScore
from mezzo.tuning.measured_costs import Measurement
from mezzo.tuning.repair.attempts import check
from mezzo.tuning.repair.runtime_check import PlannedResult, check_on_runtime, convert_planned
from mezzo.tuning.storage.left_in_floats import LeftInFloats
from mezzo.tuning.timing.final_benchmark import race
from mezzo.tuning.tuner import Choosing, Tuner

if TYPE_CHECKING:
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided
    from mezzo.conversion.results import Converted

# How often a plan that fails on held-out data is made safer.
TIGHTENINGS = 3
# Of few samples the interval is wide, and says little; then no more is kept in reserve than by a
# search that has no held-out data.
_MOST_RESERVE = MARGIN_UNSEEN
_NOT_RUN = "the target does not run the result"


class _Verified(NamedTuple):
    """A result, its check, and its error or drop relative to the bound: measured, and the most that
    other data may have.
    """

    planned: PlannedResult
    comparison: Comparison
    excess: float
    unseen: float


@dataclass(kw_only=True)
class FinalPlan:
    """The plan that a tuner chooses. `measurement`: of costs on the target, if they were measured;
    `convert_alone` converts without a search, to a file if given a path. `checks` are counted.
    `goal`: that of the result, where the tuner's is for a part of its error; `stored_error`: the
    other part, of weights in blocks; `left`: stores what the tuner leaves in floats.
    """

    tuner: Tuner
    ranges: Ranges
    measurement: Measurement | None
    convert_alone: "Callable[[Path | None], Converted]"
    goal: Goal | None = None
    stored_error: float = 0.0
    left: LeftInFloats | None = None
    checks: int = 0

    def verified(self) -> "tuple[Decided, Artifact, Measured]":
        """Choose a plan, verify it, and tighten the budget if it fails. Returns the plan, the
        result and the account.
        """
        tuner, measurement = self.tuner, self.measurement
        slack = 1.0
        for attempt in range(TIGHTENINGS + 1):
            choosing = tuner.choose(slack)
            options, left_error = self._with_left(choosing, slack)
            verified = self._verify(convert_planned(tuner.model, options))
            excess = verified.unseen
            is_low = choosing.chosen.low_nodes or left_error
            if excess <= 1.0 or not is_low or attempt == TIGHTENINGS:
                break
            searched = 0.0 if choosing.score is None else tuner.goal.excess(choosing.score)
            slack = tightened(slack, excess, searched * tuner.goal.margin)
        notes = [] if measurement is None else [*measurement.notes]
        timing = runtime = None
        checked = check_on_runtime(
            tuner.model,
            verified.planned,
            tuner.session.judging,
            verified.comparison,
            may_change=True,
        )
        if checked is not None:
            notes += checked.notes
            runtime, timing = checked.check, checked.timing
            if checked.candidate is not verified.planned:
                verified = self._verify(checked.candidate)
        if measurement is not None and choosing.chosen.low_nodes:
            batch = next(iter(tuner.session.data))
            target = tuner.options.planning.target
            benchmark = race(
                tuner.model, verified.planned.result, self.convert_alone, target, batch
            )
            notes += benchmark.notes
            timing = benchmark.timing
            if not benchmark.is_faster:
                timing = None
                choosing = tuner.give_up(
                    "nothing that holds the budget is faster than FP32 here"
                    if benchmark.fault is None
                    else f"{_NOT_RUN}: {benchmark.fault}"
                )
                verified = self._verify(convert_planned(tuner.model, choosing.options))
                verified, left_error = verified._replace(excess=0.0), 0.0
        measured = replace(
            self._account(choosing, verified, notes, left_error), timing=timing, runtime=runtime
        )
        return verified.planned.decided, verified.planned.result, measured

    def _with_left(self, choosing: Choosing, slack: float) -> tuple[Options, float]:
        """The options of a plan, with storage of the weights that it leaves in floats, and the
        error predicted of that.
        """
        is_known = choosing.score is not None or not choosing.chosen.low_nodes
        if self.left is None or not is_known:
            return choosing.options, 0.0
        error = 0.0 if choosing.score is None else choosing.score.error
        graph = self.tuner.evaluator.graph
        return self.left.add_to(choosing.options, graph, choosing.chosen.levels, error, slack)

    def _verify(self, planned: PlannedResult) -> _Verified:
        """Compare the converted model with the original, on held-out data if there is any."""
        self.checks += 1
        tuner = self.tuner
        goal = self.goal or tuner.goal
        comparison = check(tuner.model, planned, tuner.session.judging, goal=goal)
        excess = excess_of(comparison, goal)
        unseen = unseen_excess_of(comparison, goal, tuner.session)
        return _Verified(planned, comparison, excess, unseen)

    def _account(
        self, choosing: Choosing, verified: _Verified, notes: Sequence[str], left_error: float
    ) -> Measured:
        tuner, comparison = self.tuner, verified.comparison
        largest = largest_error(comparison)
        # Limits of the data, from the search and from the last check.
        unknown = tuple(dict.fromkeys((*tuner.telling.unknown, *comparison.verdict.unknown)))
        scored = [(point, choosing.scores.get(point.key)) for point in choosing.points]
        prediction = predict([(p.error, s.error) for p, s in scored if s is not None])
        units = [] if choosing.sensitivity is None else choosing.sensitivity.units
        record = SearchRecord(
            budget=(
                comparison.verdict.budget
                if choosing.score is None
                else (self.goal or tuner.goal).bound(choosing.score)
            ),
            margin=tuner.goal.margin,
            evaluations=tuner.evaluations,
            partial_evaluations=tuner.probes,
            checks=self.checks,
            error=(
                largest
                if choosing.score is None
                else math.hypot(choosing.score.error, self.stored_error, left_error)
            ),
            held_out_error=None if tuner.session.held_out is None else largest,
            is_within_budget=verified.excess <= 1.0 and not unknown,
            stopped_by=choosing.stopped_by,
            time_s=tuner.session.limit.elapsed_s,
            costliest=units[0].name if units else None,
            unknown=unknown,
            prediction=prediction,
        )
        factor = 1.0 if prediction is None else prediction.factor
        data = self.ranges.data
        return Measured(
            data=tuner.session.data.source(data.batches, data.samples),
            ranges=self.ranges,
            comparison=comparison,
            sensitivity=choosing.sensitivity,
            costs=tuner.costs,
            frontier=tuple(_point(point, choosing, factor) for point in choosing.points),
            search=record,
            notes=(*comparison.notes, *notes),
        )


def excess_of(comparison: Comparison, goal: Goal) -> float:
    """The error or drop relative to its bound, without the margin: it allows for other data."""
    if any(output.fault for output in comparison.outputs):
        return math.inf
    metric = comparison.metric
    if goal.max_error is not None:  # each output has its own budget
        return max((_share(output) for output in comparison.outputs), default=0.0)
    drop, reference = (None, None) if metric is None else (metric.drop, metric.reference)
    return goal.excess(RunScore(largest_error(comparison), drop, reference))


def tightened(slack: float, unseen: float, searched: float) -> float:
    """The slack that a search takes instead of one whose plan failed: it leaves the plan out.

    `unseen`: the plan's excess on held-out data; `searched`: on the search's, margin included.
    """
    if not math.isfinite(unseen):
        return 4.0 * slack
    return 1.1 * unseen * max(slack, 1.0 / searched if searched else 0.0)


def unseen_excess_of(comparison: Comparison, goal: Goal, session: DataSession) -> float:
    """The excess that unseen data may have, by the 95 % interval of the error over held-out
    samples. Without held-out data, and for a metric, the excess itself: a search keeps its margin.
    """
    excess = excess_of(comparison, goal)
    if session.held_out is None or goal.max_error is None or not math.isfinite(excess):
        return excess
    return max((_share(output, reserve_of(output)) for output in comparison.outputs), default=0.0)


def reserve_of(output: Deviation) -> float:
    """The upper end of an error's interval over its estimate, at most that of unseen data."""
    error = output.relative_l2
    return min(error.high / error.estimate, _MOST_RESERVE) if error.estimate else 1.0


def largest_error(comparison: Comparison) -> float:
    """The largest relative L2 error of an output."""
    return max((output.relative_l2.estimate for output in comparison.outputs), default=0.0)


def _share(output: Deviation, reserve: float = 1.0) -> float:
    """An output's error, times a reserve, relative to its budget; 0 if the data cannot show it."""
    if output.ruling is Ruling.UNKNOWN:
        return 0.0
    error = output.relative_l2.estimate * reserve
    return error / output.budget if output.budget else math.inf if error > 0.0 else 0.0


def _point(point: FrontierCandidate, choosing: Choosing, factor: float) -> FrontierPoint:
    score = choosing.scores.get(point.key)
    error = None if score is None else score.error
    is_chosen = point.key == choosing.chosen.key
    return FrontierPoint(
        weight=point.weight,
        cost=point.cost,
        low_nodes=point.low_nodes,
        predicted_error=point.error * factor,
        error=error,
        is_chosen=is_chosen,
    )
