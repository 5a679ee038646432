"""Comparison of two models on the same data: output errors, layer errors, and a verdict."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option, setting
from mezzo.common.name_matching import unknown
from mezzo.contracts.executor import HERE, Team, crew_at_work, in_turn
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import Answers, Feeds, Layers, Pair, Running
from mezzo.contracts.plans import Accumulation
from mezzo.contracts.reading import Artifact
from mezzo.conversion.results import Progress, lab_of
from mezzo.evaluate.pairing import Answered, PairJob, open_pair
from mezzo.evaluate.standards import Standards, lowest_of
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.numerics.data.data_checks import DataWatch
from mezzo.numerics.measures import Comparison, Deviation, Verdict
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.metrics.user_metric import Metric, MetricTally
from mezzo.numerics.verdicts import Drop, choose_budget, judge, judge_drop, read_drop

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch, Dataset

_TILE = 128


RUNS = ("emulated", "native")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options of a comparison, parsed and validated."""

    max_error: float | None = None
    run: str = "emulated"
    metric: str | Metric | None = None
    max_drop: Drop | None = None
    has_layers: bool = True
    accumulation: Accumulation | None = None
    low: DType | None = None
    noise: Mapping[str, float] | None = None
    names: tuple[str, str] = ("the reference", "the model")
    progress: Progress | None = None


def compare_on(
    reference: Model, model: Artifact, dataset: "Dataset", *, max_error: float | None = None,
    run: str = "emulated", metric: str | Metric | None = None, max_drop: str | float | None = None,
    layers: bool = False, accumulation: Accumulation | None = None, low: DType | None = None,
    known: Comparison | None = None, progress: Progress | None = None,
) -> Comparison:  # fmt: skip
    """Compare an open reference with a model that is ready to run, on an open data set. `low`: the
    low-precision format that the default budget is derived from. `known`: an earlier comparison
    with the same reference and data, whose noise measurements are reused. All else, errors
    included, is as in `compare`.
    """
    drop = None if max_drop is None else read_drop(max_drop)
    planning = Asked(
        max_error=max_error,
        run=run,
        metric=metric,
        max_drop=drop,
        has_layers=layers,
        accumulation=accumulation,
        low=low,
        noise=(
            None
            if known is None
            else {output.name: output.noise or 0.0 for output in known.outputs}
        ),
        progress=progress,
    )
    check_asked(planning)
    return compare_asked(reference, model, dataset, planning)


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


def compare_asked(
    reference: Model,
    candidate: Artifact,
    dataset: "Dataset",
    planning: Asked,
    source: Model | None = None,
) -> Comparison:
    """Compare a reference with a model that is ready to run. `source`: the candidate as it was
    opened, if it came from a file. Errors are those of `compare`.
    """
    tally = None if planning.metric is None else MetricTally(planning.metric)
    sums = None if planning.accumulation is None else planning.accumulation.dtype
    running = Running(planning.run == "emulated", planning.accumulation, planning.names)
    pair = lab_of(reference).pair(candidate, running)
    lowest = lowest_of([*pair.formats, frozenset(dtype for dtype in (planning.low, sums) if dtype)])
    skipping = _Skipping()
    batches = skipping.filled(dataset)
    first = next(batches, None)
    if first is None:
        return _compare_nothing(pair, dataset, skipping.empty, planning)
    standards = Standards(pair, first, planning.low, sums, planning.noise)
    runs = _Runs(pair, running, reference, candidate, source)
    team, chunks, notes = (
        _load_with_layers(runs, first) if planning.has_layers else (runs.load({}), [], [])
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
        _tell(planning, "comparing", count)
    notes += [*pair.notes, *run_notes, *standards.notes()]
    empty = skipping.empty
    notes += (
        [f"{empty} of {empty + count} batches hold no sample and were left out"] if empty else []
    )
    by_metric = planning.max_drop is not None and planning.max_error is None
    results = standards.results(planning.max_error, parts_decide=not by_metric)
    layer_deviations = [meter.result() for meter in layers.values()]
    del team, answers, answered  # free memory for the layer passes
    more_layers, layer_notes = _compare_layers(runs, chunks[1:], dataset, lowest, planning)
    return Comparison(
        data=dataset.source(count, samples),
        run=planning.run,
        outputs=results,
        layers=(*layer_deviations, *more_layers),
        verdict=_judge(results, tally, planning, standards.faults),
        metric=None if tally is None else tally.result(),
        notes=(*notes, *layer_notes),
    )


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


class _Skipping:
    """Skips batches without samples, and counts them."""

    def __init__(self) -> None:
        self.empty = 0

    def filled(self, batches: "Iterable[Batch]") -> "Iterator[Batch]":
        for batch in batches:
            if batch.samples:
                yield batch
            else:
                self.empty += 1


def _compare_nothing(pair: Pair, dataset: "Dataset", batches: int, planning: Asked) -> Comparison:
    """The comparison on data without samples: no run, and an inconclusive verdict."""
    verdict = judge((), DataWatch().faults())
    return Comparison(
        data=dataset.source(batches, 0),
        run=planning.run,
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
    runs: _Runs, chunks: Sequence[Layers], dataset: "Dataset", lowest: DType, planning: Asked
) -> tuple[list[Deviation], list[str]]:
    """Compare the layers that did not fit in the first pass, with a pass per chunk."""
    deviations: list[Deviation] = []
    for number, chunk in enumerate(chunks):
        stage = f"comparing layers, part {number + 2} of {len(chunks) + 1}"
        try:
            deviations += _compare_chunk(runs, chunk, dataset, lowest, planning, stage)
        # Both ran on all data before: this is about layers alone, e.g. data that can be read only
        # once.
        except (ContractError, InputError) as error:
            return deviations, [
                f"{sum(map(len, chunks[number:]))} layers were not compared: {error}"
            ]
    return deviations, []


def _compare_chunk(
    runs: _Runs, chunk: Layers, dataset: "Dataset", lowest: DType, planning: Asked, stage: str
) -> list[Deviation]:
    meters = _layer_meters([chunk], lowest)
    answers = runs.answer(runs.load(chunk), _Skipping().filled(dataset))
    for count, (batch, answered) in enumerate(answers, 1):
        _add(meters, answered.answers, batch)
        _tell(planning, stage, count)
    return [meter.result() for meter in meters.values()]


def _layer_meters(chunks: Sequence[Layers], lowest: DType) -> dict[str, Meter]:
    return {name: Meter(name, lowest, is_output=False) for chunk in chunks for name in chunk}


def _judge(
    outputs: Sequence[Deviation], tally: MetricTally | None, planning: Asked, faults: Sequence[str]
) -> Verdict:
    by_error = judge(outputs, faults)
    if tally is None or planning.max_drop is None:
        return by_error
    by_drop = judge_drop(
        outputs, tally.name, tally.drop(), planning.max_drop, tally.result().reference, faults
    )
    return by_drop if planning.max_error is None or by_error.is_same else by_error


def _add(meters: Mapping[str, Meter], answers: tuple[Answers, Answers], batch: "Batch") -> None:
    for name, meter in meters.items():
        meter.add(answers[0][name], answers[1][name], batch.samples)


def _tell(planning: Asked, stage: str, done: int) -> None:
    if planning.progress is not None:
        planning.progress(stage, done, 0)


def check_asked(planning: Asked) -> None:
    if planning.run not in RUNS:
        raise unknown(option("run"), planning.run, RUNS)
    if planning.max_drop is not None and planning.metric is None:
        raise InputError(
            f"{option('max_drop')} is {planning.max_drop.text} of no metric; name one with "
            f"{setting('metric', 'module:function')}"
        )
    # An invalid budget is reported before the runs, not after.
    choose_budget(planning.max_error, DType.FLOAT32, 0.0)
