"""Search for the fastest plan within an error budget: exact optima for rising prices of error,
verified by emulation.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.standards import Telling
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.data_checks import NO_SAMPLE
from mezzo.numerics.measures import CostTable, DataSource, Sensitivity
from mezzo.planner.options import Options
from mezzo.planner.plan_options import ErrorPrice
from mezzo.tuning.budget_search import Evaluation, search
from mezzo.tuning.error_prices import UnitSquares, solve
from mezzo.tuning.evaluator import (
    Evaluator,
    PrecisionUnit,
    describe_probing,
    few_samples,
    places_of,
    probe,
    sort_units,
    units_of,
)
from mezzo.tuning.frontier import FrontierCandidate, trace
from mezzo.tuning.goals import Goal, RunScore, ScoreCache, score, score_one
from mezzo.tuning.isolated_data_movement import lonely_movers
from mezzo.tuning.sensitivity import Probing

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.numerics.data.datasets import Batch

_POINTS = 48
# Evaluations are passes over all tuning data; probes, over few samples.
_MOST_EVALUATIONS = 12
_MOST_PROBES = 40
_ALONE = "it only moves data, and no neighbour runs in {}: its values would be rounded for it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """The result of a search: options that reproduce the plan, and a record of the search."""

    options: Options
    chosen: FrontierCandidate
    points: tuple[FrontierCandidate, ...]
    scores: Mapping[str, RunScore]  # by candidate key
    score: RunScore | None
    sensitivity: Sensitivity | None
    stopped_by: str
    is_settled: bool


class Tuner:
    """Searches the plans of one model that the options' policy allows."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        goal: Goal,
        session: DataSession,
        memory: ScoreCache,
        *,
        most_evaluations: int = _MOST_EVALUATIONS,
        costs: CostTable | None = None,
        like: Evaluator | None = None,
    ) -> None:
        """`costs`: the source of the options' measured costs, so that a candidate's cost is that of
        the whole model. `like`: as in `Evaluator`.
        """
        self.model, self.options, self.goal, self.session = model, options, goal, session
        self.memory, self.most_evaluations = memory, most_evaluations
        self.costs = costs
        self.floor = 0.0 if costs is None else sum(min(node.high, node.low) for node in costs.nodes)
        self.evaluations = self.probes = 0
        # Units that influence no output that can be judged.
        self.hidden: frozenset[int] = frozenset()
        self.scores: dict[str, RunScore] = {}
        self.evaluator = Evaluator(model, options, goal.accumulation, like)
        # Every unit in every format that it may run in.
        self.units: Sequence[PrecisionUnit] = [
            unit for dtype in self.evaluator.lows for unit in units_of(self.evaluator.judged, dtype)
        ]
        self.squares: Sequence[float] = [0.0] * len(self.units)  # squared error per unit
        # Correction of their sum: neighbours round together, so the error of all is below the sum.
        self.scales = dict.fromkeys(self.evaluator.lows, 1.0)
        self.together: Mapping[int, int] = {}
        # By price of error: isolated movers and their levels, which are barred at that price.
        self.isolated: dict[float, frozenset[tuple[int, int]]] = {}
        self.telling = self._look()
        self.sensitivity: Sensitivity | None = None
        self.points: tuple[FrontierCandidate, ...] = ()

    def _look(self) -> Telling:
        """Find outputs that the data cannot judge, and exclude them from the goal; units that
        influence no other output stay in FP32.
        """
        telling = self.evaluator.tell(self._in_time())
        if telling.blind:
            shares = {**self.goal.shares, **dict.fromkeys(telling.blind, 0.0)}
            self.goal = replace(self.goal, shares=shares)
            reaching = self.evaluator.reaching(self.evaluator.outputs - telling.blind)
            self.hidden = frozenset(
                at for at, unit in enumerate(self.units) if reaching.isdisjoint(unit.nodes)
            )
            self.squares = [math.inf if at in self.hidden else 0.0 for at in range(len(self.units))]
        return telling

    def _in_time(self) -> "Iterator[Batch]":
        """The data up to the time limit, at least one batch."""
        for number, batch in enumerate(self.session.data):
            if number and not self.session.has_time():
                return
            yield batch

    def choose(self, slack: float = 1.0) -> Choosing:
        """Find the cheapest plan whose score holds the goal with its margin, and `slack` on top."""
        slack *= self.goal.margin
        if self.evaluator.outputs <= self.telling.blind or self.telling.faults == NO_SAMPLE:
            return self.give_up("the data cannot tell what any plan costs in error")
        cheapest = self.solve(0.0)
        if cheapest.key not in self.scores and not self.may_go_on():
            return self.give_up()
        scored = self.evaluate(cheapest)
        if scored is None:
            return self.give_up()
        if self.goal.holds(scored, slack):
            self.points = self.points or (cheapest,)
            return self._describe(cheapest, "the cheapest plan of all holds the budget", True)
        if self.sensitivity is None:
            self._probe()
        self.points = trace(self.solve, _POINTS)
        bound = math.inf if self.goal.max_error is None else self.goal.max_error / slack
        result = search(
            self.points,
            lambda point: self._outcome(point, slack),
            bound,
            self.may_go_on,
            {
                key: Evaluation(earlier.error, self.goal.holds(earlier, slack))
                for key, earlier in self.scores.items()
            },
        )
        if result.best is None:
            return self.give_up()
        words = (
            "no cheaper plan of the frontier holds the budget"
            if result.is_settled
            else self.exhausted()
        )
        if not result.best.low_nodes:
            return self.give_up()
        return self._describe(result.best, words, result.is_settled)

    def _outcome(self, point: FrontierCandidate, slack: float) -> Evaluation | None:
        scored = self.evaluate(point)
        return None if scored is None else Evaluation(scored.error, self.goal.holds(scored, slack))

    def give_up(self, words: str = "") -> Choosing:
        """The FP32 plan, which is always within the budget. `words`: the reason, if not the limit
        that ended the search.
        """
        if self.sensitivity is None:
            self.squares = [math.inf] * len(self.units)
            self.scales = dict.fromkeys(self.scales, 1.0)
        safest = self.solve(math.inf)
        self.points = self.points or (self.solve(0.0), safest)
        words = words or ("only FP32 holds the budget" if self.may_go_on() else self.exhausted())
        return self._describe(safest, words, False)

    def _describe(self, chosen: FrontierCandidate, words: str, is_settled: bool) -> Choosing:
        prices = self._prices(chosen.weight)
        options = replace(
            self.options, planning=replace(self.options.planning, error_prices=prices)
        )
        chosen_score = self.scores.get(chosen.key)
        return Choosing(
            options=options,
            chosen=chosen,
            points=self.points,
            scores=self.scores,
            score=chosen_score,
            sensitivity=self.sensitivity,
            stopped_by=words,
            is_settled=is_settled,
        )

    # -- runs --------------------------------------------------------------------------------------

    def may_go_on(self) -> bool:
        return self.session.has_time() and self.evaluations < self.most_evaluations

    def exhausted(self) -> str:
        """The limit that ended the search, as text."""
        if not self.session.has_time():
            return "the time limit"
        return f"the limit of {self.most_evaluations} evaluations"

    def evaluate(self, candidate: FrontierCandidate) -> RunScore | None:
        """Run a candidate over all tuning data; None if time runs out."""
        if candidate.key not in self.scores:
            self.evaluations += 1
            if self.model.progress is not None:
                self.model.progress("evaluation", self.evaluations, self.most_evaluations)
            line = self.evaluator.judged.problem.line
            low = {
                node: line.dtypes[level]
                for node, level in enumerate(candidate.levels)
                if level != line.base
            }
            scored = self.memory.try_score(
                "all",
                self._names(low),
                lambda: score(self.evaluator, self.goal, low, self.session),
            )
            if scored is None:
                return None
            self.scores[candidate.key] = scored
        return self.scores[candidate.key]

    def _names(self, low: Mapping[int, DType]) -> list[str]:
        """The identity of an assignment: its low nodes, with formats if there are several."""
        nodes, is_one = self.evaluator.graph.nodes, len(self.evaluator.lows) == 1
        return [
            nodes[node].name if is_one else f"{nodes[node].name} in {dtype}"
            for node, dtype in low.items()
        ]

    def _probe(self) -> None:
        batch = few_samples(self.evaluator, next(self.session.data.filled()))
        source = DataSource(batch.origin, 1, batch.samples, self.session.data.seed)
        sensitivities = [self._probe_in(dtype, batch, source) for dtype in self.evaluator.lows]
        whole = replace(
            sensitivities[0],
            units=tuple(unit for each in sensitivities for unit in each.units),
            all_low=max(each.all_low for each in sensitivities),
            runs=sum(each.runs for each in sensitivities),
        )
        self.sensitivity = sort_units(whole)

    def _probe_in(self, dtype: DType, batch: "Batch", source: DataSource) -> Sensitivity:
        """Measure each unit's error in one format."""
        shares, evaluator = self.goal.shares, self.evaluator

        def measure(chosen: Sequence[int]) -> float:
            low = dict.fromkeys(chosen, dtype)
            measured = self.memory.score(
                batch.origin, self._names(low), lambda: score_one(evaluator, shares, low, batch)
            )
            return measured.error

        def foresee(sets: Sequence[Sequence[int]]) -> None:
            lows = (dict.fromkeys(chosen, dtype) for chosen in sets)
            evaluator.foresee(
                (low for low in lows if not self.memory.knows(batch.origin, self._names(low))),
                batch,
                shares,
            )

        def report(done: int) -> None:
            if self.model.progress is not None:
                self.model.progress("sensitivity", done, _MOST_PROBES)

        indices = [
            at
            for at, unit in enumerate(self.units)
            if at not in self.hidden and unit.dtype is dtype
        ]
        units = [self.units[at] for at in indices]
        probing = probe(
            units,
            measure,
            _MOST_PROBES,
            self.session.has_time,
            report,
            places_of(evaluator.graph, units),
            foresee,
        )
        evaluator.forget()
        self.probes += probing.runs
        self._learn(dtype, indices, probing)
        return describe_probing(self.evaluator, units, probing, source, self.telling.unknown)

    def _learn(self, dtype: DType, units: Sequence[int], probing: Probing) -> None:
        """Store the measured errors of units, and the correction of their sum."""
        squares = list(self.squares)
        for at, unit in enumerate(self.units):
            squares[at] = math.inf if unit.dtype is dtype else squares[at]
        for at, cost in zip(units, probing.costs, strict=True):
            squares[at] = cost.square
        self.squares = squares
        self.together = {**self.together} | {
            at: cost.together for at, cost in zip(units, probing.costs, strict=True)
        }
        whole = sum(squares[at] for at in units)
        if 0.0 < whole < math.inf and 0.0 < probing.all_low < math.inf:
            self.scales[dtype] = probing.all_low**2 / whole

    # -- plans -------------------------------------------------------------------------------------

    def solve(self, weight: float) -> FrontierCandidate:
        """The exact optimum of cost + weight * squared error. If errors have a price, isolated
        movers are barred from their level and the problem is solved again, until there are none:
        exact for the remaining choices.
        """
        problem, units = self.evaluator.judged.problem, self._squares_by_unit()
        judged = {(node, level) for unit in units for node in unit.nodes for level in unit.by_level}
        isolated = set[tuple[int, int]]()
        while True:
            barred = [UnitSquares((node,), {level: math.inf}) for node, level in isolated]
            candidate = solve(problem, [*units, *barred], weight, self.options.planning.strategy)
            ran_at = np.where(problem.is_absent, problem.line.base, candidate.levels).tolist()
            movers = (
                lonely_movers(problem.graph, problem.line.base, ran_at, judged) if weight else ()
            )
            if isolated.issuperset(movers):
                break
            isolated.update(movers)
        self.isolated[weight] = frozenset(isolated)
        return replace(candidate, cost=self.floor + candidate.cost)

    def _squares_by_unit(self) -> list[UnitSquares]:
        """The squared error of each unit at its level."""
        levels = {
            dtype: level for level, dtype in enumerate(self.evaluator.judged.problem.line.dtypes)
        }
        return [
            UnitSquares(unit.nodes, {levels[unit.dtype]: self.scales[unit.dtype] * square})
            for unit, square in zip(self.units, self.squares, strict=True)
        ]

    def _prices(self, weight: float) -> dict[DType, dict[str, ErrorPrice]]:
        """The error prices per format and node name, each with its explanation."""
        wholes = {
            dtype: sum(
                square
                for unit, square in zip(self.units, self.squares, strict=True)
                if unit.dtype is dtype and math.isfinite(square)
            )
            for dtype in self.evaluator.lows
        }
        line, nodes = self.evaluator.judged.problem.line, self.evaluator.graph.nodes
        earlier_prices = self.options.planning.error_prices
        by_dtype: dict[DType, dict[str, ErrorPrice]] = {
            line.dtypes[level]: {**earlier_prices.get(line.dtypes[level], {})}
            for level in line.others
        }

        def add(level: int, node: int, price: ErrorPrice) -> None:
            prices, name = by_dtype[line.dtypes[level]], nodes[node].name
            present = prices.get(name)
            prices[name] = (
                price if present is None else replace(present, cost=present.cost + price.cost)
            )

        for at, unit in enumerate(self._squares_by_unit()):
            for level in unit.by_level:
                price = unit.price(weight, level)
                if price:
                    text = self._explain(at, self.squares[at], wholes[line.dtypes[level]])
                    for node in unit.nodes:
                        add(level, node, ErrorPrice(price, text))
        for node, level in self.isolated[weight]:
            price = UnitSquares((node,), {level: math.inf}).price(weight, level)
            add(level, node, ErrorPrice(price, _ALONE.format(line.dtypes[level])))
        return by_dtype

    def _explain(self, at: int, square: float, whole: float) -> str:
        """Why a unit stays in high precision at a price of error."""
        if at in self.hidden:
            return "the data shows nothing of what it reaches"
        if self.sensitivity is None:
            return "the search ended before anything was known of its error"
        together, dtype = self.together[at], self.units[at].dtype
        if not math.isfinite(square):
            more = (
                ""
                if together == 1
                else f", or one of {together - 1} more that were run together with it does"
            )
            return f"alone in {dtype} it breaks an output{more}"
        share = square / whole if whole else 0.0
        how = "" if together == 1 else f" (its share of what {together} cost together)"
        return (
            f"in {dtype} it costs {math.sqrt(square):.2g} of output error{how}, {share:.1%} of the"
            " sum of squares: at this budget more than the time it saves"
        )
