"""A model on a test rig: run under any assignment, unit by unit or group by group."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mezzo.converting.conversion import judge_model
from mezzo.converting.results import lab_of
from mezzo.core.graph import Graph
from mezzo.core.joining import joined
from mezzo.core.nodes import Kind, name_port
from mezzo.core.quantized import NO_PORTS, QuantizedPorts
from mezzo.deciding.options import Options
from mezzo.deciding.planner import Judged, rows_of
from mezzo.deciding.quantizing import quantized_ports
from mezzo.dtypes import FORMATS, HIGH, DType
from mezzo.errors import MezzoError
from mezzo.judging.standards import Telling, find_telling
from mezzo.numerics.errors import ErrorSum
from mezzo.numerics.measures import DataSource, Sensitivity, UnitError
from mezzo.numerics.sensitivity import Probing, probe_units
from mezzo.numerics.splits import cut
from mezzo.search.alike import find_places
from mezzo.structure import View
from mezzo.structure.normalization import norms

if TYPE_CHECKING:
    from mezzo.core.frontend import Model
    from mezzo.core.plans import Accumulation
    from mezzo.numerics.datasets import Batch

# Answers of the reference are kept up to this size, and computed anew beyond it.
_KEPT_BYTES = 1 << 29
MOST_RUNS = 48
# A part of the data that tells errors apart: enough numbers that their mean square is known to a few percent.
_NUMBERS = 4096
_LEAST_SAMPLES = 2
_MOST_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are judged together as they run in a format. `nodes` are ids of the planner's graph."""

    name: str
    nodes: tuple[int, ...]
    dtype: DType


class Rig:
    """A model ready to run under any assignment, with the answers it gives in FP32."""

    def __init__(self, model: "Model", options: Options, accumulation: "Accumulation | None" = None) -> None:
        self.model, self.options = model, options
        reading, self.judged = judge_model(model, options)
        self.version = reading.version
        self.lows = options.wishes.line.beside
        sums_high = {n for side in self.judged.sides for n, verdict in enumerate(side) if verdict.accumulate is HIGH}
        reading, self.lab = model.read(options.wishes.low, self.version), lab_of(model)
        self.emulator = self.lab.emulator(
            reading,
            self.lows,
            accumulation,
            sums_high=sums_high,
            limits=self.judged.limits,
            quantized=_ports(self.judged),
        )
        self._kept: dict[str, Mapping[str, Any]] = {}
        self._kept_bytes = 0
        self.runs = 0

    @property
    def outputs(self) -> frozenset[str]:
        """The names of the model's outputs."""
        return frozenset(self.lab.outputs)

    @property
    def graph(self) -> Graph:
        return self.judged.problem.graph

    def reference(self, batch: "Batch") -> Mapping[str, Any]:
        """The model's own answers."""
        kept = self._kept.get(batch.origin)
        if kept is None:
            kept = self.emulator.run(batch.feeds, {})
            size = sum(getattr(answer, "nbytes", 0) for answer in kept.values())
            if self._kept_bytes + size <= _KEPT_BYTES:
                self._kept[batch.origin] = kept
                self._kept_bytes += size
        return kept

    def run(self, batch: "Batch", low: Mapping[int, DType]) -> Mapping[str, Any]:
        """The answers with these nodes in these formats, all else in FP32."""
        self.runs += 1
        return self.emulator.run(batch.feeds, low)

    def error(
        self, low: Mapping[int, DType], batches: "Iterable[Batch]", shares: Mapping[str, float] | None = None
    ) -> float:
        """The largest relative L2 error of an output over the batches; infinite where an output is broken.

        `shares`: what each output counts, 1 unless given.
        """
        total = ErrorSum(shares)
        for batch in batches:
            total.add(self.reference(batch), self.run(batch, low))
            if total.is_broken:
                break
        return total.error

    def tell(self, batches: "Iterable[Batch]") -> Telling:
        """What the model's own answers to data can show."""
        return find_telling(self.lab.subject(), batches, self.reference)

    def reaching(self, outputs: Collection[str]) -> frozenset[int]:
        """The nodes that the model's outputs of these names depend on, ties of bodies included."""
        wanted = {name_port(Kind.OUTPUT, name) for name in outputs}
        waiting = [n.id for n in self.graph.nodes if n.kind is Kind.OUTPUT and n.name in wanted]
        found = set(waiting)
        while waiting:
            for value in self.graph.nodes[waiting.pop()].inputs:
                producer = None if value is None else self.graph.values[value].producer
                if producer is not None and producer not in found:
                    found.add(producer)
                    waiting.append(producer)
        return frozenset(found)


def _ports(judged: Judged) -> QuantizedPorts:
    if judged.quantizing is None:
        return NO_PORTS
    return quantized_ports(judged.problem)


def units_of(judged: Judged, low: DType) -> tuple[Unit, ...]:
    """The units of a model that may run in a format, in graph order: decomposed norms as one, linked operators as one,
    by the name of the first, and norms with those linked to a part of them.

    Operators that only move values make no error of their own and are in no unit.
    """
    problem = judged.problem
    graph, rows, level = problem.graph, rows_of(problem.graph), problem.line.level_of(low)
    assert level is not None, "a format of the line"
    is_free = problem.allowed[level] & (problem.allowed.sum(axis=0) > 1)
    found = [(name, group) for name, group in norms(View(graph=graph, rows=rows, low=FORMATS[low]))]
    pairs = [(group[0].id, node.id) for _, group in found for node in group if is_free[node.id]]
    root_of = joined(problem.linked[problem.line.threshold_of(level)], pairs)
    labels = {root_of[group[0].id]: f"{name} around {group[0].name!r}" for name, group in reversed(found)}
    members: dict[int, list[int]] = {}
    for node in graph.nodes:
        row = rows[node.id]
        if node.kind is not Kind.OP or not is_free[node.id]:
            continue
        if row is not None and row.keeps_values:
            continue
        members.setdefault(root_of[node.id], []).append(node.id)
    return tuple(Unit(labels.get(root, graph.nodes[root].name), tuple(nodes), low) for root, nodes in members.items())


def can_cut(model: "Model", batch: "Batch") -> bool:
    """Whether a model takes the first samples of a batch: no input fixes its length, and it runs on half of them."""
    lab = lab_of(model)
    if batch.samples < 2 or lab.inputs.has_fixed_length:
        return False
    try:
        lab.native()(cut(batch, 0, batch.samples // 2).feeds)
    except MezzoError:  # the length is a weight's, or that of another input
        return False
    return True


def few_samples(rig: "Rig", batch: "Batch") -> "Batch":
    """The first samples of a batch, as many as give outputs to measure errors on, where the model takes fewer."""
    answers = rig.reference(batch).values()
    numbers = sum(getattr(answer, "size", 0) for answer in answers) / batch.samples if batch.samples else 0
    wanted = min(max(math.ceil(_NUMBERS / numbers) if numbers else _MOST_SAMPLES, _LEAST_SAMPLES), _MOST_SAMPLES)
    return cut(batch, 0, wanted) if batch.samples > wanted and can_cut(rig.model, batch) else batch


def probe(
    units: Sequence[Unit],
    error_of: Callable[[Sequence[int]], float],
    max_runs: int = MOST_RUNS,
    may_go_on: Callable[[], bool] = lambda: True,
    report: Callable[[int], None] | None = None,
    places: Sequence[int] | None = None,
) -> Probing:
    """Find what each unit costs in at most `max_runs` runs; `error_of` runs the nodes that it is given low."""
    done = 0

    def run(chosen: Sequence[int]) -> float:
        nonlocal done
        done += 1
        if report is not None:
            report(done)
        return error_of([node for unit in chosen for node in units[unit].nodes])

    weights = [float(len(unit.nodes)) for unit in units]
    return probe_units(weights, run, max_runs, may_go_on=may_go_on, places=places)


def places_of(graph: Graph, units: Sequence[Unit]) -> list[int]:
    """The place of each unit in blocks that repeat: that of its nodes."""
    of_node = find_places(graph)
    known: dict[tuple[int, ...], int] = {}
    return [known.setdefault(tuple(of_node[node] for node in unit.nodes), len(known)) for unit in units]


def describe_probing(
    rig: Rig, units: Sequence[Unit], probing: Probing, data: DataSource, unknown: tuple[str, ...] = ()
) -> Sensitivity:
    """Name what a probing found."""
    nodes = rig.graph.nodes
    found = []
    for at, (unit, cost) in enumerate(zip(units, probing.costs, strict=True)):
        low, high = probing.interval(at)
        broken = "an output is NaN or infinite"
        shared = f"{broken} when it and {cost.together - 1} more run low together; which of them does it is not known"
        found.append(
            UnitError(
                name=unit.name if len(rig.lows) == 1 else f"{unit.name} in {unit.dtype}",
                nodes=tuple(nodes[node].name for node in unit.nodes),
                error=math.sqrt(cost.square),
                is_measured=cost.is_measured,
                fault=None if math.isfinite(cost.square) else broken if cost.is_measured else shared,
                together=cost.together,
                low=None if cost.is_measured else low,
                high=None if cost.is_measured else high,
            )
        )
    return sort_units(
        Sensitivity(data=data, units=tuple(found), all_low=probing.all_low, runs=probing.runs, unknown=unknown)
    )


def sort_units(found: Sensitivity) -> Sensitivity:
    """The same, the most costly unit first."""
    order = sorted(range(len(found.units)), key=lambda at: (-found.units[at].error, at))
    return replace(found, units=tuple(found.units[at] for at in order))
