"""Emulated output errors of a model under any precision assignment, of units or groups."""

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, tee
from typing import TYPE_CHECKING

from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.normalization import norms
from mezzo.common.union_find import joined
from mezzo.contracts.executor import HERE, Pending, Team, crew_at_work, in_turn
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Answers
from mezzo.contracts.quantized_level import NO_PORTS, QuantizedPorts
from mezzo.conversion.judged_model import judge_model
from mezzo.evaluate.data_session import can_cut
from mezzo.evaluate.standards import Telling, find_telling
from mezzo.formats.dtypes import FORMATS, HIGH, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, name_port
from mezzo.numerics.data.splits import cut
from mezzo.numerics.measures import DataSource, Sensitivity, UnitError
from mezzo.planner.choices.quantized_parameters import quantized_ports
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged, rows_of
from mezzo.tuning.emulation import EmulationJob, Trial, TrialResult
from mezzo.tuning.repeated_blocks import find_places
from mezzo.tuning.sensitivity import Foresee, Probing, probe_units

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.plans import Accumulation
    from mezzo.numerics.data.datasets import Batch

MOST_RUNS = 48
# Size of the data sample for sensitivity: enough output elements that their mean square is known to
# a few percent.
_NUMBERS = 4096
_LEAST_SAMPLES = 2
_MOST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class PrecisionUnit:
    """Nodes that are judged together in a format. `nodes`: ids of the planner's graph."""

    name: str
    nodes: tuple[int, ...]
    dtype: DType


class Evaluator:
    """Runs a model under any assignment, with cached results of single batches."""

    def __init__(
        self,
        model: "Model",
        options: Options,
        accumulation: "Accumulation | None" = None,
        like: "Evaluator | None" = None,
    ) -> None:
        """`like`: another evaluator of the model, whose emulator and results are shared if it
        emulates the same.
        """
        self.model, self.options = model, options
        reading, self.judged = judge_model(model, options)
        self.version = reading.version
        self.lows = options.planning.line.other_dtypes
        sums_high = {
            n
            for side in self.judged.sides
            for n, verdict in enumerate(side)
            if verdict.accumulate is HIGH
        }
        self.lab = lab_of(model)
        ports = _ports(self.judged)
        self._job = EmulationJob(
            fingerprint=self.graph.fingerprint,
            lows=options.planning.floats,
            version=reading.version,
            formats=tuple(self.lows),
            accumulation=accumulation,
            sums_high=frozenset(sums_high),
            limits=dict(self.judged.limits),
            quantized=ports._replace(dynamic=dict(ports.dynamic)),
        )
        self._ahead: dict[object, Pending[TrialResult]] = {}
        same = like if like is not None and like.model is model and like._job == self._job else None
        self._team: Team[Trial, TrialResult] = same._team if same is not None else self._begin()
        # Of single batches.
        self._outcomes: dict[object, TrialResult] = {} if same is None else same._outcomes

    def _begin(self) -> Team[Trial, TrialResult]:
        model, job = self.model, self._job
        return crew_at_work().team(job, lambda: [model], lambda: job.open([model]))

    @property
    def outputs(self) -> frozenset[str]:
        """The names of the model's outputs."""
        return frozenset(self.lab.outputs)

    @property
    def graph(self) -> Graph:
        return self.judged.problem.graph

    def reference(self, batch: "Batch") -> Answers:
        """The model's outputs in FP32."""
        return _answers(self._team.start(_trial(batch, {}, has_answers=True)).result())[0]

    def run(
        self,
        low: Mapping[int, DType],
        batches: "Iterable[Batch]",
        shares: Mapping[str, float] | None = None,
        *,
        has_answers: bool = False,
    ) -> "Iterator[tuple[Batch, TrialResult]]":
        """Run batches with these nodes in these formats and all else in FP32; yields outcomes in
        order. `shares`: weights of outputs' errors, 1 by default.
        """
        pending: deque[Batch] = deque()

        def trials() -> Iterator[Trial]:
            for batch in batches:
                pending.append(batch)
                yield _trial(batch, low, shares, has_answers=has_answers)

        for _, outcome in in_turn(self._team, trials()):
            yield pending.popleft(), outcome

    def foresee(
        self, lows: Iterable[Mapping[int, DType]], batch: "Batch", shares: Mapping[str, float]
    ) -> None:
        """Start runs of one batch that are likely to be requested soon, if workers are available;
        results do not depend on it.
        """
        if crew_at_work() is HERE or self._team.width == 1:
            return
        most = max(1, self._team.width // 2)  # speculative runs must not block requested ones
        requested = {_key(low, batch, shares): low for low in islice(lows, most)}
        for key, low in requested.items():
            if key not in self._ahead and len(self._ahead) >= most:
                stale = next((other for other in self._ahead if other not in requested), None)
                if stale is None:
                    return
                self._ahead.pop(stale).drop()
            if key not in self._ahead:
                self._ahead[key] = self._team.start(_trial(batch, low, shares))

    def run_one(
        self, low: Mapping[int, DType], batch: "Batch", shares: Mapping[str, float]
    ) -> TrialResult:
        """The outcome of one batch, from the cache or a run that `foresee` started if possible."""
        key = _key(low, batch, shares)
        if key not in self._outcomes:
            begun = self._ahead.pop(key, None)
            self._outcomes[key] = (begun or self._team.start(_trial(batch, low, shares))).result()
        return self._outcomes[key]

    def forget(self) -> None:
        """Drop speculative runs that were not requested."""
        for pending in self._ahead.values():
            pending.drop()
        self._ahead.clear()

    def tell(self, batches: "Iterable[Batch]") -> Telling:
        """Check whether the model's own outputs on the data allow a verdict."""
        watched, batches = tee(batch for batch in batches if batch.samples)
        answers = (_answers(outcome)[0] for _, outcome in self.run({}, watched, has_answers=True))
        return find_telling(self.lab.subject(), batches, lambda _: next(answers))

    def reaching(self, outputs: Collection[str]) -> frozenset[int]:
        """The nodes that these outputs depend on, subgraphs included."""
        ports = {name_port(Kind.OUTPUT, name) for name in outputs}
        waiting = [n.id for n in self.graph.nodes if n.kind is Kind.OUTPUT and n.name in ports]
        reached = set(waiting)
        while waiting:
            for value in self.graph.nodes[waiting.pop()].inputs:
                producer = None if value is None else self.graph.values[value].producer
                if producer is not None and producer not in reached:
                    reached.add(producer)
                    waiting.append(producer)
        return frozenset(reached)


def _trial(
    batch: "Batch",
    low: Mapping[int, DType],
    shares: Mapping[str, float] | None = None,
    *,
    has_answers: bool = False,
) -> Trial:
    return Trial(
        origin=batch.origin,
        feeds=batch.feeds,
        precision_of=low,
        shares=shares or {},
        has_answers=has_answers,
    )


def _key(low: Mapping[int, DType], batch: "Batch", shares: Mapping[str, float]) -> object:
    return frozenset(low.items()), batch.origin, frozenset(shares.items())


def _answers(outcome: TrialResult) -> tuple[Answers, Answers]:
    assert outcome.answers is not None, "answers were asked for"
    return outcome.answers


def _ports(judged: Judged) -> QuantizedPorts:
    if judged.quantizing is None:
        return NO_PORTS
    return quantized_ports(judged.problem)


def units_of(judged: Judged, low: DType) -> tuple[PrecisionUnit, ...]:
    """The units that may run in a format, in graph order: decomposed normalizations and linked
    operators form one unit each, merged if they overlap; named after the normalization or the first
    operator.

    Operators that only move or select elements have no error of their own and are in no unit.
    """
    problem = judged.problem
    graph, rows, level = problem.graph, rows_of(problem.graph), problem.line.level_of(low)
    assert level is not None, "a format of the line"
    is_free = problem.allowed[level] & (problem.allowed.sum(axis=0) > 1)
    norm_groups = [
        (name, group)
        for name, group in norms(StructureView(graph=graph, rows=rows, low=FORMATS[low]))
    ]
    pairs = [
        (group[0].id, node.id) for _, group in norm_groups for node in group if is_free[node.id]
    ]
    root_of = joined(problem.linked[problem.line.threshold_of(level)], pairs)
    labels = {
        root_of[group[0].id]: f"{name} around {group[0].name!r}"
        for name, group in reversed(norm_groups)
    }
    members: dict[int, list[int]] = {}
    for node in graph.nodes:
        row = rows[node.id]
        if node.kind is not Kind.OP or not is_free[node.id]:
            continue
        if row is not None and row.keeps_values:
            continue
        members.setdefault(root_of[node.id], []).append(node.id)
    return tuple(
        PrecisionUnit(labels.get(root, graph.nodes[nodes[0]].name), tuple(nodes), low)
        for root, nodes in members.items()
    )


def few_samples(evaluator: "Evaluator", batch: "Batch") -> "Batch":
    """The first samples of a batch, as many as errors need, if the model accepts fewer."""
    answers = evaluator.reference(batch).values()
    numbers = (
        sum(getattr(answer, "size", 0) for answer in answers) / batch.samples
        if batch.samples
        else 0
    )
    count = min(
        max(math.ceil(_NUMBERS / numbers) if numbers else _MOST_SAMPLES, _LEAST_SAMPLES),
        _MOST_SAMPLES,
    )
    return (
        cut(batch, 0, count) if batch.samples > count and can_cut(evaluator.model, batch) else batch
    )


def probe(
    units: Sequence[PrecisionUnit],
    error_of: Callable[[Sequence[int]], float],
    max_runs: int = MOST_RUNS,
    may_go_on: Callable[[], bool] = lambda: True,
    report: Callable[[int], None] | None = None,
    places: Sequence[int] | None = None,
    foresee: Callable[[Sequence[Sequence[int]]], None] | None = None,
) -> Probing:
    """Measure each unit's error in at most `max_runs` runs. `error_of` runs the given nodes in low
    precision. `foresee` receives sets of nodes that are likely to run next.
    """
    done = 0

    def nodes_of(chosen: Sequence[int]) -> list[int]:
        return [node for unit in chosen for node in units[unit].nodes]

    def run(chosen: Sequence[int]) -> float:
        nonlocal done
        done += 1
        if report is not None:
            report(done)
        return error_of(nodes_of(chosen))

    hint = foresee
    ahead: Foresee | None = (
        None if hint is None else (lambda chosen: hint([nodes_of(each) for each in chosen]))
    )
    weights = [float(len(unit.nodes)) for unit in units]
    return probe_units(weights, run, max_runs, may_go_on=may_go_on, places=places, foresee=ahead)


def places_of(graph: Graph, units: Sequence[PrecisionUnit]) -> list[int]:
    """The position of each unit within repeated blocks, from its nodes' positions."""
    of_node = find_places(graph)
    numbers: dict[tuple[int, ...], int] = {}
    return [
        numbers.setdefault(tuple(of_node[node] for node in unit.nodes), len(numbers))
        for unit in units
    ]


def describe_probing(
    evaluator: Evaluator,
    units: Sequence[PrecisionUnit],
    probing: Probing,
    data: DataSource,
    unknown: tuple[str, ...] = (),
) -> Sensitivity:
    """The named results of a probing."""
    nodes = evaluator.graph.nodes
    unit_errors = []
    for at, (unit, cost) in enumerate(zip(units, probing.costs, strict=True)):
        low, high = probing.interval(at)
        broken = "an output is NaN or infinite"
        shared = (
            f"{broken} when it and {cost.together - 1} more run low together; which of them does it"
            " is not known"
        )
        unit_errors.append(
            UnitError(
                name=unit.name if len(evaluator.lows) == 1 else f"{unit.name} in {unit.dtype}",
                nodes=tuple(nodes[node].name for node in unit.nodes),
                error=math.sqrt(cost.square),
                is_measured=cost.is_measured,
                fault=(
                    None if math.isfinite(cost.square) else broken if cost.is_measured else shared
                ),
                together=cost.together,
                low=None if cost.is_measured else low,
                high=None if cost.is_measured else high,
            )
        )
    return sort_units(
        Sensitivity(
            data=data,
            units=tuple(unit_errors),
            all_low=probing.all_low,
            runs=probing.runs,
            unknown=unknown,
        )
    )


def sort_units(found: Sensitivity) -> Sensitivity:
    """Sort units by falling error."""
    order = sorted(range(len(found.units)), key=lambda at: (-found.units[at].error, at))
    return replace(found, units=tuple(found.units[at] for at in order))
