"""Attempts at a conversion by measured ranges, each checked on data by emulation. Merely suspected
nodes are cleared first; protection and FP32 nodes return until the outputs are within budget.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mezzo.contracts.corrections import BIAS
from mezzo.contracts.strategy import cost
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.answers import ComparisonOptions, compare_models
from mezzo.evaluate.data_session import DataSession
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling
from mezzo.numerics.ranges.range_evidence import can_tell
from mezzo.planner.options import Options
from mezzo.quantize.corrections import correct_biases
from mezzo.tuning.evaluator import Evaluator, few_samples
from mezzo.tuning.goals import Goal, ScoreCache, shares_of
from mezzo.tuning.repair.float_fallback import without_last
from mezzo.tuning.repair.range_findings import count_lifted, with_lifts, with_protection
from mezzo.tuning.repair.runtime_check import PlannedResult, convert_planned
from mezzo.tuning.tuner import Choosing, Tuner

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.conversion.decided import Decided

# The check's budget is divided by the margin for cleared nodes: other data may be worse. Nodes to
# return to FP32 are chosen on few samples, with a larger margin, and checked on all data at most
# `_RETURNS` times.
_MARGIN, _MARGIN_ON_FEW = 1.25, 1.5
_RETURNS = 2
# Limits on a repair's passes over the data.
_EVALUATIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt(PlannedResult):
    """One conversion with its check. `options` reproduce it, unless `has_biases`: its result has
    corrected biases.
    """

    measured: Measured
    has_biases: bool = False

    @property
    def comparison(self) -> Comparison:
        assert self.measured.comparison is not None, "an attempt is checked"
        return self.measured.comparison

    @property
    def is_wrong(self) -> bool:
        """Whether the outputs exceed the budget or have a fault; undecided ones do not count."""
        return is_wrong(self.comparison)

    def measuring(self, *notes: str, **fields: object) -> "Attempt":
        """A copy with other measurements, and more notes."""
        measured = replace(self.measured, notes=(*self.measured.notes, *notes), **fields)  # type: ignore[arg-type]  # its own fields
        return replace(self, measured=measured)


def is_wrong(comparison: Comparison) -> bool:
    """Whether outputs exceed the budget or have a fault."""
    return comparison.verdict.error.estimate > comparison.verdict.budget or _has_fault(comparison)


def _holds(comparison: Comparison) -> bool:
    """Whether the outputs hold the budget with the margin for cleared nodes."""
    verdict = comparison.verdict
    return verdict.error.estimate * _MARGIN <= verdict.budget and not _has_fault(comparison)


def _has_fault(comparison: Comparison) -> bool:
    return any(output.fault for output in comparison.outputs)


def check(
    model: "Model",
    planned: PlannedResult,
    data: Dataset,
    *,
    goal: Goal | None = None,
    known: Comparison | None = None,
) -> Comparison:
    """Compare a result with the source model by emulation, within a goal or the default budget of
    its low format, with sums as the goal's or the target's. `known`: an earlier comparison on the
    data.
    """
    planning = planned.options.planning
    sums = (None if goal is None else goal.accumulation) or planning.sums
    options = ComparisonOptions(low=planning.low, known=known, accumulation=sums)
    if goal is not None:
        options = replace(
            options, max_error=goal.max_error, metric=goal.metric, max_drop=goal.max_drop
        )
    return compare_models(model.given, model.runnable(planned.result), data, options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Attempts at converting one model by its ranges. `data` judges; `scores` of searches are
    stored.
    """

    model: "Model"
    data: Dataset
    ranges: Ranges
    scores: ScoreCache

    def best(self, options: Options, scale_data: Dataset | None) -> Attempt:
        """Convert with cleared nodes if the outputs hold, otherwise with full protection.
        `scale_data`: the data of scales, if other data judges; biases are corrected on it if
        requested.
        """
        # Random data may forbid low precision, but never justifies it.
        lifted = None if self.data.seed is not None else self._lift(options)
        attempt = lifted or self._protect(options)
        if attempt.is_wrong:
            attempt = self._with_last_in_floats(attempt)
        if BIAS in options.steps and scale_data is not None and scale_data.seed is None:
            return self._with_biases(attempt, scale_data)
        return attempt

    def _attempt(self, options: Options, *notes: str, known: Comparison | None = None) -> Attempt:
        planned = convert_planned(self.model, options)
        measured = Measured(
            data=self.ranges.data,
            ranges=self.ranges,
            comparison=check(self.model, planned, self.data, known=known),
            notes=notes,
        )
        return Attempt(
            decided=planned.decided, result=planned.result, options=options, measured=measured
        )

    def _lift(self, options: Options) -> Attempt | None:
        """Convert with cleared nodes, and return nodes to FP32 by their error if the check fails
        its margin. None if no node is cleared, none of the results holds, or the data is
        inconclusive.
        """
        model, ranges = self.model, self.ranges
        graph = judge_model(model, options)[1].problem.graph
        if ranges.unknown or not can_tell(graph, ranges.values):
            return None
        lifted = with_lifts(model, options, ranges)
        count = count_lifted(model, options, lifted, ranges)
        if not count:
            return None
        attempt = self._attempt(lifted, f"calibration data cleared {count}")
        if attempt.comparison.verdict.ruling is Ruling.UNKNOWN:
            return None  # no evidence that the cleared nodes fit
        if _holds(attempt.comparison):
            return attempt
        if not _knows_prices(options):
            return None
        tuner = self._tuner_on_few(attempt)
        returned = self._put_back(tuner, attempt)
        if returned is None:
            return None
        protected = with_protection(model, options, ranges)
        if _is_cheaper(convert_model(model, protected, None)[0], returned.decided):
            other = self._protect(options, tuner.evaluator, attempt.comparison)
            if not other.is_wrong and _is_cheaper(other.decided, returned.decided):
                return other
        return returned

    def _protect(
        self, options: Options, like: Evaluator | None = None, known: Comparison | None = None
    ) -> Attempt:
        """Convert with all protection, from structure and data, and repair a result that fails its
        check. `like`: evaluator of an earlier search; `known`: as in `check`.
        """
        protected = with_protection(self.model, options, self.ranges)
        attempt = self._attempt(protected, known=known)
        if attempt.is_wrong and _knows_prices(options):
            return self._repair(attempt, like)
        return attempt

    def _tuner_on_few(self, lifted: Attempt) -> Tuner:
        """A tuner that selects, on few samples, nodes to return to FP32."""
        goal = Goal(
            max_error=lifted.comparison.verdict.budget,
            margin=_MARGIN_ON_FEW,
            accumulation=lifted.options.planning.sums,
            shares=shares_of(lifted.comparison),
        )
        session, scores = DataSession(data=self.data), self.scores.within("what was lifted")
        tuner = Tuner(self.model, lifted.options, goal, session, scores)
        few = few_samples(tuner.evaluator, next(self.data.filled()))
        tuner.session = session.on(Dataset(few.origin, lambda: iter([few]), self.data.seed))
        return tuner

    def _put_back(self, tuner: Tuner, lifted: Attempt) -> Attempt | None:
        """Return nodes to FP32 by error until the check holds. None if no low node remains."""
        slack = 1.0
        for _ in range(_RETURNS):
            choosing = tuner.choose(slack)
            if not choosing.chosen.low_nodes:
                return None
            returned = self._returned(lifted, choosing, "with all of that lifted")
            if _holds(returned.comparison):
                return returned
            slack *= 2.0
        return None

    def _repair(self, failed: Attempt, like: Evaluator | None) -> Attempt:
        """Return nodes to FP32, largest error first, until the check holds."""
        budget, shares = failed.comparison.verdict.budget, shares_of(failed.comparison)
        choosing = Tuner(
            self.model,
            failed.options,
            Goal(
                max_error=budget,
                margin=1.0,
                accumulation=failed.options.planning.sums,
                shares=shares,
            ),
            DataSession(data=self.data),
            self.scores.within("repair"),
            most_evaluations=_EVALUATIONS,
            like=like,
        ).choose()
        return self._returned(failed, choosing, "by the ranges alone")

    def _returned(self, failed: Attempt, choosing: Choosing, how: str) -> Attempt:
        """The attempt with the nodes in FP32 that a search chose. `how` the failed one was made."""
        note = (
            f"{how} the answers were off ({failed.comparison.verdict.because}); nodes went back to"
            f" FP32 by what their error costs: {choosing.stopped_by}"
        )
        returned = self._attempt(
            choosing.options, *failed.measured.notes, note, known=failed.comparison
        )
        return returned.measuring(sensitivity=choosing.sensitivity, shares_data=True)

    def _with_last_in_floats(self, wrong: Attempt) -> Attempt:
        """The attempt with the fewest last quantized layers in floats that make the outputs right;
        unchanged if none do.
        """
        because = wrong.comparison.verdict.because
        for names, options in without_last(
            wrong.decided, wrong.options, f"with it the answers are wrong: {because}"
        ):
            note = (
                f"{len(names)} of the products nearest to the outputs went back to floats"
                f" ({because}): {names[0]}"
            )
            attempt = self._attempt(options, *wrong.measured.notes, note, known=wrong.comparison)
            if not attempt.is_wrong:
                return attempt
        return wrong

    def _with_biases(self, attempt: Attempt, scale_data: Dataset) -> Attempt:
        """The attempt with bias correction, if that lowers the error on the judging data."""
        made = attempt.decided, attempt.result
        better = correct_biases(self.model, attempt.options, made, scale_data, self.data)
        changed = replace(
            attempt, decided=better.decided, result=better.result, has_biases=better.is_kept
        )
        if not better.is_kept:
            return changed
        return changed.measuring(
            comparison=check(self.model, changed, self.data, known=attempt.comparison)
        )


def _is_cheaper(plan: "Decided", other: "Decided") -> bool:
    """Whether a plan costs less than another of the same model, errors aside."""
    # Their opsets differ, so costs do not compare.
    if plan.plan.fingerprint != other.plan.fingerprint:
        return False
    problem = other.problem.without_penalties()
    return cost(problem, plan.levels) < cost(problem, other.levels)


def _knows_prices(options: Options) -> bool:
    """Whether nodes have another level, and the strategy supports error prices; other systems'
    colourings do not.
    """
    planning = options.planning
    return bool(planning.line.others) and planning.strategy.name == "mincut"
