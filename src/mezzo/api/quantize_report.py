"""Comparison of calibrators: error, accuracy, size, share of INT8 matmuls and convolutions."""

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.frontend import Progress, lab_of
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import documents_options
from mezzo.conversion.fusing import fuse
from mezzo.conversion.results import finish, open_source, read_plan_options
from mezzo.evaluate.data_session import DataSession, begin, naming_data, open_session, resume_files
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
    describe_cut,
    hold_out_for_scales,
    suits,
    watch,
    with_parameters,
)
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.corrections import correct_parameters
from mezzo.tables.facts import Cost
from mezzo.tuning.goals import ScoreCache
from mezzo.tuning.repair.attempts import Attempt, Attempts
from mezzo.tuning.repair.range_repair import repair_ranges

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


@documents_options
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
    limit = begin(time_limit_s)
    files = resume_files(resume, "calibration", "ranges")
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
    if held_out is None:
        whole = open_session(
            model, data, labels=labels, batch_size=batch_size, files=files, limit=limit
        )
        parts, part_note = hold_out_for_scales(model, whole)
    else:
        whole = open_session(
            model, data, batch_size=batch_size, files=files, limit=limit, others=True
        )
        parts, part_note = _with_held_out(
            whole, open_model_data(model, held_out, labels=labels, batch_size=batch_size)
        )
    if dynamic_options is not None:
        dynamic_options = fuse(model, naming_data(dynamic_options, data))[1]
    model, chosen = fuse(model, naming_data(chosen, data))
    ranges = measure_ranges(model, whole)
    repaired = repair_ranges(model, chosen, ranges)
    if repaired is not None:
        model, chosen = repaired
        ranges = measure_ranges(model, whole.without_files())
        if dynamic_options is not None:
            dynamic_options = replace(dynamic_options, scaled=chosen.scaled)
    time_notes = (
        []
        if whole.has_time()
        else [f"the time limit ended the ranges: they are of {ranges.data.batches} batches"]
    )
    begin_s = time.monotonic()
    observed = [entry for entry in named.values() if entry is not None]
    observations = watch(model, chosen, parts, observed)
    collecting_s = time.monotonic() - begin_s
    metrics, metric_notes = _metrics_of(model, parts.judging, metric)
    trials = _Trials(
        model=model, options=chosen, watched=observations, ranges=ranges, session=parts,
        whole=whole.without_files(), metrics=metrics, has_shares=metric is None,
        late=dynamic_options,
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
        is_unseen=parts.held_out is not None, scores=tuple(references.items()),
        size_bytes=model.size_bytes,
        collecting_s=collecting_s, rows=tuple(rows),
        notes=(part_note, *time_notes, *describe_cut(observations), *metric_notes,
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


def _with_held_out(whole: DataSession, held_out: Dataset) -> tuple[DataSession, str]:
    """The session with the held-out data, and a note. Raises InputError: it has no sample."""
    if next(held_out.filled(), None) is None:
        raise InputError(
            f"{held_out.name}: has no sample, and {option('held_out')} judges the answers; give"
            " some"
        )
    note = f"scales are from {whole.data.name}, and {held_out.name} judged the answers"
    return whole.on(whole.data, held_out), note


def _metrics_of(
    model: "Model", judging: Dataset, metric: str | Metric | None
) -> tuple[dict[str, str | Metric], list[str]]:
    """Metrics by name, and notes if the labels give no classes."""
    if metric is not None:
        return {name_metric(metric): metric}, []
    batch = next(judging.filled(), None)
    if batch is None or not batch.labels:
        return {}, []
    classes = find_classes(lab_of(model.given).native()(batch.feeds), batch.labels, batch.samples)
    return ({}, [classes]) if isinstance(classes, str) else (dict(classes.metrics()), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """A model, its options, the collected observations, and the data and metrics for evaluation.
    `session`: the data of scales, and data held out if possible; `whole`: all data, for ranges.

    `late` are the options for ranges at run time, if they are tried.
    """

    model: "Model"
    options: "Options"
    watched: Watched
    ranges: Ranges
    session: DataSession
    whole: DataSession
    metrics: Mapping[str, str | Metric]
    has_shares: bool
    late: "Options | None"

    def in_time(self) -> "_Trials":
        """A copy whose passes over data raise OutOfTime after the time limit."""
        session = self.session
        data, held_out = (
            None if part is None else in_time(part, session.has_time)
            for part in (session.data, session.held_out)
        )
        assert data is not None, "a session has data"
        return replace(self, session=session.on(data, held_out))

    def run(
        self, word: str, calibrator: "Calibrator | None", references: dict[str, float]
    ) -> tuple[Attempt, CalibratorRow]:
        """Convert with a calibrator and evaluate; adds the reference's scores to `references`."""
        begin_s = time.monotonic()
        model, ranges, session = self.model, self.ranges, self.session
        if calibrator is None:
            assert self.late is not None, "options of what is asked for"
            options = with_parameters(model, self.late, session)
        else:
            options = replace(self.options, calibrator=word)
            options = choose_parameters(model, options, self.watched, calibrator)
        choosing_s = time.monotonic() - begin_s
        if calibrator is not None:
            model, options = correct_parameters(model, options, session)
            if model is not self.model:
                ranges = measure_ranges(model, self.whole)
        is_cut = calibrator is not None and options.steps and not session.has_time()
        if is_cut:
            options = replace(options, steps=())
        options = options.with_settings(calibrator=word)
        has_scales = calibrator is not None and session.held_out is not None
        attempts = Attempts(
            model=model, data=session.judging, ranges=ranges, scores=ScoreCache(None, {})
        )
        attempt = attempts.best(options, session.data if has_scales else None)
        if is_cut:
            attempt = attempt.measuring(_CUT)
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
        for batch in self.session.judging.filled():
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
