"""Conversion with data: overflow protection of nodes whose values exceed a format's range, clearing
of merely suspected nodes, and repair if the outputs fail.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

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
from mezzo.tuning.repair.range_repair import cost_against_base, repair_ranges
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
    is_prepared = options.prepares_model and fused is not model and not attempt.options.scaled
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
    if options.planning.is_dynamic:
        options = with_parameters(model, options, session)
    if options.planning.is_dynamic or options.planning.line.quantized is None:
        return _decide_and_judge(model, options, session, scores)
    parts, note = hold_out_for_scales(model, session)
    options = with_parameters(model, options, parts)
    model, options = correct_parameters(model, options, parts)
    options = replace(options, notes=(*options.notes, note))
    ranges = measure_ranges(model, parts)
    attempts = Attempts(model=model, data=parts.judging, ranges=ranges, scores=scores)
    is_shared = parts.held_out is None
    attempt = attempts.best(options, None if is_shared else parts.data)
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
    model: "Model", options: Options, session: DataSession, scores: ScoreCache
) -> "tuple[Attempt, Model]":
    """The attempt with repaired ranges, and that model, if it is right and costs no more than
    protection alone; else the attempt that protects.
    """
    ranges = measure_ranges(model, session)
    protecting = Attempts(model=model, data=session.data, ranges=ranges, scores=scores)
    repaired = repair_ranges(model, options, ranges)
    if repaired is None:
        return protecting.best(options, None), model
    other, scaled = repaired
    again = measure_ranges(other, session.without_files())
    cache = scores.within("repaired ranges")
    attempt = Attempts(model=other, data=session.data, ranges=again, scores=cache).best(
        scaled, None
    )
    # Nodes that went back to FP32 by price may cost what the repair saves.
    if not attempt.is_wrong and attempt.measured.sensitivity is None:
        return attempt, other
    protected = protecting.best(options, None)
    graph = model.read(*options.planning.floats).graph
    costs = [
        cost_against_base(each.decided.problem.without_penalties(), each.decided.levels, graph)
        for each in (attempt, protected)
    ]
    is_better = not attempt.is_wrong and (protected.is_wrong or costs[0] <= costs[1])
    return (attempt, other) if is_better else (protected, model)


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
