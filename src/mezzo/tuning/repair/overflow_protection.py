"""Conversion with data: overflow protection of nodes whose values exceed a format's range, clearing
of merely suspected nodes, and repair if the outputs fail.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from mezzo.conversion.fusing import fuse
from mezzo.conversion.recall import recall
from mezzo.conversion.results import Converted, finish
from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.measures import Ruling
from mezzo.planner.options import Options
from mezzo.quantize.calibration import hold_out_for_scales, with_parameters
from mezzo.quantize.corrections import correct_parameters
from mezzo.tuning.goals import ScoreCache
from mezzo.tuning.repair.attempts import Attempt, Attempts, check, is_wrong
from mezzo.tuning.repair.range_repair import cost_against_base, needs_repair, repair_ranges
from mezzo.tuning.repair.runtime_check import check_on_runtime

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model

_SHARED = "what decided also judged, and other data may be worse"


def convert_on_data(
    model: "Model",
    dst: "str | os.PathLike[str] | None",
    options: Options,
    session: DataSession,
    *,
    overwrite: bool = False,
) -> Converted:
    """Convert with measured ranges, and check the outputs on the data by emulation.

    Nodes that were merely suspected of overflow are cleared if their ranges fit, and underflow
    alone protects no node, as long as the check holds; otherwise protection returns, first for the
    nodes with the largest error, finally for all.
    """
    attempt, judging, fused = _convert_fused(model, options, session)
    is_prepared = options.prepares_model and fused is not model
    if is_prepared and options.fuse == "standard" and not attempt.decided.is_quantized:
        # Fusion copied folded weights, which pays only if they get smaller: without quantization
        # the model keeps its form.
        options = replace(options.with_settings(fuse="operators"), fuse="operators")
        attempt, judging, fused = _convert_fused(model, options, session.without_files())
    attempt = _on_runtime(fused, attempt, session.data, judging)
    return finish(
        fused, attempt.decided, attempt.result, dst, overwrite=overwrite, measured=attempt.measured
    )


def _convert_fused(
    model: "Model", options: Options, session: DataSession
) -> "tuple[Attempt, Dataset, Model]":
    """The best attempt at a fused model, the data that judged it, and that model."""
    options = recall(model, options)
    graph = model.read(*options.planning.floats).graph
    scores = ScoreCache.of(session, graph, dict(options.settings))
    model, options = fuse(model, options)
    if options.planning.is_dynamic or options.planning.line.quantized is None:
        return _decide_and_judge(model, options, session, scores)
    parts, note = hold_out_for_scales(model, session)
    attempt, model = _repaired_or_protected(model, options, parts, scores, note)
    is_shared = parts.held_out is None
    attempt = attempt.measuring(shares_data=attempt.measured.shares_data or is_shared)
    return attempt, parts.judging, model


def _decide_and_judge(
    given: "Model", options: Options, session: DataSession, scores: ScoreCache
) -> "tuple[Attempt, Dataset, Model]":
    """Decide on a part of the data and judge on the rest, which is returned, with the model that is
    planned: its ranges may be repaired. If the outputs are wrong on the rest, all data decides and
    judges; if the rest is too little, or the outputs are wrong on the first part, all data judges.
    A note describes each case.
    """
    model = given

    def decide_on(part: DataSession, scores: ScoreCache) -> Attempt:
        nonlocal model
        attempt, model = _repaired_or_protected(given, options, part, scores)
        return attempt

    dataset = session.data
    if dataset.seed is not None:  # random inputs prove nothing, so they clear no node
        return decide_on(session, scores), dataset, model
    parts = session.hold_out(model)
    part, held_out = parts.data, parts.held_out
    attempt = decide_on(parts, scores)
    if held_out is None:
        note = f"no part of {dataset.name} can be held back: {_SHARED}"
        return attempt.measuring(note, shares_data=True), dataset, model
    decided = attempt.comparison.verdict
    comparison = check(model, attempt, held_out)
    if is_wrong(comparison):
        note = (
            f"{held_out.name} gave other answers than {part.name} ({comparison.verdict.because}):"
            f" {_SHARED}"
        )
        attempt = decide_on(session.without_files(), scores.within("all of the data"))
        return attempt.measuring(note, shares_data=True), dataset, model
    is_unsettled = decided.ruling is Ruling.UNKNOWN or attempt.is_wrong
    if is_unsettled or comparison.verdict.ruling is Ruling.UNDECIDED:
        because = decided.because if is_unsettled else comparison.verdict.because
        note = f"a part of {dataset.name} does not judge alone ({because}): {_SHARED}"
        comparison = check(model, attempt, dataset)
        return attempt.measuring(note, shares_data=True, comparison=comparison), dataset, model
    note = f"{part.name} decided; {held_out.name} judged and decided nothing"
    return attempt.measuring(note, shares_data=False, comparison=comparison), held_out, model


def _repaired_or_protected(
    model: "Model",
    options: Options,
    session: DataSession,
    scores: ScoreCache,
    scale_note: str | None = None,
) -> "tuple[Attempt, Model]":
    """The attempt with repaired ranges, and that model, if it is right and costs no more than
    protection alone; else the attempt that protects. `scale_note`: on the data of calibrated
    scales, if there are any.
    """
    protecting = _calibrate(model, options, session, scores, scale_note)
    ranges = protecting.attempts.ranges
    if not needs_repair(model, options, ranges):
        return protecting.best()
    if protecting.attempts.model is not model:  # corrections changed constants
        ranges = measure_ranges(model, session.without_files())
    repaired = repair_ranges(model, options, ranges)
    if repaired is None:
        return protecting.best()
    cache = scores.within("repaired ranges")
    attempt, other = _calibrate(*repaired, session.without_files(), cache, scale_note).best()
    # Nodes that went back to FP32 by price may cost what the repair saves.
    if not attempt.is_wrong and attempt.measured.sensitivity is None:
        return attempt, other
    protected, planned = protecting.best()
    graph = model.read(*options.planning.floats).graph
    costs = [
        cost_against_base(each.decided.problem.without_penalties(), each.decided.levels, graph)
        for each in (attempt, protected)
    ]
    is_better = not attempt.is_wrong and (protected.is_wrong or costs[0] <= costs[1])
    return (attempt, other) if is_better else (protected, planned)


class _Calibrated(NamedTuple):
    """A calibrated model's options, and attempts at converting it. `scale_data`: as of
    `Attempts.best`.
    """

    attempts: Attempts
    options: Options
    scale_data: Dataset | None

    def best(self) -> "tuple[Attempt, Model]":
        return self.attempts.best(self.options, self.scale_data), self.attempts.model


def _calibrate(
    model: "Model",
    options: Options,
    session: DataSession,
    scores: ScoreCache,
    scale_note: str | None,
) -> _Calibrated:
    """Calibrate a model's quantized level, if there is one, correct its constants and measure."""
    options = with_parameters(model, options, session)
    data, scale_data = session.data, None
    if scale_note is not None:
        model, options = correct_parameters(model, options, session)
        options = replace(options, notes=(*options.notes, scale_note))
        data, scale_data = session.judging, session.data if session.held_out is not None else None
    ranges = measure_ranges(model, session)
    attempts = Attempts(model=model, data=data, ranges=ranges, scores=scores)
    return _Calibrated(attempts, options, scale_data)


def _on_runtime(model: "Model", attempt: Attempt, data: Dataset, judging: Dataset) -> Attempt:
    """The attempt checked on its target's runtime, and judged again if that changed it."""
    checked = check_on_runtime(
        model, attempt, data, attempt.comparison, may_change=not attempt.has_biases
    )
    if checked is None:
        return attempt
    last, comparison = checked.candidate, attempt.comparison
    if last is not attempt:
        comparison = check(model, last, judging, known=comparison)
    changed = replace(attempt, decided=last.decided, result=last.result, options=last.options)
    return changed.measuring(
        *checked.notes, comparison=comparison, runtime=checked.check, timing=checked.timing
    )
