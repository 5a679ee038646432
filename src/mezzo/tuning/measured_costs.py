"""Measured cost model: profiles of a model in high and low precision on the target, converted into
a strategy's costs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mezzo.common.errors import ContractError, InputError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import option
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import Profiler
from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.contracts.profiles import Effort, NodeTimes
from mezzo.contracts.reading import Artifact
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.precision_line import floats_of
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
_MOST_MAPPED = 0.9  # below this, a note warns the user
_Ran = tuple[Sequence[int], NodeTimes]  # the level of each node, and the profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Costs measured on a target, for the problem that `judge_model` makes of the same model and
    options.

    `high_ns`: a profiled run at the base level; `low_ns`: the fastest profiled run in low
    precision; profiling slows both. `mapped_share`: the fraction of time attributed to nodes, in
    the worst profile.
    """

    costs: MeasuredCosts
    table: CostTable
    high_ns: float
    low_ns: float
    mapped_share: float
    notes: tuple[str, ...]


def profiler_of(model: Model) -> Profiler:
    """The profiler of a model's front end. Raises InputError: it has none."""
    profiler = lab_of(model).profiler
    if profiler is None:
        raise InputError(
            f"{model.name} cannot be timed: front end {model.frontend.name!r} does not; leave out"
            f" {option('measure')}"
        )
    return profiler


def check_measurable(model: Model, options: Options) -> str:
    """Describe the machine and runtime that costs are measured on. Raises InputError: the target
    cannot be measured on this machine.
    """
    target = options.planning.target
    machine, runtime = find_machine(), profiler_of(model).find_runtime(target)
    features = ", ".join(machine.features or ()) or "features unknown"
    return (
        f"measured on {target.name.removesuffix('-cpu')} {runtime} cpu, {machine.architecture}:"
        f" {features}"
    )


def measure(
    model: Model, options: Options, feeds: Mapping[str, Any], effort: Effort = _DEFAULT
) -> Measurement:
    """Profile a model on the target of `options`, in high and low precision interleaved, and derive
    a strategy's costs.

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
        notes.append(
            f"{1 - share:.0%} of the time could not be attributed to single nodes and was spread"
            " over all of them"
        )
    high_ns = (high.run_ns + again.run_ns) / 2
    return Measurement(
        costs=costs,
        table=cost_table(source, nodes),
        high_ns=high_ns,
        low_ns=min(times.run_ns for _, times in ran),
        mapped_share=share,
        notes=tuple(notes),
    )


def _fit_lines(
    problem: Problem, high: NodeTimes, low: Sequence[NodeTimes]
) -> list[CastLine | None]:
    """Linear costs of conversions per threshold; None where no separate kernel ran."""
    # A conversion is one more kernel to launch.
    overhead = high.between_ns / high.kernel_runs if high.kernel_runs else 0.0
    fitted = []
    for threshold in problem.line.thresholds:
        line = fit_casts(_samples(problem, low, _quantizes(problem, threshold)))
        fitted.append(None if line is None else replace(line, launch_ns=line.launch_ns + overhead))
    return fitted


def _quantizes(problem: Problem, threshold: int) -> bool:
    """Whether conversions at a threshold are Quantize and Dequantize."""
    return (
        problem.line.quantized is not None
        and problem.line.threshold_of(problem.line.quantized) == threshold
    )


def _missing_lines(
    problem: Problem, lines: Sequence[CastLine | None], ran: Sequence[Sequence[int]]
) -> Iterator[str]:
    """A note on each kind of conversion that plans use but no profile shows."""
    for threshold, line in enumerate(lines):
        levels = {level for each in ran for level in each} - {problem.line.base}
        if line is None and any(problem.line.threshold_of(level) == threshold for level in levels):
            word = "Quantize or Dequantize" if _quantizes(problem, threshold) else "cast"
            plural = "they cost" if _quantizes(problem, threshold) else "casts cost"
            yield f"no {word} was seen to run on its own: {plural} what the table says"


def _saves(problem: Problem, options: Options, high: NodeTimes, noise: float) -> bool:
    """Whether the best plan saves more than profiling noise of its low nodes' times."""
    levels = options.planning.strategy.assign(problem)
    base = problem.line.base
    ran_ns = sum(
        high.by_node.get(str(number), 0.0) for number, level in enumerate(levels) if level != base
    )
    return -predict_ns(problem, levels, 0.0) > noise * ran_ns


def _profile(
    model: Model,
    judged: Judged,
    version: int | None,
    options: Options,
    feeds: Mapping[str, Any],
    effort: Effort,
) -> tuple[Sequence[NodeTimes], list[_Ran], list[str]]:
    """Profile the model at the base level twice, and at each other level with all allowed nodes and
    with heavy ones alone. If the target fails on one of these, the table's plan is profiled
    instead.

    Returns the two base profiles, the others with their levels, and notes.
    """
    problem, target = judged.problem, options.planning.target
    weights = {
        str(number): float(weight) for number, weight in enumerate(table_weights(problem).tolist())
    }
    nothing = [problem.line.base] * len(problem.graph.nodes)

    def take(assignments: Sequence[Sequence[int]]) -> tuple[Sequence[NodeTimes], list[_Ran]]:
        variants = [
            typed_model(model, judged, each, version) for each in (nothing, nothing, *assignments)
        ]
        times = profiler_of(model).profile(variants, target, feeds, weights, effort)
        return times[:2], list(zip(assignments, times[2:], strict=True))

    try:
        return (
            *take(
                [run(problem, level) for run in (all_at, heavy_at) for level in problem.line.others]
            ),
            [],
        )
    except ContractError as error:
        planned = options.planning.strategy.assign(
            replace(problem.without_penalties(), measured=None)
        )
        note = (
            f"with everything low, {str(error)[:200]}; the plan from the table was measured instead"
        )
        return *take([planned, planned]), [note]


def typed_model(
    model: Model, judged: Judged, levels: Sequence[int], version: int | None = None
) -> Artifact:
    """The model in the precisions of an assignment; operators carry their planner node's id.

    `version`: that of the reading that was judged; None for the model's own.
    """
    problem = judged.problem
    reading = model.read(*floats_of(problem.line), version=version)
    if all(level == problem.line.base for level in levels):
        return profiler_of(model).variant(reading, ())
    edits = lower(problem, levels, judged.limits)
    faults = check(problem, levels, edits)
    assert not faults, f"an assignment to be measured breaks a rule: {faults[0]}"
    return profiler_of(model).variant(reading, edits)


def _times(times: NodeTimes) -> Times:
    def by_id(by_label: Mapping[str, float]) -> dict[int, float]:
        return {int(label): time_ns for label, time_ns in by_label.items()}

    return Times(by_id(times.by_node), by_id(times.spread_ns))


def _samples(
    problem: Problem, profiles: Sequence[NodeTimes], is_quantizing: bool
) -> list[CastSample]:
    """Conversions of one kind that ran as separate kernels, with their values' sizes."""
    graph = problem.graph
    inputs = {port_of(node): node for node in graph.nodes if node.kind is Kind.INPUT}
    samples = []
    for profile in profiles:
        for cast in (cast for cast in profile.casts if cast.is_quantizing is is_quantizing):
            producer = (
                graph.nodes[int(cast.source)]
                if cast.source.isdecimal()
                else inputs.get(cast.source)
            )
            outputs = () if producer is None else producer.outputs
            value = outputs[cast.position] if cast.position < len(outputs) else None
            if value is not None:
                repeats = graph.scopes[graph.values[value].scope].repeats
                samples.append(
                    CastSample(graph.values[value].elements, cast.time_ns / max(1, repeats))
                )
    return samples
