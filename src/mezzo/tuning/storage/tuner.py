"""Plan of a search for the storage of weights in blocks, verified on the converted model."""

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from mezzo.contracts.rounding import RoundedWeights
from mezzo.evaluate.data_session import DataSession
from mezzo.numerics.measures import (
    BYTES_STORED,
    Comparison,
    CostTable,
    FrontierPoint,
    Measured,
    SearchRecord,
    Sensitivity,
    UnitError,
)
from mezzo.planner.options import Options
from mezzo.tuning.final_plan import (
    TIGHTENINGS,
    excess_of,
    largest_error,
    tightened,
    unseen_excess_of,
)
from mezzo.tuning.frontier import predict
from mezzo.tuning.goals import Goal
from mezzo.tuning.repair.attempts import check
from mezzo.tuning.repair.runtime_check import convert_planned
from mezzo.tuning.storage.search import BlockSearch, StoragePlan

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided

# Share of a squared error budget that floats in low precision keep, where weights take the rest.
_FOR_FLOATS = 0.1
# Without a budget of error, other data may have this many times the error of the search's.
_ON_OTHER_DATA = 1.25


class StoredPart(NamedTuple):
    """A model whose weights have their storage, which `options` say, with its error on the data of
    the search, the goal of what follows, and the weights for its replays.
    """

    model: "Model"
    options: Options
    goal: Goal
    error: float
    rounded: RoundedWeights | None


@dataclass(kw_only=True)
class StorageTuner:
    """A search of one model's weights within `goal.max_error` or `goal.max_bytes`."""

    model: "Model"
    options: Options
    session: DataSession
    goal: Goal
    checks: int = 0
    search: BlockSearch = field(init=False)

    def __post_init__(self) -> None:
        has_floats = bool(self.options.planning.line.others)
        # The search of levels of floats has the session's file then.
        session = self.session.without_files() if has_floats else self.session
        self.search = BlockSearch(self.model, self.options, session, self.goal.shares)
        self.search.probe()
        self.search.round_on_data()

    def choose(self, slack: float = 1.0) -> tuple[StoragePlan, str]:
        """The plan, and why the search ended. `slack` divides the budget of error.

        Raises InputError: no plan is within the budget of bytes.
        """
        if self.goal.max_bytes is not None:
            return self._within_bytes(self.goal.max_bytes), "the least error for these bytes"
        assert self.goal.max_error is not None, "one of the two is a budget"
        return self.search.within_error(self.goal.max_error / self.goal.margin / slack)

    def _within_bytes(self, max_bytes: int) -> StoragePlan:
        """The plan whose file is written within the budget: what is not of the weights differs a
        little with their storage.
        """
        plan = self.search.smallest()
        rest_bytes = self._file_bytes(plan) - plan.size_bytes
        while True:
            plan = self.search.within_bytes(max_bytes, rest_bytes)
            excess = self._file_bytes(plan) - max_bytes
            if excess <= 0:
                return self.search.measured(plan)
            rest_bytes += excess

    def _file_bytes(self, plan: StoragePlan) -> int:
        planned = convert_planned(self.model, self.planned(plan))
        if planned.decided.spell_record is not None:
            self.model.note_record(planned.result, planned.decided.spell_record())
        return self.model.size_of(planned.result)

    def planned(self, plan: StoragePlan) -> Options:
        """Options that store weights as a plan says."""
        planning = replace(self.options.planning, in_blocks=dict(plan.in_blocks))
        return replace(self.options, planning=planning)

    def with_storage(self) -> "StoredPart":
        """The model and options with the storage chosen, and the goal that is left to levels:
        squared errors add up.
        """
        plan, _ = self.choose(1.0 / math.sqrt(1.0 - _FOR_FLOATS))
        model = self.model.exchanged(self.search.exchanged(plan))
        options, rounded = self.planned(plan), self.search.rounded(plan)
        assert self.goal.max_error is not None, "levels have a budget of error"
        left = self.goal.max_error**2 - ((plan.error or 0.0) * self.goal.margin) ** 2
        least = self.goal.max_error * math.sqrt(_FOR_FLOATS)
        goal = replace(self.goal, max_error=max(math.sqrt(max(left, 0.0)), least))
        return StoredPart(model, options, goal, plan.error or 0.0, rounded)

    def verified(self) -> "tuple[Decided, Artifact, Measured]":
        """Choose a plan and check it on data that the search has not seen, and tighten the budget
        if it fails. Returns the plan, the result and the account.
        """
        slack = 1.0
        goal = self.goal
        for attempt in range(TIGHTENINGS + 1):
            plan, words = self.choose(slack)
            if self.goal.max_error is None:
                goal = replace(self.goal, max_error=(plan.error or 0.0) * _ON_OTHER_DATA)
            model = self.model.exchanged(self.search.exchanged(plan))
            planned = convert_planned(model, self.planned(plan))
            comparison = check(self.model, planned, self.session.judging, goal=goal)
            self.checks += 1
            unseen = unseen_excess_of(comparison, goal, self.session)
            if (
                self.goal.max_bytes is not None
                or unseen <= 1.0
                or not plan.in_blocks
                or attempt == TIGHTENINGS
            ):
                break
            assert goal.max_error is not None, "weights have a budget of error or of bytes"
            searched = (plan.error or 0.0) / goal.max_error
            slack = tightened(slack, unseen, searched * goal.margin)
        measured = self._account(plan, words, comparison, excess_of(comparison, goal))
        decided = planned.decided.with_rounded(self.search.rounded(plan))
        return decided, planned.result, measured

    def _account(
        self, plan: StoragePlan, words: str, comparison: Comparison, excess: float
    ) -> Measured:
        error, tried = largest_error(comparison), self.search.tried
        units = self._units()
        unknown = comparison.verdict.unknown
        pairs = [(each.expected, each.error) for each in tried if each.error is not None]
        source = self.search.data_source()
        return Measured(
            data=source,
            comparison=comparison,
            sensitivity=Sensitivity(data=source, units=units, all_low=math.nan, runs=len(units)),
            frontier=tuple(_point(each, plan) for each in tried),
            costs=CostTable(
                source="sizes of integers, scales and zero points", unit=BYTES_STORED, nodes=()
            ),
            search=SearchRecord(
                budget=comparison.verdict.budget,
                margin=self.goal.margin,
                evaluations=len(tried),
                partial_evaluations=len(units),
                checks=self.checks,
                error=error if plan.error is None else plan.error,
                held_out_error=None if self.session.held_out is None else error,
                is_within_budget=excess <= 1.0 and not unknown,
                stopped_by=words,
                time_s=self.session.limit.elapsed_s,
                costliest=units[0].name if units else None,
                unknown=unknown,
                prediction=predict(pairs),
                max_bytes=self.goal.max_bytes,
            ),
            notes=comparison.notes,
        )

    def _units(self) -> tuple[UnitError, ...]:
        """Each weight's error in its coarsest storage, the largest first, with its readers."""
        graph = self.search.prober.graph
        units = [
            UnitError(
                name=weight.name,
                nodes=tuple(node.name for node in graph.readers(weight.value)),
                error=math.sqrt(max(option.square for option in weight.options)),
                is_measured=True,
            )
            for weight in self.search.weights
            if len(weight.options) > 1
        ]
        return tuple(sorted(units, key=lambda unit: -unit.error))


def _point(each: StoragePlan, chosen: StoragePlan) -> FrontierPoint:
    return FrontierPoint(
        weight=0.0,
        cost=each.size_bytes,
        low_nodes=len(each.in_blocks),
        predicted_error=each.expected,
        error=each.error,
        is_chosen=each is chosen,
    )
