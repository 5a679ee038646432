"""Costs measured on the target at hand: profiles of a model high and low become what a strategy weighs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mezzo.common.errors import ContractError, InputError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import Profiler
from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.contracts.profiles import Effort, NodeTimes
from mezzo.contracts.reading import Artifact
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import lab_of
from mezzo.formats.precision_line import float_of
from mezzo.ir.nodes import Kind, port_of
from mezzo.numerics.measures import CostTable
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.planner.options import Options
from mezzo.planner.planner import Judged
from mezzo.tuning.costs import (
    CastLine,
    CastSample,
    Ran,
    Times,
    agreed,
    all_at,
    cost_table,
    derive_costs,
    fit_casts,
    heavy_at,
    noise_of,
    predict_ns,
    table_weights,
    without_gains,
)

_DEFAULT = Effort()
_MOST_MAPPED = 0.9  # below that, people should hear of it
_Ran = tuple[Sequence[int], NodeTimes]  # the level of each node, and the profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Costs measured on a target. `costs` are for the problem that `judge_model` makes of the same model and options.

    `high_ns` and `low_ns`: a profiled run with every node high, and the fastest of those with every node low that may
    be; what is profiled takes longer. `mapped_share`: how much of the time could be given to the nodes it belongs to,
    in the worst of them.
    """

    costs: MeasuredCosts
    table: CostTable
    high_ns: float
    low_ns: float
    mapped_share: float
    notes: tuple[str, ...]


def profiler_of(model: Model) -> Profiler:
    """What times a model. Raises InputError: nothing does."""
    profiler = lab_of(model).profiler
    if profiler is None:
        raise InputError(
            f"{model.name} cannot be timed: front end {model.frontend.name!r} does not; leave out {option('measure')}"
        )
    return profiler


def check_measurable(model: Model, options: Options) -> str:
    """What costs will be measured on, in words. Raises InputError: the target cannot be measured on this machine."""
    target = options.planning.target
    machine, runtime = find_machine(), profiler_of(model).find_runtime(target)
    features = ", ".join(machine.features or ()) or "features unknown"
    return f"measured on {target.name.removesuffix('-cpu')} {runtime} cpu, {machine.architecture}: {features}"


def measure_costs(
    model: Model, options: Options, feeds: Mapping[str, Any], effort: Effort = _DEFAULT
) -> tuple[MeasuredCosts, CostTable]:
    """Measure what a strategy weighs, and the same for an account. Errors are `measure`'s."""
    found = measure(model, options, feeds, effort)
    return found.costs, found.table


def measure(model: Model, options: Options, feeds: Mapping[str, Any], effort: Effort = _DEFAULT) -> Measurement:
    """Profile a model on the target of `options`, high and low in turns, and derive what a strategy weighs.

    Raises:
        InputError: the target cannot be measured, its runtime is missing, or the feeds do not fit.
        ContractError: the target does not run the model.
    """
    source = check_measurable(model, options)
    reading, judged = judge_model(model, options)
    problem = judged.problem
    (high, again), ran, notes = _profile(model, judged, reading.version, options, feeds, effort)
    lines = _fit_lines(problem, high, [times for _, times in ran])
    notes += _missing_lines(problem, lines, [levels for levels, _ in ran])
    runs = [Ran(levels, _times(times)) for levels, times in ran]
    costs, nodes = derive_costs(problem, agreed(_times(high), _times(again)), runs, lines)
    noise = noise_of(_times(high), _times(again))
    if not _saves(replace(problem.without_penalties(), measured=costs), options, high, noise):
        costs = without_gains(costs)
        notes.append(f"nothing gains here beyond the noise of measuring, {noise:.1%}")
    share = min(times.mapped_share for times in (high, *(times for _, times in ran)))
    if share < _MOST_MAPPED:
        notes.append(f"{1 - share:.0%} of the time could not be told apart by nodes and was spread over all of them")
    high_ns = (high.run_ns + again.run_ns) / 2
    return Measurement(
        costs=costs,
        table=cost_table(source, nodes),
        high_ns=high_ns,
        low_ns=min(times.run_ns for _, times in ran),
        mapped_share=share,
        notes=tuple(notes),
    )


def _fit_lines(problem: Problem, high: NodeTimes, low: Sequence[NodeTimes]) -> list[CastLine | None]:
    """What conversions take at each threshold; None where none was seen to run on its own."""
    overhead = high.between_ns / high.kernel_runs if high.kernel_runs else 0.0  # a conversion is a kernel more to start
    found = []
    for threshold in problem.line.thresholds:
        line = fit_casts(_samples(problem, low, _quantizes(problem, threshold)))
        found.append(None if line is None else replace(line, launch_ns=line.launch_ns + overhead))
    return found


def _quantizes(problem: Problem, threshold: int) -> bool:
    """Whether what crosses a threshold is quantized there."""
    return problem.line.quantized is not None and problem.line.threshold_of(problem.line.quantized) == threshold


def _missing_lines(problem: Problem, lines: Sequence[CastLine | None], ran: Sequence[Sequence[int]]) -> Iterator[str]:
    """A note on each kind of conversion that was wanted and not seen."""
    for threshold, line in enumerate(lines):
        levels = {level for each in ran for level in each} - {problem.line.base}
        if line is None and any(problem.line.threshold_of(level) == threshold for level in levels):
            word = "Quantize or Dequantize" if _quantizes(problem, threshold) else "cast"
            plural = "they cost" if _quantizes(problem, threshold) else "casts cost"
            yield f"no {word} was seen to run on its own: {plural} what the table says"


def _saves(problem: Problem, options: Options, high: NodeTimes, noise: float) -> bool:
    """Whether the best plan saves more than its low nodes' times differ by from one profile to the next."""
    levels = options.planning.strategy.assign(problem)
    base = problem.line.base
    ran_ns = sum(high.by_node.get(str(number), 0.0) for number, level in enumerate(levels) if level != base)
    return -predict_ns(problem, levels, 0.0) > noise * ran_ns


def _profile(
    model: Model, judged: Judged, version: int | None, options: Options, feeds: Mapping[str, Any], effort: Effort
) -> tuple[Sequence[NodeTimes], list[_Ran], list[str]]:
    """Profile the model high, high again, and at each level beside the base all that may run there and the heavy of it
    alone. If the target does not run one of these: as the table plans it.

    Gives the two profiles at the base, the others with the level at which each node ran, and notes.
    """
    problem, target = judged.problem, options.planning.target
    weights = {str(number): float(weight) for number, weight in enumerate(table_weights(problem).tolist())}
    nothing = [problem.line.base] * len(problem.graph.nodes)

    def take(assignments: Sequence[Sequence[int]]) -> tuple[Sequence[NodeTimes], list[_Ran]]:
        variants = [typed_model(model, judged, each, version) for each in (nothing, nothing, *assignments)]
        times = profiler_of(model).profile(variants, target, feeds, weights, effort)
        return times[:2], list(zip(assignments, times[2:], strict=True))

    try:
        return *take([run(problem, level) for run in (all_at, heavy_at) for level in problem.line.others]), []
    except ContractError as error:
        planned = options.planning.strategy.assign(replace(problem.without_penalties(), measured=None))
        note = f"with everything low, {str(error)[:200]}; the plan from the table was measured instead"
        return *take([planned, planned]), [note]


def with_costs(judged: Judged, measured: Measurement) -> Judged:
    """The same judgement, to be planned with measured costs."""
    return replace(judged, problem=replace(judged.problem, measured=measured.costs))


def typed_model(model: Model, judged: Judged, levels: Sequence[int], version: int | None = None) -> Artifact:
    """Make the model in the precisions of an assignment; operators say which planner's node they are.

    `version`: that of the reading that was judged; None for the model's own.
    """
    problem = judged.problem
    reading = model.read(float_of(problem.line), version)
    if all(level == problem.line.base for level in levels):
        return profiler_of(model).variant(reading, ())
    edits = lower(problem, levels, judged.limits)
    faults = check(problem, levels, edits)
    assert not faults, f"an assignment to be measured breaks a rule: {faults[0]}"
    return profiler_of(model).variant(reading, edits)


def _times(times: NodeTimes) -> Times:
    def by_id(given: Mapping[str, float]) -> dict[int, float]:
        return {int(label): time_ns for label, time_ns in given.items()}

    return Times(by_id(times.by_node), by_id(times.spread_ns))


def _samples(problem: Problem, profiles: Sequence[NodeTimes], is_quantizing: bool) -> list[CastSample]:
    """The conversions of one kind that ran on their own, with the sizes of the values they read."""
    graph = problem.graph
    inputs = {port_of(node): node for node in graph.nodes if node.kind is Kind.INPUT}
    found = []
    for profile in profiles:
        for cast in (cast for cast in profile.casts if cast.is_quantizing is is_quantizing):
            producer = graph.nodes[int(cast.source)] if cast.source.isdecimal() else inputs.get(cast.source)
            outputs = () if producer is None else producer.outputs
            value = outputs[cast.position] if cast.position < len(outputs) else None
            if value is not None:
                repeats = graph.scopes[graph.values[value].scope].repeats
                found.append(CastSample(graph.values[value].elements, cast.time_ns / max(1, repeats)))
    return found
