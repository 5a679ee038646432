"""Precision search: the fastest model with an output error within a budget on the user's data."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import join_with_or
from mezzo.common.safe_paths import check_destination
from mezzo.common.sizes import read_size
from mezzo.contracts.frontend import Progress, lab_of
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import documents_options_with, request_of
from mezzo.contracts.options.request import SEARCH_DEFAULTS
from mezzo.contracts.sequences.step_feeds import first_feeds
from mezzo.conversion.fusing import fuse
from mezzo.conversion.judged_model import judge_model
from mezzo.conversion.results import Converted, aimed, finish, open_source
from mezzo.evaluate.answers import read_accumulation
from mezzo.evaluate.data_session import DataSession, begin, naming_data, open_session, resume_files
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.evaluate.standards import tables_of
from mezzo.formats.format_words import WEIGHT_BITS, words_of
from mezzo.numerics.metrics.language import LanguageTallies
from mezzo.planner.options import Options, read_options, refuse_stored_floats
from mezzo.quantize.corrections import calibrated_for_search
from mezzo.tuning.costs import table_costs
from mezzo.tuning.final_plan import FinalPlan
from mezzo.tuning.goals import Goal, ScoreCache, margin_of, read_goal
from mezzo.tuning.measured_costs import Measurement, check_measurable
from mezzo.tuning.measured_costs import measure as measure_target
from mezzo.tuning.repair.overflow_protection import convert_on_data
from mezzo.tuning.repair.range_findings import with_protection
from mezzo.tuning.repair.range_repair import needs_repair, repair_ranges
from mezzo.tuning.storage.left_in_floats import LeftInFloats
from mezzo.tuning.storage.tuner import StorageTuner
from mezzo.tuning.tuner import Tuner

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.frontend import Model
    from mezzo.numerics.data.datasets import Data
    from mezzo.numerics.metrics.user_metric import Metric


@documents_options_with(**SEARCH_DEFAULTS)
def tune(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    dst: "str | os.PathLike[str] | None" = None,
    *,
    data: "Data",
    max_error: float | None = None,
    metric: "str | Metric | None" = None,
    max_drop: str | float | None = None,
    max_bytes: int | str | None = None,
    held_out: "Data | None" = None,
    labels: Sequence[str] = (),
    batch_size: int | None = None,
    steps: int | None = None,
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
        max_bytes: for weights in blocks (`to="int4"`), in place of an error budget: the size that
            the model may take, in bytes or as "80MB"; the plan of least error is chosen.
        measure: use times measured on the target instead of its table, and at the end time the
            result with the model in FP32 and the result of `mezzo.convert` alone; a result no
            faster than FP32 is FP32.
        accumulate, tile: the target's accumulators are rounded to "fp16" or "bf16" after every
            `tile` products; as the target's table says unless given, FP32 if it says nothing.
        time_limit_s: end the search after the current batch, with the best plan found by then,
            which is checked after it. INT8 calibration ends so too, and a note tells the share of
            data that it used.
        resume: a file with the finished runs, so that an interrupted search continues; ranges and
            calibration are in FILE.ranges.npz and FILE.calibration.npz.
        policy: which nodes may run in low precision, as of `mezzo.convert`.
        steps: with `feedback`, the number of steps: every plan is run through them, and the worst
            step counts.

    Raises:
        InputError: an option or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the result would break a promise.
    """
    limit = begin(time_limit_s)
    if dst is not None:
        check_destination(dst)
    models = () if dst is None else (Path(dst),)
    files = resume_files(resume, "scores", "ranges", "calibration", models=models)
    usual = request = aimed(src, request_of(options))
    if options.get("policy") is None:
        request = replace(request, policy=SEARCH_DEFAULTS["policy"])
    chosen = read_options(request)
    refuse_stored_floats(chosen)
    most_bytes = _read_bytes(max_bytes, chosen)
    if most_bytes is not None and (max_error is not None or metric is not None):
        error = option("max_error" if max_error is not None else "metric")
        raise InputError(f"{option('max_bytes')} and {error} each bound a search; give one of them")
    goal = replace(
        read_goal(max_error, metric, max_drop, margin=1.0)
        if most_bytes is None
        else Goal(max_error=None, margin=1.0, max_bytes=most_bytes),
        accumulation=read_accumulation(accumulate, tile, "emulated") or chosen.planning.sums,
    )
    model = open_source(src, request.trust_external_paths, progress)
    if measure:
        check_measurable(model, chosen)
    chosen = naming_data(chosen, data)
    alone = naming_data(read_options(replace(usual, check=False)), data)
    session = open_session(
        model, data, labels=labels, batch_size=batch_size, held_out=held_out, files=files,
        limit=limit, feedback=chosen.planning.feedback, steps=steps,
    )  # fmt: skip
    whole = DataSession(data=session.data)
    session = session if held_out is not None else session.hold_out(model)
    if most_bytes is None:
        goal = replace(goal, margin=margin_of(session))
    goal = replace(goal, shares=_shares_on_text(model, session))
    _check_strategy(chosen)
    chosen = chosen.with_settings(**goal.settings())
    model, chosen = fuse(model, chosen)
    whole_goal: Goal | None = None
    stored_error, rounded = 0.0, None
    left: LeftInFloats | None = None
    stored: StorageTuner | None = None
    if chosen.planning.weight_bits:
        stored = StorageTuner(model=model, options=chosen, session=session, goal=goal)
        if not chosen.planning.line.others:
            decided, result, measured = stored.verified()
            return finish(model, decided, result, dst, overwrite=overwrite, measured=measured)
        whole_goal = goal
        model, chosen, goal, stored_error, rounded = stored.with_storage()
    graph = model.read(*chosen.planning.floats).graph
    scores = ScoreCache.of(session, graph, dict(chosen.settings))
    fused = model, chosen
    model, chosen = calibrated_for_search(*fused, session)
    # If the time limit cut corrections short, a resumed run has another model: keep no ranges.
    ranges = measure_ranges(model, session if session.has_time() else session.without_files())
    if needs_repair(model, chosen, ranges):
        again = session.without_files()
        own = ranges if model is fused[0] else measure_ranges(fused[0], again)
        repaired = repair_ranges(*fused, own, lambda problem: table_costs(problem, "")[0])
        if repaired is not None:
            model, chosen = calibrated_for_search(*repaired, again)
            ranges = measure_ranges(model, again)
            scores = scores.within("repaired ranges")
    chosen = with_protection(model, chosen, ranges)
    measurement: Measurement | None = None
    if measure and ranges.data.samples > 0:  # without a sample there is nothing to run
        measurement = measure_target(model, chosen, first_feeds(next(iter(session.data)).feeds))
        costs, table = measurement.costs, measurement.table
    else:
        problem = judge_model(model, chosen)[1].problem
        costs, table = table_costs(problem, f"table of {chosen.planning.target.name}")
    chosen = replace(chosen, planning=replace(chosen.planning, measured=costs))
    # If the time limit cut calibration short, no run follows: saved scores have full scales.
    tuner = Tuner(model, chosen, goal, session, scores, costs=table)

    def convert_alone(path: Path | None) -> Converted:
        source = open_source(src, request.trust_external_paths, None)
        return convert_on_data(source, path, alone, whole)

    if stored is not None:
        tried = frozenset(weight.name for weight in stored.search.weights)
        left = LeftInFloats(
            model=model, session=session, goal=stored.goal, tried=tried, stored_error=stored_error
        )
    final = FinalPlan(
        tuner=tuner,
        ranges=ranges,
        measurement=measurement,
        convert_alone=convert_alone,
        goal=whole_goal,
        stored_error=stored_error,
        left=left,
    )
    decided, result, measured = final.verified()
    decided = decided.with_rounded(rounded)
    return finish(model, decided, result, dst, overwrite=overwrite, measured=measured)


def _shares_on_text(model: "Model", session: DataSession) -> dict[str, float]:
    """Weights of outputs in a search: 0 for caches where the data is running text, which logits are
    judged on.
    """
    batch = next(iter(session.data), None)
    if batch is None or batch.tokens is None:
        return {}
    lab = lab_of(model)
    outputs, ids = lab.native()(batch.feeds), batch.feeds[batch.tokens]
    language = LanguageTallies(tables_of(lab.inputs.slots))
    return dict.fromkeys(language.caches(batch.feeds, outputs, ids), 0.0)


def _read_bytes(max_bytes: int | str | None, options: Options) -> int | None:
    """The budget of bytes. Raises InputError: it is no size, or no weights are stored in blocks."""
    if max_bytes is None:
        return None
    read = read_size(str(max_bytes))
    if read is None:
        raise InputError(
            f"{option('max_bytes')} is {max_bytes!r}; give a size such as 80MB, or a number of"
            " bytes"
        )
    if not options.planning.weight_bits:
        raise InputError(
            f"{option('max_bytes')} chooses how weights are stored, and {option('to')} is"
            f" {dict(options.settings)['to']!r}; add a format of weights:"
            f" {join_with_or(setting('to', word) for word in WEIGHT_BITS)}"
        )
    if options.planning.line.others:
        others = words_of(options.planning.line.other_dtypes)
        raise InputError(
            f"{option('max_bytes')} chooses how weights are stored, and nothing says what error"
            f" operators in {' and '.join(others)} may add; leave that out of {option('to')}, or"
            f" give {option('max_error')} in place of it"
        )
    return read


def _check_strategy(options: Options) -> None:
    name = options.planning.strategy.name
    if name != "mincut":
        raise InputError(
            f"strategy {name!r} knows no price of error; tune with 'mincut', or leave it out"
        )
