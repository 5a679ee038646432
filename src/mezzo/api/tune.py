"""Precision search: the fastest model with an output error within a budget on the user's data."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.safe_paths import check_destination, check_destinations, resume_companion
from mezzo.contracts.corrections import LEAVE
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import request_of
from mezzo.contracts.options.request import SEARCH_DEFAULTS
from mezzo.contracts.problem import MeasuredCosts, Problem
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.fusing import fuse
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import Converted, Progress, aimed, finish, open_source
from mezzo.evaluate.answers import read_accumulation
from mezzo.evaluate.model_data import open_model_data
from mezzo.numerics.data.splits import split
from mezzo.numerics.measures import (
    Comparison,
    CostTable,
    Deviation,
    FrontierPoint,
    Measured,
    Ranges,
    Ruling,
    RuntimeCheck,
    SearchRecord,
    Timing,
)
from mezzo.numerics.verdicts import read_drop
from mezzo.planner.options import Options, read_options
from mezzo.quantize.calibration import with_parameters
from mezzo.quantize.corrections import correct_parameters
from mezzo.tuning.costs import table_costs
from mezzo.tuning.evaluator import can_cut
from mezzo.tuning.frontier import FrontierCandidate, predict
from mezzo.tuning.goals import Goal, RunScore, ScoreCache, identity_of
from mezzo.tuning.measured_costs import Measurement, check_measurable
from mezzo.tuning.measured_costs import measure as measure_target
from mezzo.tuning.repair.overflow_protection import check, convert_on_data, with_data_settings
from mezzo.tuning.repair.range_findings import protect
from mezzo.tuning.repair.runtime_check import PlannedResult, check_on_runtime
from mezzo.tuning.timing.final_benchmark import Race, race
from mezzo.tuning.tuner import Choosing, SearchLimits, Tuner

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.numerics.data.datasets import Data, Dataset
    from mezzo.numerics.metrics.user_metric import Metric

# On search data the error must stay below the budget divided by this margin, as other data may have
# larger errors. Without held-out data to detect that, the margin is larger.
_MARGIN = 1.25
_MARGIN_UNSEEN = 1.5
# How often a plan that fails on held-out data is made safer.
_TIGHTENINGS = 3
_NOT_RUN = "the target does not run the result"


def tune(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: "str | os.PathLike[str] | None" = None,
    *,
    data: "Data",
    max_error: float | None = None,
    metric: "str | Metric | None" = None,
    max_drop: str | float | None = None,
    held_out: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    measure: bool = False,
    accumulate: str | None = None,
    tile: int | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> Converted:
    """Find the cheapest plan whose output error stays within a budget, and convert with it.

    The error is the largest relative L2 over the outputs, ||y - ref|| / ||ref|| over all data, in
    true precision. There is always a result: in the worst case the model itself, with the reason
    why the search stopped. Its account, `measured`, holds the frontier, the cost of each unit, and
    the error on held-out data. What the data cannot show, as it holds NaN or nothing changes, is in
    `measured.search.unknown`; then the budget is unconfirmed, and nodes that only reach outputs
    without information stay FP32.

    Args:
        data: data for the search, as of `mezzo.compare`; without `held_out`, a quarter of it is
            held out.
        max_error: the budget.
        metric, max_drop: instead of it, a metric ("module:function" or a callable; larger is
            better) and its largest decrease: 0.005, or "0.5%" of the reference's.
        measure: use times measured on the target instead of its table, and at the end time the
            result with the model in FP32 and the result of `mezzo.convert` alone; a result no
            faster than FP32 is FP32.
        accumulate, tile: the target's accumulators are rounded to "fp16" or "bf16" after every
            `tile` products; FP32 unless given.
        time_limit_s: end the search after the current batch, with the best plan found by then,
            which is checked after it. INT8 calibration ends so too, and a note tells the share of
            data that it used.
        resume: a file with the finished runs, so that an interrupted search continues; ranges and
            calibration are in FILE.ranges.npz and FILE.calibration.npz.
        options: those of `mezzo.plan`, and `provenance` as of `mezzo.convert`; the policy decides
            which nodes may run in low precision, "aggressive" unless given.

    Raises:
        InputError: an option or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise.
    """
    begin = time.monotonic()
    if dst is not None:
        check_destination(dst)
    state_files = {kind: resume_companion(resume, kind) for kind in ("ranges", "calibration")}
    check_destinations({"resume": resume, **state_files}, () if dst is None else (Path(dst),))
    deadline = math.inf if time_limit_s is None else begin + time_limit_s
    usual = aimed(src, request_of(options))
    if options.get("policy") is None:
        options["policy"] = SEARCH_DEFAULTS["policy"]
    request = aimed(src, request_of(options))
    chosen = read_options(request)
    goal = replace(
        _read_goal(max_error, metric, max_drop),
        accumulation=read_accumulation(accumulate, tile, "emulated"),
    )
    model = open_source(src, request.trust_external_paths, progress)
    if measure:
        check_measurable(model, chosen)
    search_data, unseen = _split(model, data, held_out, labels, batch_size)
    goal = replace(goal, margin=_MARGIN_UNSEEN if unseen is None else _MARGIN)
    chosen = with_data_settings(_check_strategy(chosen), data, **_spell(goal))
    model, chosen = fuse(model, chosen)
    identity = identity_of(model.read(chosen.planning.low).graph, search_data, chosen)
    memory = ScoreCache(None if resume is None else Path(resume), identity)

    def has_time() -> bool:
        return time.monotonic() < deadline

    model, chosen = _calibrated(
        model, chosen, search_data, request.calibrator, state_files["calibration"], has_time
    )
    # If the time limit cut corrections short, a resumed run has another model: keep no ranges.
    chosen, ranges = protect(
        model, chosen, search_data, state_files["ranges"] if has_time() else None, has_time
    )
    problem = judge_model(model, chosen)[1].problem
    can_measure = measure and ranges.data.samples > 0  # without a sample there is nothing to run
    prices = (
        measure_target(model, chosen, next(iter(search_data)).feeds)
        if can_measure
        else _read_table(problem, chosen)
    )
    chosen = replace(chosen, planning=replace(chosen.planning, measured=prices.costs))
    # If the time limit cut calibration short, no run follows: saved scores have full scales.
    tuner = Tuner(
        model, chosen, goal, search_data, SearchLimits(deadline), memory, prices.table, progress
    )

    def convert_alone(path: Path | None) -> Converted:
        source = open_source(src, request.trust_external_paths, None)
        return convert_on_data(
            source, path, replace(usual, check=False), data, labels=labels, batch_size=batch_size
        )

    return _Finish(
        model, tuner, goal, search_data, unseen, ranges, prices, convert_alone, begin
    ).write(dst, overwrite)


@dataclass(frozen=True, slots=True)
class _Table:
    """Costs from a target's table, in the form of a measurement."""

    costs: MeasuredCosts
    table: CostTable
    notes: tuple[str, ...] = ()


def _read_table(problem: Problem, options: Options) -> _Table:
    return _Table(*table_costs(problem, f"table of {options.planning.target.name}"))


class _Finish:
    """Verification of the chosen plan on the converted model, and the account of the search."""

    def __init__(
        self,
        model: "Model",
        tuner: Tuner,
        goal: Goal,
        search_data: "Dataset",
        unseen: "Dataset | None",
        ranges: Ranges,
        prices: Measurement | _Table,
        convert_alone: Callable[[Path | None], Converted],
        begin: float,
    ) -> None:
        self.model, self.tuner, self.goal, self.seen, self.unseen = (
            model,
            tuner,
            goal,
            search_data,
            unseen,
        )
        self.ranges, self.prices, self.convert_alone, self.begin = (
            ranges,
            prices,
            convert_alone,
            begin,
        )
        self.checks = 0

    def write(self, dst: "str | os.PathLike[str] | None", overwrite: bool) -> Converted:
        """Choose a plan, verify it, tighten the budget if it fails, and write the result."""
        slack = 1.0
        for attempt in range(_TIGHTENINGS + 1):
            choosing = self.tuner.choose(slack)
            decided, result = convert_model(self.model, choosing.options, None)
            comparison = self._verify(result)
            excess = self._excess(comparison)
            if excess <= 1.0 or not choosing.chosen.low_nodes or attempt == _TIGHTENINGS:
                break
            slack *= 1.1 * excess if math.isfinite(excess) else 4.0
        notes: list[str] = [*self.prices.notes]
        timing: Timing | None = None
        runtime: RuntimeCheck | None = None
        planned = PlannedResult(decided=decided, result=result, options=choosing.options)
        outputs = {output.name: output for output in comparison.outputs}
        data = self.seen if self.unseen is None else self.unseen
        checked = check_on_runtime(self.model, planned, data, outputs, may_change=True)
        if checked is not None:
            notes += checked.notes
            runtime, timing = checked.check, checked.timing
            decided, result = checked.candidate.decided, checked.candidate.result
            if checked.candidate is not planned:
                comparison = self._verify(result)
                excess = self._excess(comparison)
        if isinstance(self.prices, Measurement) and choosing.chosen.low_nodes:
            benchmark = self._race(result)
            notes += benchmark.notes
            timing = benchmark.timing
            if benchmark.fault is not None or (
                benchmark.speed is not None and benchmark.speed.estimate <= 1.0
            ):
                timing = None
                words = "nothing that holds the budget is faster than FP32 here"
                choosing = self.tuner.give_up(
                    words if benchmark.fault is None else f"{_NOT_RUN}: {benchmark.fault}"
                )
                decided, result = convert_model(self.model, choosing.options, None)
                comparison, excess = self._verify(result), 0.0
        measured = replace(
            self._account(choosing, comparison, excess, notes), timing=timing, runtime=runtime
        )
        return finish(self.model, decided, result, dst, overwrite=overwrite, measured=measured)

    def _race(self, result: "Artifact") -> Race:
        """Time the result, the model in FP32 and the result of `mezzo.convert` alone."""
        target, progress = self.tuner.options.planning.target, self.tuner.progress
        return race(self.model, result, self.convert_alone, target, next(iter(self.seen)), progress)

    def _verify(self, result: "Artifact") -> Comparison:
        """Compare the converted model with the original, on held-out data if there is any."""
        self.checks += 1
        options = self.tuner.options
        return check(
            self.model,
            result,
            self.seen if self.unseen is None else self.unseen,
            self.goal,
            options.planning.low,
        )

    def _excess(self, comparison: Comparison) -> float:
        """The error or drop relative to its bound, without the margin: it allows for other data."""
        if any(output.fault for output in comparison.outputs):
            return math.inf
        if self.goal.max_error is not None:  # each output has its own budget
            return max((_share(output) for output in comparison.outputs), default=0.0)
        drop = None if comparison.metric is None else comparison.metric.drop
        reference = None if comparison.metric is None else comparison.metric.reference
        error = max((output.relative_l2.estimate for output in comparison.outputs), default=0.0)
        return self.goal.excess(RunScore(error, drop, reference))

    def _account(
        self, choosing: Choosing, comparison: Comparison, excess: float, notes: Sequence[str]
    ) -> Measured:
        tuner = self.tuner
        largest_error = max(
            (output.relative_l2.estimate for output in comparison.outputs), default=0.0
        )
        # Limits of the data, from the search and from the last check.
        unknown = tuple(dict.fromkeys((*tuner.telling.unknown, *comparison.verdict.unknown)))
        scored = [(point, choosing.scores.get(point.key)) for point in choosing.points]
        prediction = predict([(p.error, s.error) for p, s in scored if s is not None])
        units = [] if choosing.sensitivity is None else choosing.sensitivity.units
        record = SearchRecord(
            budget=(
                comparison.verdict.budget
                if choosing.score is None
                else self.goal.bound(choosing.score)
            ),
            margin=self.goal.margin,
            evaluations=tuner.evaluations,
            partial_evaluations=tuner.probes,
            checks=self.checks,
            error=largest_error if choosing.score is None else choosing.score.error,
            held_out_error=None if self.unseen is None else largest_error,
            is_within_budget=excess <= 1.0 and not unknown,
            stopped_by=choosing.stopped_by,
            time_s=time.monotonic() - self.begin,
            costliest=units[0].name if units else None,
            unknown=unknown,
            prediction=prediction,
        )
        factor = 1.0 if prediction is None else prediction.factor
        points = tuple(_point(point, choosing, factor) for point in choosing.points)
        source = self.seen.source(self.ranges.data.batches, self.ranges.data.samples)
        return Measured(
            data=source,
            ranges=self.ranges,
            comparison=comparison,
            sensitivity=choosing.sensitivity,
            costs=self.prices.table,
            frontier=points,
            search=record,
            notes=(*comparison.notes, *notes),
        )


def _share(output: Deviation) -> float:
    """An output's error relative to its budget; 0 if the data cannot show it."""
    if output.ruling is Ruling.UNKNOWN:
        return 0.0
    error = output.relative_l2.estimate
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


def _read_goal(
    max_error: float | None, metric: "str | Metric | None", max_drop: str | float | None
) -> Goal:
    """The budget of error or metric. Raises InputError: neither is given, or both."""
    if (max_error is None) is (metric is None):
        raise InputError(
            f"say what must hold: a budget such as {setting('max_error', 1e-3)}, or"
            f" {option('metric')} with {option('max_drop')}; not both"
        )
    if (metric is None) is not (max_drop is None):
        raise InputError(
            f"{option('metric')} and {option('max_drop')} go together:"
            f" {setting('metric', 'scores:accuracy')} {setting('max_drop', '0.5%')}"
        )
    if max_error is not None and not 0 < max_error < math.inf:
        raise InputError(f"max_error is {max_error}; give a relative error above 0, such as 1e-3")
    return Goal(
        max_error=max_error,
        margin=_MARGIN,
        metric=metric,
        max_drop=None if max_drop is None else read_drop(max_drop),
    )


def _spell(goal: Goal) -> dict[str, str]:
    """The goal as settings of a plan."""
    sums = (
        {}
        if goal.accumulation is None
        else {"accumulate": str(goal.accumulation.dtype), "tile": str(goal.accumulation.tile)}
    )
    if goal.max_error is not None:
        return {"max_error": repr(goal.max_error), "margin": repr(goal.margin)} | sums
    assert goal.max_drop is not None, "a goal bounds the error or the metric"
    name = (
        goal.metric
        if isinstance(goal.metric, str)
        else getattr(goal.metric, "__name__", "a function")
    )
    return {"metric": str(name), "max_drop": goal.max_drop.text, "margin": repr(goal.margin)} | sums


def _check_strategy(options: Options) -> Options:
    name = options.planning.strategy.name
    if name != "mincut":
        raise InputError(
            f"strategy {name!r} knows no price of error; tune with 'mincut', or leave it out"
        )
    return options


def _calibrated(
    model: "Model", options: Options, search_data: "Dataset", calibrator: str, resume: Path | None,
    has_time: Callable[[], bool],
) -> "tuple[Model, Options]":  # fmt: skip
    """Calibrate the model's options on the search data, and apply corrections of its constants.

    A correction is kept if it helps on a part of the data that gave no scales, and if there is
    time.
    """
    if options.planning.line.quantized is None or not options.steps:
        return model, with_parameters(model, options, search_data, calibrator, resume, has_time)
    calibration_data, test_data = split(search_data, lambda batch: can_cut(model, batch))
    options = with_parameters(model, options, calibration_data, calibrator, resume, has_time)
    # The search itself does.
    searched = replace(options, steps=tuple(step for step in options.steps if step != LEAVE))
    return correct_parameters(model, searched, calibration_data, test_data, calibrator, has_time)


def _split(
    model: "Model",
    data: "Data",
    held_out: "Data | None",
    labels: Sequence[str],
    batch_size: int | None,
) -> "tuple[Dataset, Dataset | None]":
    """The data of the search, and held-out data if there is any."""
    search_data = open_model_data(model, data, labels=labels, batch_size=batch_size)
    if held_out is not None:
        return search_data, open_model_data(model, held_out, labels=labels, batch_size=batch_size)
    return split(search_data, lambda batch: can_cut(model, batch))
