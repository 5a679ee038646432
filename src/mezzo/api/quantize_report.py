"""What each calibrator makes of a model: answers, classes, size and share of integers beside FP32's."""

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.common.safe_paths import check_destinations, kept_beside
from mezzo.contracts.calibrator import NO_CALIBRATOR
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.options.keyword_types import PlanOptions
from mezzo.contracts.options.keywords import tells_options
from mezzo.conversion.fusing import fuse
from mezzo.conversion.results import Progress, finish, lab_of, open_source, read_plan_options
from mezzo.evaluate.model_data import open_model_data
from mezzo.evaluate.range_measurement import measure_ranges
from mezzo.ir.nodes import Kind
from mezzo.numerics.calibrations import Calibrations, CalibratorRow, Score
from mezzo.numerics.data.datasets import Dataset, OutOfTime, in_time
from mezzo.numerics.measures import Interval, Ranges
from mezzo.numerics.metrics.label_accuracy import find_classes
from mezzo.numerics.metrics.user_metric import Metric, MetricTally, load_metric, name_metric
from mezzo.planner.planner import rows_of
from mezzo.plugins.discovery import calibrators as known_calibrators
from mezzo.plugins.discovery import settle_name
from mezzo.quantize.calibration import Watched, check_method, choose_parameters, suits, tell_cut, watch, with_parameters
from mezzo.quantize.calibrator_names import calibrator_of
from mezzo.quantize.corrections import correct_parameters
from mezzo.tables.facts import Cost
from mezzo.tuning.evaluator import split_for_scales
from mezzo.tuning.goals import Memory
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
    """Quantize a model by one calibrator after the other, and say what each makes of its answers.

    Values are collected once, and each row is what `mezzo.convert` makes with that calibrator. Nothing is written.

    Args:
        data: what scales are from, as of `mezzo.convert`; where `held_out` is not given, a quarter of it is held back
            from them and judges.
        held_out: data that judges and that no scale has seen.
        labels: arrays of the data that judges which are no inputs. One with an integer per sample gives top-1 and, of
            more than five classes, top-5.
        metric: instead of them a function of (outputs, labels), or its "module:function", as of `mezzo.compare`.
        time_limit_s: end with the batch that runs then: scales are from what was seen until then, and calibrators
            behind the first are left out that are not judged by then. Notes say so.
        resume: a file that keeps what was collected, and is gone on from where it exists; FILE.ranges.npz beside it
            keeps the ranges.
        calibrators: which, such as "minmax,percentile=99.9"; all that there are unless given.
        to: "int8", the default, or two formats such as "int8,bf16".

    Raises:
        InputError: an option, a calibrator or the data is at fault.
        ModelError: the model is not valid ONNX.
        ContractError: the model does not run.
    """
    deadline = math.inf if time_limit_s is None else time.monotonic() + time_limit_s

    def has_time() -> bool:
        return time.monotonic() < deadline

    check_destinations({"resume": resume, "ranges": kept_beside(resume, "ranges")})
    words = _calibrator_words(calibrators, options)
    if options.get("to") is None:
        options["to"] = "int8"
    chosen, trust = read_plan_options(src, options)
    to = dict(chosen.settings)["to"]
    if chosen.planning.line.quantized is None:
        raise InputError(f"{option('to')} is {to!r}, which takes no scales; give int8, or int8 with a float: int8,bf16")
    quantized = chosen.planning.line.quantized_format
    finds_ranges = quantized is not None and chosen.planning.target.finds_ranges(quantized)
    named = _name_calibrators(words, chosen, finds_ranges=finds_ranges)
    late = read_plan_options(src, {**options, "calibrator": NO_CALIBRATOR})[0] if None in named.values() else None
    if metric is not None:
        load_metric(metric)  # a bad one shows now, not after the runs
    model = open_source(src, trust, progress)
    parted = _part(model, data, held_out, labels, batch_size)
    if late is not None:
        late = fuse(model, with_data_settings(late, data))[1]
    model, chosen = fuse(model, with_data_settings(chosen, data))
    kept = kept_beside(resume, "ranges")
    ranges = measure_ranges(model, parted.whole, resume=kept, progress=progress, may_go_on=has_time)
    cut = [] if has_time() else [f"the time limit ended the ranges: they are of {ranges.data.batches} batches"]
    begin = time.monotonic()
    calibrating = [one for one in named.values() if one is not None]
    watched = watch(model, chosen, parted.seen, calibrating, None if resume is None else Path(resume), has_time)
    collecting_s = time.monotonic() - begin
    metrics, said = _metrics_of(model, parted.judging, metric)
    trials = _Trials(
        model=model, options=chosen, watched=watched, ranges=ranges, parted=parted, metrics=metrics,
        has_shares=metric is None, late=late, has_time=has_time,
    )  # fmt: skip
    rows, noted, references = list[CalibratorRow](), dict[str, list[str]](), dict[str, float]()
    untried: list[str] = []
    for number, (word, calibrator) in enumerate(named.items()):
        if progress is not None:
            progress(f"calibrator {word}", number, len(named))
        try:
            attempt, row = (trials.in_time() if rows else trials).run(word, calibrator, references)
        except OutOfTime:
            untried.append(word)
            continue
        judged = attempt.comparison.data
        for note in attempt.measured.notes:
            noted.setdefault(note, []).append(word)
        rows.append(row)
    return Calibrations(
        to=to, target=chosen.planning.target.name, calibrated=watched.data, judged=judged, is_unseen=parted.is_unseen,
        scores=tuple(references.items()), size_bytes=model.size_bytes, collecting_s=collecting_s, rows=tuple(rows),
        notes=(parted.note, *cut, *tell_cut(watched), *said, *_spell_notes(noted, len(rows)), *_tell_untried(untried)),
    )  # fmt: skip


def _tell_untried(words: Sequence[str]) -> list[str]:
    """What time left out."""
    return [f"the time limit came before {', '.join(words)}: not judged"] if words else []


def _spell_notes(noted: Mapping[str, Sequence[str]], of: int) -> list[str]:
    """What conversions noted, with the calibrators whose they are where not all say so."""
    return [note if len(whose) == of else f"{', '.join(whose)}: {note}" for note, whose in noted.items()]


def _calibrator_words(asked: str | Sequence[str], options: PlanOptions) -> list[str]:
    """The calibrators asked for as they were written, none where all are. Raises InputError: two options name some."""
    words = [word.strip() for word in (asked.split(",") if isinstance(asked, str) else asked)]
    single = options.pop("calibrator", None)
    if single is not None and words:
        raise InputError(f"{option('calibrator')} is {single!r} beside {option('calibrators')}; name all in the second")
    return words if single is None else [single]


def _name_calibrators(
    words: Sequence[str], options: "Options", *, finds_ranges: bool
) -> "dict[str, Calibrator | None]":
    """The calibrators asked for, by the words for them; None for ranges at run time, which a target finds or not.
    Where none are, those that suit the format.

    Raises InputError: there is no such calibrator, or it does not suit the format.
    """
    fitting = [name for name, one in known_calibrators().items() if suits(one, options)]
    every = words or [*([NO_CALIBRATOR] if finds_ranges else []), *fitting]
    settled = ((word, settle_name("calibrator", word) if word.isidentifier() else word) for word in every)
    found = {word: None if name == NO_CALIBRATOR else calibrator_of(word) for word, name in settled}
    for one in found.values():
        if one is not None:
            check_method(one, options)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parted:
    """All data of the conversion, the part that scales are from, and what judges, with a note on both."""

    whole: Dataset
    seen: Dataset
    judging: Dataset
    is_unseen: bool
    note: str


def _part(
    model: "Model", data: "Data", held_out: "Data | None", labels: Sequence[str], batch_size: int | None
) -> _Parted:
    if held_out is None:
        whole = open_model_data(model, data, labels=labels, batch_size=batch_size)
        seen, unseen, note = split_for_scales(model, whole)
        return _Parted(whole=whole, seen=seen, judging=unseen or seen, is_unseen=unseen is not None, note=note)
    whole = open_model_data(model, data, batch_size=batch_size, others=True)
    judging = open_model_data(model, held_out, labels=labels, batch_size=batch_size)
    if not any(batch.samples for batch in judging):
        raise InputError(f"{judging.name}: has no sample, and {option('held_out')} judges the answers; give some")
    note = f"scales are from {whole.name}, and {judging.name} judged the answers"
    return _Parted(whole=whole, seen=whole, judging=judging, is_unseen=True, note=note)


def _metrics_of(
    model: "Model", judging: Dataset, metric: str | Metric | None
) -> tuple[dict[str, str | Metric], list[str]]:
    """What is counted beside errors, by name, and what to tell where labels do not say it."""
    if metric is not None:
        return {name_metric(metric): metric}, []
    first = next((batch for batch in judging if batch.samples), None)
    if first is None or not first.labels:
        return {}, []
    found = find_classes(lab_of(model.given).native()(first.feeds), first.labels, first.samples)
    return ({}, [found]) if isinstance(found, str) else (dict(found.metrics()), [])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trials:
    """A model, its options, what was collected of it, and what its quantized forms are judged by."""

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
        """The same, whose passes over data raise OutOfTime once there is none."""
        seen, judging = (in_time(data, self.has_time) for data in (self.parted.seen, self.parted.judging))
        return replace(self, parted=replace(self.parted, seen=seen, judging=judging))

    def run(
        self, word: str, calibrator: "Calibrator | None", references: dict[str, float]
    ) -> tuple[Attempt, CalibratorRow]:
        """Convert with a calibrator, and judge that; the reference's scores are added to `references`."""
        begin = time.monotonic()
        model, ranges, judging, seen = self.model, self.ranges, self.parted.judging, None
        if calibrator is None:
            assert self.late is not None, "options of what is asked for"
            options = with_parameters(model, self.late, judging, NO_CALIBRATOR)
        else:
            options = choose_parameters(model, self.options, self.watched, calibrator)
        choosing_s = time.monotonic() - begin
        if calibrator is not None:
            seen, unseen = self.parted.seen, judging if self.parted.is_unseen else None
            model, options = correct_parameters(model, options, seen, unseen, word, self.has_time)
            if model is not self.model:
                ranges = measure_ranges(model, self.parted.whole, may_go_on=self.has_time)
        is_cut = calibrator is not None and options.steps and not self.has_time()
        if is_cut:
            options = replace(options, steps=())
        settings = tuple((name, word if name == "calibrator" else value) for name, value in options.settings)
        options = replace(options, settings=settings)
        seen = seen if self.parted.is_unseen else None
        attempt = attempt_on(model, options, judging, ranges, seen, Memory(None, {}))
        if is_cut:
            attempt = replace(attempt, measured=replace(attempt.measured, notes=(*attempt.measured.notes, _CUT)))
        scores = []
        for name, tally in self._score(attempt).items():
            result = tally.result()
            references[name] = result.reference
            scores.append(Score(name, result.candidate, tally.drop(), self.has_shares))
        quantized, products = _count_products(attempt.decided)
        made = finish(model, attempt.decided, attempt.result, None)
        row = CalibratorRow(
            calibrator=word, summary=_AT_RUN_TIME if calibrator is None else calibrator.summary,
            scores=tuple(scores), verdict=attempt.comparison.verdict, agreement=_agreement(attempt),
            size_bytes=made.summary.size_after_bytes, quantized=quantized, products=products, choosing_s=choosing_s,
        )  # fmt: skip
        return attempt, row

    def _score(self, attempt: Attempt) -> dict[str, MetricTally]:
        """The metrics of both models on what judges, in the true precision."""
        tallies = {name: MetricTally(metric) for name, metric in self.metrics.items()}
        if not tallies:
            return tallies
        found = self.model.runnable(attempt.result)
        pair = lab_of(self.model.given).pair(found, EMULATED)
        sessions = pair.load({})
        for batch in self.parted.judging:
            if batch.samples:
                wanted, answered = sessions.run(batch.feeds)
                for tally in tallies.values():
                    tally.add(wanted, answered, batch.labels, batch.samples)
        return tallies


def _agreement(attempt: Attempt) -> Interval | None:
    """How often the first class is the reference's; of several outputs the one that agrees least."""
    shares = [output.top1 for output in attempt.comparison.outputs if output.top1 is not None]
    return min(shares, key=lambda share: share.estimate, default=None)


def _count_products(decided: "Decided") -> tuple[int, int]:
    """How many products run on integers, and how many there are."""
    problem, line = decided.problem, decided.problem.line
    products = [
        node.id
        for node, row in zip(problem.graph.nodes, rows_of(problem.graph), strict=True)
        if node.kind is Kind.OP and row is not None and row.cost is Cost.LINEAR and not problem.is_absent[node.id]
    ]
    return sum(decided.levels[number] == line.quantized for number in products), len(products)
