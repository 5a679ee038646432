"""The fastest plan inside a budget of error: exact optima for growing prices of error, verified by emulation."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mezzo.evaluate.standards import Telling
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.data_checks import NO_SAMPLE
from mezzo.numerics.measures import CostTable, DataSource, Sensitivity
from mezzo.planner.options import Options
from mezzo.planner.plan_options import ErrorPrice
from mezzo.tuning.budget_search import Outcome, search
from mezzo.tuning.error_prices import UnitSquares, solve
from mezzo.tuning.evaluator import (
    Evaluator,
    Unit,
    describe_probing,
    few_samples,
    places_of,
    probe,
    sort_units,
    units_of,
)
from mezzo.tuning.frontier import Candidate, trace
from mezzo.tuning.goals import Goal, Memory, Score, score, score_one
from mezzo.tuning.isolated_data_movement import lonely_movers
from mezzo.tuning.sensitivity import Probing

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.conversion.results import Progress
    from mezzo.numerics.data.datasets import Batch, Dataset

_POINTS = 48
_MOST_EVALUATIONS = 12
_MOST_PROBES = 40
_ALONE = "it only moves numbers, and nothing beside it runs in {}: they would be rounded for its sake alone"


@dataclass(frozen=True, slots=True)
class Limits:
    """When a search ends at the latest. Evaluations are passes over all tuning data."""

    deadline_s: float = math.inf  # on the monotonic clock
    evaluations: int = _MOST_EVALUATIONS
    probes: int = _MOST_PROBES


@dataclass(frozen=True, slots=True, kw_only=True)
class Choosing:
    """What a search came to: options that plan it again, and how it went. `weight` is the price of error."""

    options: Options
    chosen: Candidate
    points: tuple[Candidate, ...]
    scores: Mapping[str, Score]  # by the key of a candidate
    score: Score | None
    sensitivity: Sensitivity | None
    stopped_by: str
    is_settled: bool


class Tuner:
    """Searches the plans of one model. The options' policy says what may run low at all."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        goal: Goal,
        data: "Dataset",
        limits: Limits,
        memory: Memory,
        costs: CostTable | None = None,
        progress: "Progress | None" = None,
        like: Evaluator | None = None,
    ) -> None:
        """`costs` are what the options' measured costs come from: a candidate then costs what the whole model does.
        `like`: as of `Evaluator`.
        """
        self.model, self.options, self.goal, self.data = model, options, goal, data
        self.limits, self.memory, self.progress = limits, memory, progress
        self.floor = 0.0 if costs is None else sum(min(node.high, node.low) for node in costs.nodes)
        self.evaluations = self.probes = 0
        self.hidden: frozenset[int] = frozenset()  # units that reach no output of which anything shows
        self.scores: dict[str, Score] = {}
        self.evaluator = Evaluator(model, options, goal.accumulation, like)
        # Every unit in every format that it may run in.
        self.units: Sequence[Unit] = [
            unit for dtype in self.evaluator.lows for unit in units_of(self.evaluator.judged, dtype)
        ]
        self.squares: Sequence[float] = [0.0] * len(self.units)  # squared error per unit
        # What their sum is taken times: neighbours share roundings, so all of them together cost less than their sum.
        self.scales = dict.fromkeys(self.evaluator.lows, 1.0)
        self.together: Mapping[int, int] = {}
        # By a price of error the movers, and their levels, that would have been rounded for their own sake at it.
        self.isolated: dict[float, frozenset[tuple[int, int]]] = {}
        self.telling = self._look()
        self.sensitivity: Sensitivity | None = None
        self.points: tuple[Candidate, ...] = ()

    def _look(self) -> Telling:
        """See what the data can show: the rest is left out of the goal, and what reaches nothing else stays high."""
        telling = self.evaluator.tell(self._in_time())
        if telling.blind:
            shares = {**self.goal.shares, **dict.fromkeys(telling.blind, 0.0)}
            self.goal = replace(self.goal, shares=shares)
            reaching = self.evaluator.reaching(self.evaluator.outputs - telling.blind)
            self.hidden = frozenset(at for at, unit in enumerate(self.units) if reaching.isdisjoint(unit.nodes))
            self.squares = [math.inf if at in self.hidden else 0.0 for at in range(len(self.units))]
        return telling

    def _in_time(self) -> "Iterator[Batch]":
        """The data as far as the time limit lets it be looked at, one batch at the least."""
        for number, batch in enumerate(self.data):
            if number and not self._has_time():
                return
            yield batch

    def choose(self, slack: float = 1.0) -> Choosing:
        """Find the cheapest plan whose score holds the goal with its margin, and `slack` on top."""
        slack *= self.goal.margin
        if self.evaluator.outputs <= self.telling.blind or self.telling.faults == NO_SAMPLE:
            return self.give_up("the data cannot tell what any plan costs in error")
        cheapest = self.solve(0.0)
        if not self._is_known(cheapest) and not self.may_go_on():
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
        found = search(
            self.points,
            lambda point: self._outcome(point, slack),
            bound,
            self.may_go_on,
            {key: Outcome(known.error, self.goal.holds(known, slack)) for key, known in self.scores.items()},
        )
        if found.best is None:
            return self.give_up()
        words = "no cheaper plan of the frontier holds the budget" if found.is_settled else self.exhausted()
        if not found.best.low_nodes:
            return self.give_up()
        return self._describe(found.best, words, found.is_settled)

    def _outcome(self, point: Candidate, slack: float) -> Outcome | None:
        scored = self.evaluate(point)
        return None if scored is None else Outcome(scored.error, self.goal.holds(scored, slack))

    def give_up(self, words: str = "") -> Choosing:
        """FP32, which is always within the budget. `words` say why, if it is not what ended the search."""
        if self.sensitivity is None:
            self.squares = [math.inf] * len(self.units)
            self.scales = dict.fromkeys(self.scales, 1.0)
        safest = self.solve(math.inf)
        self.points = self.points or (self.solve(0.0), safest)
        words = words or ("only FP32 holds the budget" if self.may_go_on() else self.exhausted())
        return self._describe(safest, words, False)

    def _describe(self, chosen: Candidate, words: str, is_settled: bool) -> Choosing:
        prices = self._prices(chosen.weight)
        options = replace(self.options, planning=replace(self.options.planning, error_prices=prices))
        known = self.scores.get(chosen.key)
        return Choosing(
            options=options,
            chosen=chosen,
            points=self.points,
            scores=self.scores,
            score=known,
            sensitivity=self.sensitivity,
            stopped_by=words,
            is_settled=is_settled,
        )

    # -- runs -----------------------------------------------------------------------------------------------------

    def may_go_on(self) -> bool:
        return self._has_time() and self.evaluations < self.limits.evaluations

    def exhausted(self) -> str:
        """Which limit ended the search, in words."""
        if not self._has_time():
            return "the time limit"
        return f"the limit of {self.limits.evaluations} evaluations"

    def _is_known(self, candidate: Candidate) -> bool:
        return candidate.key in self.scores

    def _has_time(self) -> bool:
        return time.monotonic() < self.limits.deadline_s

    def evaluate(self, candidate: Candidate) -> Score | None:
        """Run a candidate over all tuning data; None where time ran out on the way."""
        if candidate.key not in self.scores:
            self.evaluations += 1
            if self.progress is not None:
                self.progress("evaluation", self.evaluations, self.limits.evaluations)
            line = self.evaluator.judged.problem.line
            low = {node: line.dtypes[level] for node, level in enumerate(candidate.levels) if level != line.base}
            scored = self.memory.try_score(
                "all", self._names(low), lambda: score(self.evaluator, self.goal, low, self.data, self._has_time)
            )
            if scored is None:
                return None
            self.scores[candidate.key] = scored
        return self.scores[candidate.key]

    def _names(self, low: Mapping[int, DType]) -> list[str]:
        """What names an assignment: that of its nodes beside the base, with their formats where there are several."""
        nodes, is_one = self.evaluator.graph.nodes, len(self.evaluator.lows) == 1
        return [nodes[node].name if is_one else f"{nodes[node].name} in {dtype}" for node, dtype in low.items()]

    def _probe(self) -> None:
        batch = few_samples(self.evaluator, next(batch for batch in self.data if batch.samples))
        source = DataSource(batch.origin, 1, batch.samples, self.data.seed)
        found = [self._probe_in(dtype, batch, source) for dtype in self.evaluator.lows]
        whole = replace(
            found[0],
            units=tuple(unit for each in found for unit in each.units),
            all_low=max(each.all_low for each in found),
            runs=sum(each.runs for each in found),
        )
        self.sensitivity = sort_units(whole)

    def _probe_in(self, dtype: DType, batch: "Batch", source: DataSource) -> Sensitivity:
        """Learn what each unit costs that runs in one format."""
        shares, evaluator = self.goal.shares, self.evaluator

        def measure(chosen: Sequence[int]) -> float:
            low = dict.fromkeys(chosen, dtype)
            known = self.memory.score(batch.origin, self._names(low), lambda: score_one(evaluator, shares, low, batch))
            return known.error

        def foresee(sets: Sequence[Sequence[int]]) -> None:
            lows = (dict.fromkeys(chosen, dtype) for chosen in sets)
            evaluator.foresee(
                (low for low in lows if not self.memory.knows(batch.origin, self._names(low))), batch, shares
            )

        report: Callable[[int], None] | None = None
        if self.progress is not None:
            told = self.progress

            def report(done: int) -> None:
                told("sensitivity", done, self.limits.probes)

        seen = [at for at, unit in enumerate(self.units) if at not in self.hidden and unit.dtype is dtype]
        units = [self.units[at] for at in seen]
        probing = probe(
            units, measure, self.limits.probes, self._has_time, report, places_of(evaluator.graph, units), foresee
        )
        evaluator.forget()
        self.probes += probing.runs
        self._learn(dtype, seen, probing)
        return describe_probing(self.evaluator, units, probing, source, self.telling.unknown)

    def _learn(self, dtype: DType, units: Sequence[int], probing: Probing) -> None:
        squares = list(self.squares)
        for at, unit in enumerate(self.units):
            squares[at] = math.inf if unit.dtype is dtype else squares[at]
        for at, cost in zip(units, probing.costs, strict=True):
            squares[at] = cost.square
        self.squares = squares
        self.together = {**self.together} | {at: cost.together for at, cost in zip(units, probing.costs, strict=True)}
        whole = sum(squares[at] for at in units)
        if 0.0 < whole < math.inf and 0.0 < probing.all_low < math.inf:
            self.scales[dtype] = probing.all_low**2 / whole

    # -- plans ----------------------------------------------------------------------------------------------------

    def solve(self, weight: float) -> Candidate:
        """The exact optimum of cost + weight * squared error. Where errors have a price, movers that a cut would round
        for their own sake are barred from that level and the cut is made again, until none is: exact for what is left.
        """
        problem, units = self.evaluator.judged.problem, self._squares_by_unit()
        judged = {(node, level) for unit in units for node in unit.nodes for level in unit.by_level}
        isolated = set[tuple[int, int]]()
        while True:
            barred = [UnitSquares((node,), {level: math.inf}) for node, level in isolated]
            found = solve(problem, [*units, *barred], weight, self.options.planning.strategy)
            ran_at = np.where(problem.is_absent, problem.line.base, found.levels).tolist()
            alone = lonely_movers(problem.graph, problem.line.base, ran_at, judged) if weight else ()
            if isolated.issuperset(alone):
                break
            isolated.update(alone)
        self.isolated[weight] = frozenset(isolated)
        return replace(found, cost=self.floor + found.cost)

    def _squares_by_unit(self) -> list[UnitSquares]:
        """What is known of each unit in its format."""
        levels = {dtype: level for level, dtype in enumerate(self.evaluator.judged.problem.line.dtypes)}
        return [
            UnitSquares(unit.nodes, {levels[unit.dtype]: self.scales[unit.dtype] * square})
            for unit, square in zip(self.units, self.squares, strict=True)
        ]

    def _prices(self, weight: float) -> dict[DType, dict[str, ErrorPrice]]:
        wholes = {
            dtype: sum(
                square
                for unit, square in zip(self.units, self.squares, strict=True)
                if unit.dtype is dtype and math.isfinite(square)
            )
            for dtype in self.evaluator.lows
        }
        line, nodes = self.evaluator.judged.problem.line, self.evaluator.graph.nodes
        given = self.options.planning.error_prices
        by_dtype: dict[DType, dict[str, ErrorPrice]] = {
            line.dtypes[level]: {**given.get(line.dtypes[level], {})} for level in line.others
        }

        def add(level: int, node: int, price: ErrorPrice) -> None:
            prices, name = by_dtype[line.dtypes[level]], nodes[node].name
            known = prices.get(name)
            prices[name] = price if known is None else replace(known, cost=known.cost + price.cost)

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
        """Why a unit stays high at a price of error."""
        if at in self.hidden:
            return "the data shows nothing of what it reaches"
        if self.sensitivity is None:
            return "the search ended before anything was known of its error"
        together, dtype = self.together[at], self.units[at].dtype
        if not math.isfinite(square):
            more = "" if together == 1 else f", or one of {together - 1} more that were run together with it does"
            return f"alone in {dtype} it breaks an output{more}"
        share = square / whole if whole else 0.0
        how = "" if together == 1 else f" (its share of what {together} cost together)"
        return (
            f"in {dtype} it costs {math.sqrt(square):.2g} of output error{how}, {share:.1%} of the sum of squares: "
            "at this budget more than the time it saves"
        )
