"""Comparison of calibrators: error, accuracy, size, share of INT8 matmuls and convolutions."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.safe_paths import check_destinations, resume_companion
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import tells_options
from mezzo.conversion.fusing import fuse
from mezzo.conversion.results import Progress, finish, lab_of, open_source, read_plan_options
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.ir.nodes import Kind
from mezzo.numerics.calibrations import Calibrations, CalibratorRow, MetricScore
from mezzo.numerics.data.datasets import Dataset, OutOfTime, in_time
from mezzo.numerics.measures import Interval, Ranges
from mezzo.numerics.metrics.label_accuracy import find_classes
from mezzo.numerics.metrics.user_metric import Metric, MetricTally, load_metric, name_metric
from mezzo.planner.planner import rows_of
from mezzo.plugins.discovery import calibrators as known_calibrators
from mezzo.plugins.discovery import settle_name
from mezzo.quantize.calibration import (
    Watched,
    check_method,
    choose_parameters,
    suits,
    tell_cut,
    watch,
    with_parameters,
)
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.corrections import correct_parameters
from mezzo.tables.facts import Cost
from mezzo.tuning.evaluator import split_for_scales
from mezzo.tuning.goals import ScoreCache
from mezzo.tuning.repair.overflow_protection import Attempt, attempt_on, with_data_settings

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from mezzo.contracts.calibrator import Calibrator
    from mezzo.contracts.frontend import Model
    from mezzo.conversion.decided import Decided
    from mezzo.numerics.data.datasets import Data
    from mezzo.planner.options import Options

_CUT = "the time limit came while corrections were tried: those that need data behind it were left"
_AT_RUN_TIME = "ranges are found as the model runs"


@tells_options
def quantize_report(
    src: "str | os.PathLike[str] | onnx.ModelProto | onnx_ir.Model",
    data: "Data",
    *,
    held_out: "Data | None" = None,
    labels: Sequence[str] = (),
    metric: str | Metric | None = None,
    calibrators: str | Sequence[str] = (),
    batch_size: int | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[PlanOptions],
) -> Calibrations:
    """Quantize a model with each calibrator in turn, and evaluate the outputs.

    Values are collected once, and each row is the result of `mezzo.convert` with that calibrator.
    No file is written.

    Args:
        data: calibration data, as of `mezzo.convert`; without `held_out`, a quarter of it is held
            out for evaluation.
        held_out: evaluation data that no scale is derived from.
        labels: arrays of the evaluation data that are no inputs. One with an integer per sample
            gives top-1 and, of more than five classes, top-5.
        metric: instead of them a function of (outputs, labels), or its "module:function", as of
            `mezzo.compare`.
        time_limit_s: end with the batch that runs then: scales are derived from the batches until
            then, and calibrators after the first that are not evaluated by then are left out. Notes
            say so.
        resume: a file with the collected state, continued if it exists; ranges are in
            FILE.ranges.npz.
        calibrators: names, such as "minmax,percentile=99.9"; all unless given.
        to: "int8", the default, or two formats such as "int8,bf16".

    Raises:
        InputError: an option, a calibrator or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the model does not run.
    """
    deadline = math.inf if time_limit_s is None else time.monotonic() + time_limit_s

    def has_time() -> bool:
        return time.monotonic() < deadline

    check_destinations({"resume": resume, "ranges": resume_companion(resume, "ranges")})
    words = _calibrator_words(calibrators, options)
    if options.get("to") is None:
        options["to"] = "int8"
    chosen, trust = read_plan_options(src, options)
    to = dict(chosen.settings)["to"]
    if chosen.planning.line.quantized is None:
        raise InputError(
            f"{option('to')} is {to!r}, which takes no scales; give int8, or int8 with a float:"
            " int8,bf16"
        )
    quantized = chosen.planning.line.quantized_format
    finds_ranges = quantized is not None and chosen.planning.target.finds_ranges(quantized)
    named = _name_calibrators(words, chosen, finds_ranges=finds_ranges)
    dynamic_options = (
        read_plan_options(src, {**options, "calibrator": NO_CALIBRATOR})[0]
        if None in named.values()
        else None
    )
    if metric is not None:
        load_metric(metric)  # fail before the runs
    model = open_source(src, trust, progress)
    parts = _part(model, data, held_out, labels, batch_size)
    if dynamic_options is not None:
        dynamic_options = fuse(model, with_data_settings(dynamic_options, data))[1]
    model, chosen = fuse(model, with_data_settings(chosen, data))
    ranges_file = resume_companion(resume, "ranges")
    ranges = measure_ranges(
        model, parts.whole, resume=ranges_file, progress=progress, may_go_on=has_time
    )
    time_notes = (
        []
        if has_time()
        else [f"the time limit ended the ranges: they are of {ranges.data.batches} batches"]
    )
    begin = time.monotonic()
    observed = [entry for entry in named.values() if entry is not None]
    observations = watch(
        model, chosen, parts.seen, observed, None if resume is None else Path(resume), has_time
    )
    collecting_s = time.monotonic() - begin
    metrics, metric_notes = _metrics_of(model, parts.judging, metric)
    trials = _Trials(
        model=model, options=chosen, watched=observations, ranges=ranges, parted=parts,
        metrics=metrics, has_shares=metric is None, late=dynamic_options, has_time=has_time,
    )  # fmt: skip
    rows, notes_by_text, references = (
        list[CalibratorRow](),
        dict[str, list[str]](),
        dict[str, float](),
    )
    untried: list[str] = []
    for number, (word, calibrator) in enumerate(named.items()):
        if progress is not None:
            progress(f"calibrator {word}", number, len(named))
        try:
            attempt, row = (trials.in_time() if rows else trials).run(word, calibrator, references)
        except OutOfTime:
            untried.append(word)
            continue
        evaluated = attempt.comparison.data
        for note in attempt.measured.notes:
            notes_by_text.setdefault(note, []).append(word)
        rows.append(row)
    return Calibrations(
        to=to, target=chosen.planning.target.name, calibrated=observations.data, judged=evaluated,
        is_unseen=parts.is_unseen, scores=tuple(references.items()), size_bytes=model.size_bytes,
        collecting_s=collecting_s, rows=tuple(rows),
        notes=(parts.note, *time_notes, *tell_cut(observations), *metric_notes,
               *_spell_notes(notes_by_text, len(rows)), *_tell_untried(untried)),
    )  # fmt: skip


def _tell_untried(words: Sequence[str]) -> list[str]:
    """A note on calibrators that the time limit left out."""
    return [f"the time limit came before {', '.join(words)}: not judged"] if words else []


def _spell_notes(calibrators_of: Mapping[str, Sequence[str]], total: int) -> list[str]:
    """Notes of the conversions, with the calibrators' names unless all of them share the note."""
    return [
        note if len(names) == total else f"{', '.join(names)}: {note}"
        for note, names in calibrators_of.items()
    ]


def _calibrator_words(calibrators: str | Sequence[str], options: PlanOptions) -> list[str]:
    """Names of calibrators as written; empty for all. Raises InputError: two options have some."""
    words = [
        word.strip()
        for word in (calibrators.split(",") if isinstance(calibrators, str) else calibrators)
    ]
    single = options.pop("calibrator", None)
    if single is not None and words:
        raise InputError(
            f"{option('calibrator')} is {single!r} beside {option('calibrators')}; name all in the"
            " second"
        )
    return words if single is None else [single]


def _name_calibrators(
    words: Sequence[str], options: "Options", *, finds_ranges: bool
) -> "dict[str, Calibrator | None]":
    """Calibrators by the user's names for them; None for ranges at run time.

    Without names, all that suit the format, and ranges at run time if the target supports them.

    Raises InputError: there is no such calibrator, or it does not suit the format.
    """
    suitable = [
        name for name, calibrator in known_calibrators().items() if suits(calibrator, options)
    ]
    all_words = words or [*([NO_CALIBRATOR] if finds_ranges else []), *suitable]
    settled = (
        (word, settle_name("calibrator", word) if word.isidentifier() else word)
        for word in all_words
    )
    by_word = {
        word: None if name == NO_CALIBRATOR else calibrator_of(word) for word, name in settled
    }
    for calibrator in by_word.values():
        if calibrator is not None:
            check_method(calibrator, options)
    return by_word


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parted:
    """The conversion's whole data, its parts for calibration and evaluation, and a note on both."""

    whole: Dataset
    seen: Dataset
    judging: Dataset
    is_unseen: bool
    note: str


def _part(
    model: "Model",
    data: "Data",
    held_out: "Data | None",
    labels: Sequence[str],
    batch_size: int | None,
) -> _Parted:
    if held_out is None:
        all_data = open_model_data(model, data, labels=labels, batch_size=batch_size)
        scale_data, unseen, note = split_for_scales(model, all_data)
        return _Parted(
            whole=all_data,
            seen=scale_data,
            judging=unseen or scale_data,
            is_unseen=unseen is not None,
            note=note,
        )
    all_data = open_model_data(model, data, batch_size=batch_size, others=True)
    judging = open_model_data(model, held_out, labels=labels, batch_size=batch_size)
    if not any(batch.samples for batch in judging):
        raise InputError(
            f"{judging.name}: has no sample, and {option('held_out')} judges the answers; give some"
        )
    note = f"scales are from {all_data.name}, and {judging.name} judged the answers"
    return _Parted(whole=all_data, seen=all_data, judging=judging, is_unseen=True, note=note)


def _metrics_of(
    model: "Model", judging: Dataset, metric: str | Metric | None
) -> tuple[dict[str, str | Metric], list[str]]:
    """Metrics by name, and notes if the labels give no classes."""
    if metric is not None:
        return {name_metric(metric): metric}, []
    batch = next((candidate for candidate in judging if candidate.samples), None)
    if batch is None or not batch.labels:
        return {}, []
    classes = find_classes(lab_of(model.given).native()(batch.feeds), batch.labels, batch.samples)
    return ({}, [classes]) if isinstance(classes, str) else (dict(classes.metrics()), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """A model, its options, the collected observations, and the data and metrics for evaluation.

    `late` are the options for ranges at run time, if they are tried.
    """

    model: "Model"
    options: "Options"
    watched: Watched
    ranges: Ranges
    parted: _Parted
    metrics: Mapping[str, str | Metric]
    has_shares: bool
    late: "Options | None"
    has_time: Callable[[], bool]

    def in_time(self) -> "_Trials":
        """A copy whose passes over data raise OutOfTime after the time limit."""
        scale_data, judging = (
            in_time(data, self.has_time) for data in (self.parted.seen, self.parted.judging)
        )
        return replace(self, parted=replace(self.parted, seen=scale_data, judging=judging))

    def run(
        self, word: str, calibrator: "Calibrator | None", references: dict[str, float]
    ) -> tuple[Attempt, CalibratorRow]:
        """Convert with a calibrator and evaluate; adds the reference's scores to `references`."""
        begin = time.monotonic()
        model, ranges, judging, scale_data = self.model, self.ranges, self.parted.judging, None
        if calibrator is None:
            assert self.late is not None, "options of what is asked for"
            options = with_parameters(model, self.late, judging, NO_CALIBRATOR)
        else:
            options = choose_parameters(model, self.options, self.watched, calibrator)
        choosing_s = time.monotonic() - begin
        if calibrator is not None:
            scale_data, unseen = self.parted.seen, judging if self.parted.is_unseen else None
            model, options = correct_parameters(
                model, options, scale_data, unseen, word, self.has_time
            )
            if model is not self.model:
                ranges = measure_ranges(model, self.parted.whole, may_go_on=self.has_time)
        is_cut = calibrator is not None and options.steps and not self.has_time()
        if is_cut:
            options = replace(options, steps=())
        settings = tuple(
            (name, word if name == "calibrator" else value) for name, value in options.settings
        )
        options = replace(options, settings=settings)
        scale_data = scale_data if self.parted.is_unseen else None
        attempt = attempt_on(model, options, judging, ranges, scale_data, ScoreCache(None, {}))
        if is_cut:
            attempt = replace(
                attempt, measured=replace(attempt.measured, notes=(*attempt.measured.notes, _CUT))
            )
        scores = []
        for name, tally in self._score(attempt).items():
            result = tally.result()
            references[name] = result.reference
            scores.append(MetricScore(name, result.candidate, tally.drop(), self.has_shares))
        quantized, products = _count_products(attempt.decided)
        outcome = finish(model, attempt.decided, attempt.result, None)
        row = CalibratorRow(
            calibrator=word, summary=_AT_RUN_TIME if calibrator is None else calibrator.summary,
            scores=tuple(scores), verdict=attempt.comparison.verdict, agreement=_agreement(attempt),
            size_bytes=outcome.summary.size_after_bytes, quantized=quantized, products=products,
            choosing_s=choosing_s,
        )  # fmt: skip
        return attempt, row

    def _score(self, attempt: Attempt) -> dict[str, MetricTally]:
        """The metrics of both models on the evaluation data, in true precision."""
        tallies = {name: MetricTally(metric) for name, metric in self.metrics.items()}
        if not tallies:
            return tallies
        runnable = self.model.runnable(attempt.result)
        pair = lab_of(self.model.given).pair(runnable, EMULATED)
        sessions = pair.load({})
        for batch in self.parted.judging:
            if batch.samples:
                expected, outputs = sessions.run(batch.feeds)
                for tally in tallies.values():
                    tally.add(expected, outputs, batch.labels, batch.samples)
        return tallies


def _agreement(attempt: Attempt) -> Interval | None:
    """Top-1 agreement with the reference; the lowest among several outputs."""
    shares = [output.top1 for output in attempt.comparison.outputs if output.top1 is not None]
    return min(shares, key=lambda share: share.estimate, default=None)


def _count_products(decided: "Decided") -> tuple[int, int]:
    """Counts of matmuls and convolutions in INT8, and of all."""
    problem, line = decided.problem, decided.problem.line
    products = [
        node.id
        for node, row in zip(problem.graph.nodes, rows_of(problem.graph), strict=True)
        if node.kind is Kind.OP
        and row is not None
        and row.cost is Cost.LINEAR
        and not problem.is_absent[node.id]
    ]
    return sum(decided.levels[number] == line.quantized for number in products), len(products)
