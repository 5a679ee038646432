"""mezzo tune: the fastest model whose answers stay inside a budget of error on the user's data."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.safe_paths import check_destination, check_destinations, kept_beside
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
from mezzo.tuning.frontier import Candidate, predict
from mezzo.tuning.goals import Goal, Memory, Score, identity_of
from mezzo.tuning.measured_costs import Measurement, check_measurable
from mezzo.tuning.measured_costs import measure as measure_target
from mezzo.tuning.repair.overflow_protection import check, convert_on_data, with_data_settings
from mezzo.tuning.repair.range_findings import protect
from mezzo.tuning.repair.runtime_check import PlannedResult, check_on_runtime
from mezzo.tuning.timing.final_benchmark import Race, race
from mezzo.tuning.tuner import Choosing, Limits, Tuner

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.numerics.data.datasets import Data, Dataset
    from mezzo.numerics.metrics.user_metric import Metric

# On data that the search sees, the error has to stay below the budget divided by this: other data may be worse. More
# where nothing is held out to notice it.
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
    """Find the cheapest plan whose answers stay inside a budget of error, and convert with it.

    The error is the largest relative L2 over the outputs, ||y - ref|| / ||ref|| over all data, in the true precision.
    There is always a result: in the worst case the model itself, with what stopped the search. Its account, `measured`,
    holds the frontier, what each unit costs, and the error on data that the search never saw. What the data cannot
    tell, as it holds NaN or nothing changes, is in `measured.search.unknown`; then nobody knows whether the budget
    holds, and what reaches only outputs of which nothing shows stays FP32.

    Args:
        data: what to tune on, as of `mezzo.compare`; where `held_out` is not given, a quarter of it is held out.
        max_error: the budget.
        metric, max_drop: instead of it, a metric ("module:function" or a callable; larger is better) and by how much it
            may drop: 0.005, or "0.5%" of the reference's.
        measure: weigh with times measured on the target instead of its table, and time the result at the end beside the
            model in FP32 and what `mezzo.convert` gives alone; what is no faster than FP32 is FP32.
        accumulate, tile: the target's sums are rounded to "fp16" or "bf16" after every `tile` products; in FP32 unless
            given.
        time_limit_s: end the search with the best plan found by then, and with the batch that runs then; the check of
            that plan comes after it. What INT8 takes its scales from ends so too, and a note says how much of it was
            seen.
        resume: a file that keeps what was run, so that a search that stopped goes on; what was measured and collected
            before it is kept beside, in FILE.ranges.npz and FILE.calibration.npz.
        options: those of `mezzo.plan`, and `provenance` as of `mezzo.convert`; the policy says what may run low at all,
            "aggressive" unless given.

    Raises:
        InputError: an option or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise.
    """
    begin = time.monotonic()
    if dst is not None:
        check_destination(dst)
    kept = {what: kept_beside(resume, what) for what in ("ranges", "calibration")}
    check_destinations({"resume": resume, **kept}, () if dst is None else (Path(dst),))
    deadline = math.inf if time_limit_s is None else begin + time_limit_s
    plain = aimed(src, request_of(options))
    if options.get("policy") is None:
        options["policy"] = SEARCH_DEFAULTS["policy"]
    request = aimed(src, request_of(options))
    chosen = read_options(request)
    goal = replace(
        _read_goal(max_error, metric, max_drop), accumulation=read_accumulation(accumulate, tile, "emulated")
    )
    model = open_source(src, request.trust_external_paths, progress)
    if measure:
        check_measurable(model, chosen)
    seen, unseen = _split(model, data, held_out, labels, batch_size)
    goal = replace(goal, margin=_MARGIN_UNSEEN if unseen is None else _MARGIN)
    chosen = with_data_settings(_check_strategy(chosen), data, **_spell(goal))
    model, chosen = fuse(model, chosen)
    identity = identity_of(model.read(chosen.planning.low).graph, seen, chosen)
    memory = Memory(None if resume is None else Path(resume), identity)

    def has_time() -> bool:
        return time.monotonic() < deadline

    model, chosen = _calibrated(model, chosen, seen, request.calibrator, kept["calibration"], has_time)
    # Corrections that time has cut short make another model than the one that this goes on with the next time.
    chosen, ranges = protect(model, chosen, seen, kept["ranges"] if has_time() else None, has_time)
    problem = judge_model(model, chosen)[1].problem
    can_measure = measure and ranges.data.samples > 0  # without a sample there is nothing to run
    prices = measure_target(model, chosen, next(iter(seen)).feeds) if can_measure else _read_table(problem, chosen)
    chosen = replace(chosen, planning=replace(chosen.planning, measured=prices.costs))
    # Where time has cut scales short there is none for a run: no score that is kept is of other scales.
    tuner = Tuner(model, chosen, goal, seen, Limits(deadline), memory, prices.table, progress)

    def convert_alone(path: Path | None) -> Converted:
        fresh = open_source(src, request.trust_external_paths, None)
        return convert_on_data(fresh, path, replace(plain, check=False), data, labels=labels, batch_size=batch_size)

    return _Finish(model, tuner, goal, seen, unseen, ranges, prices, convert_alone, begin).write(dst, overwrite)


@dataclass(frozen=True, slots=True)
class _Table:
    """What a target's table says, in the form of a measurement."""

    costs: MeasuredCosts
    table: CostTable
    notes: tuple[str, ...] = ()


def _read_table(problem: Problem, options: Options) -> _Table:
    return _Table(*table_costs(problem, f"table of {options.planning.target.name}"))


class _Finish:
    """Verifies what a search chose on the converted model itself, and makes the account."""

    def __init__(
        self,
        model: "Model",
        tuner: Tuner,
        goal: Goal,
        seen: "Dataset",
        unseen: "Dataset | None",
        ranges: Ranges,
        prices: Measurement | _Table,
        convert_alone: Callable[[Path | None], Converted],
        begin: float,
    ) -> None:
        self.model, self.tuner, self.goal, self.seen, self.unseen = model, tuner, goal, seen, unseen
        self.ranges, self.prices, self.convert_alone, self.begin = ranges, prices, convert_alone, begin
        self.checks = 0

    def write(self, dst: "str | os.PathLike[str] | None", overwrite: bool) -> Converted:
        """Choose, verify, make safer what fails, and write."""
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
        first = PlannedResult(decided=decided, result=result, options=choosing.options)
        outputs = {output.name: output for output in comparison.outputs}
        data = self.seen if self.unseen is None else self.unseen
        checked = check_on_runtime(self.model, first, data, outputs, may_change=True)
        if checked is not None:
            notes += checked.notes
            runtime, timing = checked.check, checked.timing
            decided, result = checked.candidate.decided, checked.candidate.result
            if checked.candidate is not first:
                comparison = self._verify(result)
                excess = self._excess(comparison)
        if isinstance(self.prices, Measurement) and choosing.chosen.low_nodes:
            ran = self._race(result)
            notes += ran.notes
            timing = ran.timing
            if ran.fault is not None or (ran.speed is not None and ran.speed.estimate <= 1.0):
                timing = None
                words = "nothing that holds the budget is faster than FP32 here"
                choosing = self.tuner.give_up(words if ran.fault is None else f"{_NOT_RUN}: {ran.fault}")
                decided, result = convert_model(self.model, choosing.options, None)
                comparison, excess = self._verify(result), 0.0
        measured = replace(self._account(choosing, comparison, excess, notes), timing=timing, runtime=runtime)
        return finish(self.model, decided, result, dst, overwrite=overwrite, measured=measured)

    def _race(self, result: "Artifact") -> Race:
        """Time the result beside the model in FP32 and what convert alone gives."""
        target, progress = self.tuner.options.planning.target, self.tuner.progress
        return race(self.model, result, self.convert_alone, target, next(iter(self.seen)), progress)

    def _verify(self, result: "Artifact") -> Comparison:
        """Compare the converted model itself with the original, on data that the search has not seen if any is."""
        self.checks += 1
        options = self.tuner.options
        return check(
            self.model, result, self.seen if self.unseen is None else self.unseen, self.goal, options.planning.low
        )

    def _excess(self, comparison: Comparison) -> float:
        """What is bounded over the bound, by the estimate: the margin has left room for the samples' spread."""
        if any(output.fault for output in comparison.outputs):
            return math.inf
        if self.goal.max_error is not None:  # each output within its own budget; of some nothing can be told
            return max((_share(output) for output in comparison.outputs), default=0.0)
        drop = None if comparison.metric is None else comparison.metric.drop
        reference = None if comparison.metric is None else comparison.metric.reference
        error = max((output.relative_l2.estimate for output in comparison.outputs), default=0.0)
        return self.goal.excess(Score(error, drop, reference))

    def _account(self, choosing: Choosing, comparison: Comparison, excess: float, notes: Sequence[str]) -> Measured:
        tuner = self.tuner
        worst = max((output.relative_l2.estimate for output in comparison.outputs), default=0.0)
        # What was seen while searching, and what the last check saw.
        unknown = tuple(dict.fromkeys((*tuner.telling.unknown, *comparison.verdict.unknown)))
        raw = [(point, choosing.scores.get(point.key)) for point in choosing.points]
        prediction = predict([(p.error, s.error) for p, s in raw if s is not None])
        units = [] if choosing.sensitivity is None else choosing.sensitivity.units
        record = SearchRecord(
            budget=comparison.verdict.budget if choosing.score is None else self.goal.bound(choosing.score),
            margin=self.goal.margin,
            evaluations=tuner.evaluations,
            partial_evaluations=tuner.probes,
            checks=self.checks,
            error=worst if choosing.score is None else choosing.score.error,
            held_out_error=None if self.unseen is None else worst,
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
    """The error of an output in units of its budget; 0 where nothing can be told of it."""
    if output.ruling is Ruling.UNKNOWN:
        return 0.0
    error = output.relative_l2.estimate
    return error / output.budget if output.budget else math.inf if error > 0.0 else 0.0


def _point(point: Candidate, choosing: Choosing, factor: float) -> FrontierPoint:
    known = choosing.scores.get(point.key)
    error = None if known is None else known.error
    is_chosen = point.key == choosing.chosen.key
    return FrontierPoint(
        weight=point.weight,
        cost=point.cost,
        low_nodes=point.low_nodes,
        predicted_error=point.error * factor,
        error=error,
        is_chosen=is_chosen,
    )


def _read_goal(max_error: float | None, metric: "str | Metric | None", max_drop: str | float | None) -> Goal:
    """What the user asks to hold. Raises InputError: nothing, or both."""
    if (max_error is None) is (metric is None):
        raise InputError(
            f"say what must hold: a budget such as {setting('max_error', 1e-3)}, or {option('metric')} with "
            f"{option('max_drop')}; not both"
        )
    if (metric is None) is not (max_drop is None):
        raise InputError(
            f"{option('metric')} and {option('max_drop')} go together: {setting('metric', 'scores:accuracy')} "
            f"{setting('max_drop', '0.5%')}"
        )
    if max_error is not None and not 0 < max_error < math.inf:
        raise InputError(f"max_error is {max_error}; give a relative error above 0, such as 1e-3")
    return Goal(
        max_error=max_error, margin=_MARGIN, metric=metric, max_drop=None if max_drop is None else read_drop(max_drop)
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
    name = goal.metric if isinstance(goal.metric, str) else getattr(goal.metric, "__name__", "a function")
    return {"metric": str(name), "max_drop": goal.max_drop.text, "margin": repr(goal.margin)} | sums


def _check_strategy(options: Options) -> Options:
    name = options.planning.strategy.name
    if name != "mincut":
        raise InputError(f"strategy {name!r} knows no price of error; tune with 'mincut', or leave it out")
    return options


def _calibrated(
    model: "Model", options: Options, seen: "Dataset", calibrator: str, resume: Path | None,
    has_time: Callable[[], bool],
) -> "tuple[Model, Options]":  # fmt: skip
    """The options with parameters from the data that is tuned on, and the model with corrections of its constants that
    help on a part of it which gave none; as far as there is time.
    """
    if options.planning.line.quantized is None or not options.steps:
        return model, with_parameters(model, options, seen, calibrator, resume, has_time)
    known, held_back = split(seen, lambda batch: can_cut(model, batch))
    options = with_parameters(model, options, known, calibrator, resume, has_time)
    searched = replace(options, steps=tuple(step for step in options.steps if step != LEAVE))  # the search itself does
    return correct_parameters(model, searched, known, held_back, calibrator, has_time)


def _split(
    model: "Model", data: "Data", held_out: "Data | None", labels: Sequence[str], batch_size: int | None
) -> "tuple[Dataset, Dataset | None]":
    """The data to tune on, and the data to verify on."""
    seen = open_model_data(model, data, labels=labels, batch_size=batch_size)
    if held_out is not None:
        return seen, open_model_data(model, held_out, labels=labels, batch_size=batch_size)
    return split(seen, lambda batch: can_cut(model, batch))
