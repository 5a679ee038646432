"""Comparison of two models on the same data: output errors, layer errors, and a verdict."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import unknown
from mezzo.contracts.executor import HERE, Team, crew_at_work, in_turn
from mezzo.contracts.frontend import Model, Progress, lab_of
from mezzo.contracts.lab import EMULATED, Answers, Feeds, Layers, Pair, Running
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.reading import Artifact
from mezzo.evaluate.pairing import Answered, PairJob, open_pair
from mezzo.evaluate.standards import Standards, lowest_of
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.numerics.data.data_checks import DataWatch
from mezzo.numerics.measures import Comparison, Deviation, Verdict
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.metrics.user_metric import Metric, MetricTally
from mezzo.numerics.verdicts import Drop, choose_budget, judge, judge_drop
from mezzo.tables.sums import PairSum

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch, Dataset

_TILE = 128
RUNS = ("emulated", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """The options of a comparison, parsed. `low`: the format that default budgets are derived from;
    `known`: an earlier comparison with the same reference and data, whose noise is reused;
    `pair_sum`: how INT8 kernels add on this machine, if products may saturate.
    """

    max_error: float | None = None
    metric: str | Metric | None = None
    max_drop: Drop | None = None
    run: str = "emulated"
    accumulation: Accumulation | None = None
    names: tuple[str, str] = EMULATED.names
    low: DType | None = None
    known: Comparison | None = None
    pair_sum: PairSum | None = None
    has_layers: bool = False
    progress: Progress | None = None

    def check(self) -> None:
        """Raises InputError: an invalid value, reported before the runs and not after."""
        if self.run not in RUNS:
            raise unknown(option("run"), self.run, RUNS)
        if self.max_drop is not None and self.metric is None:
            raise InputError(
                f"{option('max_drop')} is {self.max_drop.text} of no metric; name one with "
                f"{setting('metric', 'module:function')}"
            )
        choose_budget(self.max_error, DType.FLOAT32, 0.0)

    def tell(self, stage: str, done: int) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(stage, done, 0)


def read_accumulation(accumulate: str | None, tile: int | None, run: str) -> Accumulation | None:
    """Parse the emulated accumulation options. Raises InputError: unknown format, invalid tile, or
    options that need an emulated run in a native one.
    """
    if accumulate is None:
        if tile is not None:
            raise InputError(
                f"{option('tile')} is {tile} without {option('accumulate')}; name the format of the"
                " sums, fp16 or bf16"
            )
        return None
    word = read_format(accumulate, option("accumulate"))
    if tile is not None and tile < 1:
        raise InputError(f"{option('tile')} is {tile}; give 1 or more")
    if run != "emulated":
        raise InputError(
            f"{option('accumulate')} is {accumulate!r} and {option('run')} is {run!r}; only an"
            " emulated run rounds its sums"
        )
    return Accumulation(LOW_DTYPES[word], _TILE if tile is None else tile)


def compare_models(
    reference: Model,
    candidate: Artifact,
    dataset: "Dataset",
    options: ComparisonOptions,
    source: Model | None = None,
) -> Comparison:
    """Compare a reference with a model that is ready to run. `source`: the candidate as it was
    opened, if it came from a file. Errors are those of `compare`.
    """
    options.check()
    tally = None if options.metric is None else MetricTally(options.metric)
    sums = None if options.accumulation is None else options.accumulation.dtype
    running = Running(options.run == "emulated", options.accumulation, options.names)
    pair = lab_of(reference).pair(candidate, running)
    saturation = _find_saturation(pair, options)
    lowest = lowest_of([*pair.formats, frozenset(dtype for dtype in (options.low, sums) if dtype)])
    empty: list[str] = []  # batches without samples, by their origins
    batches = _filled(dataset, empty)
    first = next(batches, None)
    if first is None:
        return _compare_nothing(pair, dataset, len(empty), options)
    standards = Standards(pair, first, options.low, sums, options.known)
    runs = _Runs(pair, running, reference, candidate, source)
    team, chunks, notes = (
        _load_with_layers(runs, first) if options.has_layers else (runs.load({}), [], [])
    )
    layers = _layer_meters(chunks[:1], lowest)
    count, samples, run_notes = 0, 0, tuple[str, ...]()
    for batch, answered in runs.answer(team, chain([first], batches)):
        answers, run_notes = answered.answers, answered.notes
        standards.add(batch, answers)
        _add(layers, answers, batch)
        if tally is not None:
            expected, actual = ({name: side[name] for name in standards.meters} for side in answers)
            tally.add(expected, actual, batch.labels, batch.samples)
        count, samples = count + 1, samples + batch.samples
        options.tell("comparing", count)
    notes += [*pair.notes, *run_notes, *standards.notes()]
    if options.accumulation is not None and options.accumulation.kernels is not None:
        notes.append(f"sums within operators are in {sums}, as the target's kernels have them")
    if empty:
        total = len(empty) + count
        notes.append(f"{len(empty)} of {total} batches hold no sample and were left out")
    by_metric = options.max_drop is not None and options.max_error is None
    results = standards.results(options.max_error, parts_decide=not by_metric)
    layer_deviations = [meter.result() for meter in layers.values()]
    del team, answers, answered  # free memory for the layer passes
    more_layers, layer_notes = _compare_layers(runs, chunks[1:], dataset, lowest, options)
    return Comparison(
        data=dataset.source(count, samples),
        run=options.run,
        outputs=results,
        layers=(*layer_deviations, *more_layers),
        verdict=_judge(results, tally, options, (*standards.faults, *saturation)),
        metric=None if tally is None else tally.result(),
        notes=(*notes, *layer_notes),
        is_swapped=_has_low(pair.formats[0]) and not _has_low(pair.formats[1]),
    )


def _find_saturation(pair: Pair, options: ComparisonOptions) -> tuple[str, ...]:
    """Why exact sums do not show how INT8 kernels answer here, if they do not."""
    sums = options.pair_sum
    if sums is None or options.run != "emulated":
        return ()
    products = pair.saturating()
    if not products:
        return ()
    more = f" and {len(products) - 1} more" if len(products) > 1 else ""
    features = " or ".join(sums.unless)
    return (
        f"{products[0]!r}{more}: without {features}, as on this machine, INT8 products are added in"
        f" pairs in INT16, which may saturate with these weights; {setting('run', 'native')} runs"
        " them here, and weights in a reduced range are right on every CPU",
    )


def _has_low(formats: frozenset[DType]) -> bool:
    return not formats <= {DType.FLOAT32, DType.FLOAT64}


_Team = Team[Feeds | None, Answered]


class _Runs:
    """Runs both models, in this process or on an executor's workers."""

    def __init__(
        self,
        pair: Pair,
        running: Running,
        reference: Model,
        candidate: Artifact,
        source: Model | None,
    ) -> None:
        self.pair, self._running, self._reference = pair, running, reference
        self._candidate, self._source = candidate, source

    def load(self, layers: Layers) -> _Team:
        """Load both models with these layers as extra outputs. Errors are those of `Pair.load`."""
        job, executor = PairJob(self._running, tuple(layers)), crew_at_work()
        if self._source is None and executor is not HERE:
            executor = executor if self._open_candidate() else HERE
        team = executor.team(job, self._models, lambda: open_pair(self.pair, layers))
        team.start(None).result()  # a failure to load is raised here, not at the first batch
        return team

    def _open_candidate(self) -> bool:
        """Open a candidate that is not in a file, so that it can be sent to workers. False: its
        weights do not fit in memory.
        """
        try:
            self._source = self._reference.frontend.open(
                self._candidate, trust_external_paths=False, progress=None
            )
        except ContractError:
            return False
        return True

    def _models(self) -> Sequence[Model]:
        assert self._source is not None, "asked where models are sent"
        return self._reference, self._source

    def answer(self, team: _Team, batches: "Iterator[Batch]") -> "Iterator[tuple[Batch, Answered]]":
        """Yield each batch with the outputs of both models."""
        pending: deque[Batch] = deque()

        def feeds() -> Iterator[Feeds | None]:
            for batch in batches:
                pending.append(batch)
                yield batch.feeds

        for _, answered in in_turn(team, feeds()):
            yield pending.popleft(), answered


def _filled(dataset: "Dataset", empty: list[str]) -> "Iterator[Batch]":
    """Yield the batches that hold samples; the origins of others are added to `empty`."""
    for batch in dataset:
        if batch.samples:
            yield batch
        else:
            empty.append(batch.origin)


def _compare_nothing(
    pair: Pair, dataset: "Dataset", batches: int, options: ComparisonOptions
) -> Comparison:
    """The comparison on data without samples: no run, and an inconclusive verdict."""
    verdict = judge((), DataWatch().faults())
    return Comparison(
        data=dataset.source(batches, 0),
        run=options.run,
        outputs=(),
        layers=(),
        verdict=verdict,
        metric=None,
        notes=tuple(pair.notes),
    )


def _load_with_layers(runs: _Runs, first: "Batch") -> tuple[_Team, Sequence[Layers], list[str]]:
    """Load both models with as many layers as fit in memory next to the outputs; with no layers if
    a runtime refuses. Returns the team, all chunks of layers, and notes.
    """
    try:
        chunks = runs.pair.split_layers(runs.pair.layers(), first.feeds)
        return runs.load(chunks[0] if chunks else {}), chunks, []
    except (ContractError, InputError) as error:
        return runs.load({}), [], [f"layers were not compared: {error}"]


def _compare_layers(
    runs: _Runs,
    chunks: Sequence[Layers],
    dataset: "Dataset",
    lowest: DType,
    options: ComparisonOptions,
) -> tuple[list[Deviation], list[str]]:
    """Compare the layers that did not fit in the first pass, with a pass per chunk."""
    deviations: list[Deviation] = []
    for number, chunk in enumerate(chunks):
        stage = f"comparing layers, part {number + 2} of {len(chunks) + 1}"
        try:
            deviations += _compare_chunk(runs, chunk, dataset, lowest, options, stage)
        # Both ran on all data before: this is about layers alone, e.g. data that can be read only
        # once.
        except (ContractError, InputError) as error:
            return deviations, [
                f"{sum(map(len, chunks[number:]))} layers were not compared: {error}"
            ]
    return deviations, []


def _compare_chunk(
    runs: _Runs,
    chunk: Layers,
    dataset: "Dataset",
    lowest: DType,
    options: ComparisonOptions,
    stage: str,
) -> list[Deviation]:
    meters = _layer_meters([chunk], lowest)
    answers = runs.answer(runs.load(chunk), dataset.filled())
    for count, (batch, answered) in enumerate(answers, 1):
        _add(meters, answered.answers, batch)
        options.tell(stage, count)
    return [meter.result() for meter in meters.values()]


def _layer_meters(chunks: Sequence[Layers], lowest: DType) -> dict[str, Meter]:
    return {name: Meter(name, lowest, is_output=False) for chunk in chunks for name in chunk}


def _judge(
    outputs: Sequence[Deviation],
    tally: MetricTally | None,
    options: ComparisonOptions,
    faults: Sequence[str],
) -> Verdict:
    by_error = judge(outputs, faults)
    if tally is None or options.max_drop is None:
        return by_error
    by_drop = judge_drop(
        outputs, tally.name, tally.drop(), options.max_drop, tally.result().reference, faults
    )
    return by_drop if options.max_error is None or by_error.is_same else by_error


def _add(meters: Mapping[str, Meter], answers: tuple[Answers, Answers], batch: "Batch") -> None:
    for name, meter in meters.items():
        meter.add(answers[0][name], answers[1][name], batch.samples)
