"""Conversion with data: overflow protection of nodes whose values exceed a format's range, clearing
of merely suspected nodes, and repair if the outputs fail.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.common.safe_paths import resume_companion
from mezzo.contracts.corrections import BIAS
from mezzo.contracts.options.request import Request
from mezzo.contracts.strategy import cost
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.fusing import fuse
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.recall import recall
from mezzo.conversion.results import Converted, finish
from mezzo.evaluate.answers import compare_on
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.data.splits import split
from mezzo.numerics.measures import Comparison, Measured, Ranges, Ruling
from mezzo.numerics.ranges.range_evidence import can_tell
from mezzo.planner.options import Options, read_options
from mezzo.quantize.calibration import with_parameters
from mezzo.quantize.corrections import correct_biases, correct_parameters
from mezzo.tuning.evaluator import Evaluator, can_cut, few_samples, split_for_scales
from mezzo.tuning.goals import Goal, ScoreCache, identity_of, shares_of
from mezzo.tuning.repair.last_layers import without_last
from mezzo.tuning.repair.range_findings import HEADROOM, count_lifted, with_lifts, with_protection
from mezzo.tuning.repair.runtime_check import PlannedResult, check_on_runtime
from mezzo.tuning.tuner import SearchLimits, Tuner

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.reading import Artifact
    from mezzo.conversion.decided import Decided
    from mezzo.numerics.data.datasets import Data

# The check's budget is divided by the margin for cleared nodes: other data may be worse. Nodes to
# return to FP32 are chosen on few samples, with a larger margin, and checked on all data at most
# `_RETURNS` times.
_MARGIN, _MARGIN_ON_FEW = 1.25, 1.5
_RETURNS = 2
_SHARED = "what decided also judged, and other data may be worse"
# Limits on a repair's passes over the data, and over the few samples.
_EVALUATIONS, _EVALUATIONS_ON_FEW = 8, 12


def convert_on_data(
    model: "Model",
    dst: "str | os.PathLike[str] | None",
    request: Request,
    data: "Data",
    *,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    overwrite: bool = False,
    resume: "str | os.PathLike[str] | None" = None,
) -> Converted:
    """Convert with measured ranges, and check the outputs on the data by emulation.

    Nodes that were merely suspected of overflow are cleared if their ranges fit, and underflow
    alone protects no node, as long as the check holds; otherwise protection returns, first for the
    nodes with the largest error, finally for all. `resume`: file of search results; files for
    ranges and calibration are written next to it.
    """
    options = recall(model, with_data_settings(read_options(request), data))
    dataset = open_model_data(model, data, labels=labels, batch_size=batch_size)
    identity = identity_of(model.read(options.planning.low).graph, dataset, options)
    memory = ScoreCache(None if resume is None else Path(resume), identity)
    source, (model, options) = model, fuse(model, options)
    ranges_file = resume_companion(resume, "ranges")
    if options.planning.is_dynamic:
        options = with_parameters(model, options, dataset, request.calibrator)
    if options.planning.is_dynamic or options.planning.line.quantized is None:
        attempt, judging = _decide_and_judge(model, options, dataset, ranges_file, memory)
    else:
        calibration_file = resume_companion(resume, "calibration")
        model, options, scale_data, judging = _calibrated(
            model, options, dataset, request.calibrator, calibration_file
        )
        ranges = measure_ranges(
            model, judging if scale_data is None else scale_data, resume=ranges_file
        )
        attempt = attempt_on(model, options, judging, ranges, scale_data, memory)
        attempt = attempt.with_measured(
            shares_data=attempt.measured.shares_data or scale_data is None
        )
    if model is not source and options.fuse == "standard" and not attempt.decided.is_quantized:
        # Fusion copied folded weights, which pays only if they get smaller: without quantization
        # the model keeps its form.
        request = replace(request, fuse="none")
        return convert_on_data(
            source, dst, request, data, labels=labels, batch_size=batch_size, overwrite=overwrite
        )
    attempt = _on_runtime(model, attempt, dataset, judging)
    return finish(
        model, attempt.decided, attempt.result, dst, overwrite=overwrite, measured=attempt.measured
    )


def _decide_and_judge(
    model: "Model", options: Options, dataset: Dataset, resume: Path | None, memory: ScoreCache
) -> "tuple[Attempt, Dataset]":
    """Decide on a part of the data and judge on the rest, which is returned. If the outputs are
    wrong on the rest, all data decides and judges; if the rest is too little, or the outputs are
    wrong on the first part, all data judges. A note describes each case.
    """
    if dataset.seed is not None:  # random inputs prove nothing, so they clear no node
        ranges = measure_ranges(model, dataset, resume=resume)
        return attempt_on(model, options, dataset, ranges, None, memory), dataset
    part, held_out = split(dataset, lambda batch: can_cut(model, batch))
    attempt = attempt_on(
        model, options, part, measure_ranges(model, part, resume=resume), None, memory
    )
    if held_out is None:
        note = f"{dataset.name} is too little to hold a part of it back: {_SHARED}"
        return attempt.with_measured(shares_data=True).with_notes(note), dataset
    low, decided = options.planning.low, attempt.comparison.verdict
    comparison = check(model, attempt.result, held_out, None, low)
    if _is_wrong(comparison):
        note = (
            f"{held_out.name} gave other answers than {part.name} ({comparison.verdict.because}):"
            f" {_SHARED}"
        )
        ranges = measure_ranges(model, dataset)
        attempt = attempt_on(
            model, options, dataset, ranges, None, memory.within("all of the data")
        )
        return attempt.with_measured(shares_data=True).with_notes(note), dataset
    is_unsettled = decided.ruling is Ruling.UNKNOWN or _is_wrong(attempt.comparison)
    if is_unsettled or comparison.verdict.ruling is Ruling.UNDECIDED:
        because = decided.because if is_unsettled else comparison.verdict.because
        comparison = check(model, attempt.result, dataset, None, low)
        note = f"a part of {dataset.name} does not judge alone ({because}): {_SHARED}"
        return (
            attempt.with_measured(shares_data=True, comparison=comparison).with_notes(note),
            dataset,
        )
    note = f"{part.name} decided; {held_out.name} judged and decided nothing"
    return (
        attempt.with_measured(shares_data=False, comparison=comparison).with_notes(note),
        held_out,
    )


def _calibrated(
    model: "Model", options: Options, dataset: Dataset, calibrator: str, resume: Path | None
) -> "tuple[Model, Options, Dataset | None, Dataset]":
    """The model and options with scales and corrections from one part of the data; that part, and
    the rest, which judges. If there is too little data: None, and all of it.
    """
    part, held_out, note = split_for_scales(model, dataset)
    options = with_parameters(model, options, part, calibrator, resume)
    model, options = correct_parameters(model, options, part, held_out, calibrator)
    noted = replace(options, notes=(*options.notes, note))
    return (model, noted, None, dataset) if held_out is None else (model, noted, part, held_out)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One conversion with its check. `options` reproduce it, unless `has_biases`: its result has
    corrected biases.
    """

    decided: "Decided"
    result: "Artifact"
    measured: Measured
    options: Options
    has_biases: bool = False

    def with_measured(
        self, *, shares_data: bool, comparison: Comparison | None = None
    ) -> "Attempt":
        """A copy. `shares_data`: the judging data also decided; `comparison`: a new check."""
        comparison = comparison or self.comparison
        return replace(
            self, measured=replace(self.measured, comparison=comparison, shares_data=shares_data)
        )

    def with_notes(self, *notes: str) -> "Attempt":
        return replace(self, measured=replace(self.measured, notes=(*self.measured.notes, *notes)))

    @property
    def comparison(self) -> Comparison:
        assert self.measured.comparison is not None, "an attempt is checked"
        return self.measured.comparison


def attempt_on(
    model: "Model",
    options: Options,
    dataset: "Dataset",
    ranges: Ranges,
    seen: "Dataset | None",
    memory: ScoreCache,
) -> Attempt:
    """Convert by measured ranges: with cleared nodes if the outputs hold, otherwise with full
    protection. `seen`: the data of scales, if other data judges; biases are corrected on it if
    requested. `memory` stores search results.
    """
    # Random data may forbid low precision, but never justifies it.
    lifted = None if dataset.seed is not None else _lift(model, options, dataset, ranges, memory)
    attempt = lifted or _protect(model, options, dataset, ranges, memory)
    if _is_wrong(attempt.comparison):
        attempt = _with_last_in_floats(model, attempt, dataset, ranges)
    if BIAS in options.steps and seen is not None and seen.seed is None:
        return _with_biases(model, attempt.options, attempt, seen, dataset)
    return attempt


def _with_last_in_floats(
    model: "Model", wrong: Attempt, dataset: "Dataset", ranges: Ranges
) -> Attempt:
    """The attempt with the fewest last quantized layers in floats that make the outputs right;
    unchanged if none do.
    """
    because = wrong.comparison.verdict.because
    for names, options in without_last(
        wrong.decided, wrong.options, f"with it the answers are wrong: {because}"
    ):
        note = (
            f"{len(names)} of the products nearest to the outputs went back to floats ({because}):"
            f" {names[0]}"
        )
        attempt = _attempt(
            model, options, dataset, ranges, *wrong.measured.notes, note, known=wrong.comparison
        )
        if not _is_wrong(attempt.comparison):
            return attempt
    return wrong


def _with_biases(
    model: "Model", options: Options, attempt: Attempt, scale_data: Dataset, held_out: Dataset
) -> Attempt:
    """The attempt with bias correction, if that lowers the error on held-out data."""
    better = correct_biases(model, options, (attempt.decided, attempt.result), scale_data, held_out)
    comparison = attempt.comparison
    if better.is_kept:
        comparison = check(model, better.result, held_out, None, options.planning.low, comparison)
    measured = replace(attempt.measured, comparison=comparison)
    return replace(
        attempt,
        decided=better.decided,
        result=better.result,
        measured=measured,
        has_biases=better.is_kept,
    )


def _attempt(
    model: "Model",
    options: Options,
    dataset: "Dataset",
    ranges: Ranges,
    *notes: str,
    known: Comparison | None = None,
) -> Attempt:
    decided, result = convert_model(model, options, None)
    comparison = check(model, result, dataset, None, options.planning.low, known)
    measured = Measured(data=ranges.data, ranges=ranges, comparison=comparison, notes=notes)
    return Attempt(decided=decided, result=result, measured=measured, options=options)


def _on_runtime(
    model: "Model", attempt: Attempt, dataset: "Dataset", judging: "Dataset"
) -> Attempt:
    """The attempt checked on its target's runtime, and judged again if that changed it."""
    outputs = {output.name: output for output in attempt.comparison.outputs}
    first = PlannedResult(decided=attempt.decided, result=attempt.result, options=attempt.options)
    checked = check_on_runtime(model, first, dataset, outputs, may_change=not attempt.has_biases)
    if checked is None:
        return attempt
    last, measured = checked.candidate, attempt.measured
    if last is not first:
        comparison = check(
            model, last.result, judging, None, attempt.options.planning.low, attempt.comparison
        )
        measured = replace(measured, comparison=comparison)
    measured = replace(
        measured,
        runtime=checked.check,
        timing=checked.timing,
        notes=(*measured.notes, *checked.notes),
    )
    return replace(
        attempt, decided=last.decided, result=last.result, measured=measured, options=last.options
    )


def _protect(
    model: "Model",
    options: Options,
    dataset: "Dataset",
    ranges: Ranges,
    memory: ScoreCache,
    like: Evaluator | None = None,
    known: Comparison | None = None,
) -> Attempt:
    """Convert with all protection, from structure and data, and repair a result that fails its
    check. `like`: evaluator of an earlier search; `known`: as in `compare_on`.
    """
    options = with_protection(model, options, ranges, HEADROOM)
    attempt = _attempt(model, options, dataset, ranges, known=known)
    if _is_wrong(attempt.comparison) and _knows_prices(options):
        return _repair(model, options, dataset, attempt, memory, like)
    return attempt


def _lift(
    model: "Model", options: Options, dataset: "Dataset", ranges: Ranges, memory: ScoreCache
) -> Attempt | None:
    """Convert with cleared nodes, and return nodes to FP32 by their error if the check fails its
    margin. None if no node is cleared, none of the results holds, or the data is inconclusive.
    """
    if ranges.unknown or not can_tell(judge_model(model, options)[1].problem.graph, ranges.values):
        return None
    lifted = with_lifts(model, options, ranges)
    count = count_lifted(model, options, lifted, ranges)
    if not count:
        return None
    attempt = _attempt(model, lifted, dataset, ranges, f"data lifted what was suspected of {count}")
    if attempt.comparison.verdict.ruling is Ruling.UNKNOWN:
        return None  # no evidence that the cleared nodes fit
    if _holds(attempt.comparison):
        return attempt
    tuner = _returning(model, lifted, dataset, attempt, memory) if _knows_prices(options) else None
    returned = None if tuner is None else _put_back(tuner, dataset, attempt)
    if tuner is None or returned is None:
        return None
    protected = with_protection(model, options, ranges, HEADROOM)
    if _is_cheaper(convert_model(model, protected, None)[0], returned.decided):
        attempt = _protect(
            model, options, dataset, ranges, memory, tuner.evaluator, attempt.comparison
        )
        if not _is_wrong(attempt.comparison) and _is_cheaper(attempt.decided, returned.decided):
            return attempt
    return returned


def _is_cheaper(plan: "Decided", other: "Decided") -> bool:
    """Whether a plan costs less than another of the same model, errors aside."""
    # Their opsets differ, so costs do not compare.
    if plan.plan.fingerprint != other.plan.fingerprint:
        return False
    problem = other.problem.without_penalties()
    return cost(problem, plan.levels) < cost(problem, other.levels)


def _returning(
    model: "Model", options: Options, dataset: "Dataset", lifted: Attempt, memory: ScoreCache
) -> Tuner:
    """A tuner that selects, on few samples, nodes to return to FP32."""
    goal = Goal(
        max_error=lifted.comparison.verdict.budget,
        margin=_MARGIN_ON_FEW,
        shares=shares_of(lifted.comparison),
    )
    limits = SearchLimits(evaluations=_EVALUATIONS_ON_FEW)
    tuner = Tuner(model, options, goal, dataset, limits, memory.within("what was lifted"))
    few = few_samples(tuner.evaluator, next(batch for batch in dataset if batch.samples))
    tuner.data = Dataset(few.origin, lambda: iter([few]), dataset.seed)
    return tuner


def _put_back(tuner: Tuner, dataset: "Dataset", lifted: Attempt) -> Attempt | None:
    """Return nodes to FP32 by error until the check holds. None if no low node remains."""
    verdict = lifted.comparison.verdict
    slack = 1.0
    for _ in range(_RETURNS):
        choosing = tuner.choose(slack)
        if not choosing.chosen.low_nodes:
            return None
        note = (
            f"with all of that lifted the answers were off ({verdict.because}); nodes went back to"
            f" FP32 by what their error costs: {choosing.stopped_by}"
        )
        assert lifted.measured.ranges is not None, "what is lifted comes from ranges"
        returned = _attempt(
            tuner.model, choosing.options, dataset, lifted.measured.ranges, *lifted.measured.notes,
            note, known=lifted.comparison,
        )  # fmt: skip
        if _holds(returned.comparison):
            measured = replace(
                returned.measured, sensitivity=choosing.sensitivity, shares_data=True
            )
            return replace(returned, measured=measured)
        slack *= 2.0
    return None


def _holds(comparison: Comparison) -> bool:
    """Whether the outputs hold the budget with the margin for cleared nodes."""
    verdict = comparison.verdict
    return verdict.error.estimate * _MARGIN <= verdict.budget and not any(
        o.fault for o in comparison.outputs
    )


def _knows_prices(options: Options) -> bool:
    """Whether the strategy supports error prices; other systems' colourings do not."""
    return options.planning.strategy.name == "mincut"


def with_data_settings(options: Options, data: "Data", **more: str) -> Options:
    """Record the data's name in the plan's settings."""
    name = os.fspath(data) if isinstance(data, str | os.PathLike) else "given batches"
    return replace(options, settings=(*options.settings, ("data", name), *more.items()))


def check(
    model: "Model", result: "Artifact", dataset: "Dataset", goal: Goal | None, low: DType,
    known: Comparison | None = None,
) -> Comparison:  # fmt: skip
    """Compare a result with the source model by emulation, within a goal or the default budget of
    `low`. `known`: as in `compare_on`.
    """
    candidate = model.runnable(result)
    if goal is None:
        return compare_on(model.given, candidate, dataset, low=low, known=known)
    drop = None if goal.max_drop is None else goal.max_drop.text
    return compare_on(
        model.given,
        candidate,
        dataset,
        max_error=goal.max_error,
        metric=goal.metric,
        max_drop=drop,
        low=low,
        known=known,
    )


def _is_wrong(comparison: Comparison) -> bool:
    """Whether the outputs exceed the budget or have a fault; undecided ones do not count."""
    return comparison.verdict.error.estimate > comparison.verdict.budget or any(
        o.fault for o in comparison.outputs
    )


def _repair(
    model: "Model",
    options: Options,
    dataset: "Dataset",
    failed: Attempt,
    memory: ScoreCache,
    like: Evaluator | None,
) -> Attempt:
    """Return nodes to FP32, largest error first, until the check holds."""
    verdict = failed.comparison.verdict
    goal = Goal(max_error=verdict.budget, margin=1.0, shares=shares_of(failed.comparison))
    limits = SearchLimits(evaluations=_EVALUATIONS)
    choosing = Tuner(
        model, options, goal, dataset, limits, memory.within("repair"), like=like
    ).choose()
    note = (
        f"by the ranges alone the answers were off ({verdict.because}); nodes went back to FP32 by"
        f" what their error costs: {choosing.stopped_by}"
    )
    assert failed.measured.ranges is not None, "protection comes from ranges"
    repaired = _attempt(
        model, choosing.options, dataset, failed.measured.ranges, note, known=failed.comparison
    )
    return replace(
        repaired,
        measured=replace(repaired.measured, sensitivity=choosing.sensitivity, shares_data=True),
    )
