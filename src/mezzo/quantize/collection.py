"""Collection of calibration statistics, in this process or on workers, with checkpoints."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option
from mezzo.contracts.calibrator import Calibrator
from mezzo.contracts.executor import HERE, crew_at_work, in_turn, prepare, width_of
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import Feeds, ObservedValue
from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.resume_file import (
    PassFile,
    PassProgress,
    SavedState,
    StateFormat,
    open_state,
    read_progress,
)
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import DataSource
from mezzo.quantize.observers.collector import Collector

if TYPE_CHECKING:
    from mezzo.contracts.reading import Reading
    from mezzo.numerics.data.datasets import Batch


_CALIBRATION = StateFormat("calibration", "mezzo-collected/1", array="journal")


@dataclass(kw_only=True)
class Collected(PassProgress):
    """Progress of a collection of `values`, by name."""

    values: tuple[str, ...]

    @classmethod
    def revive(cls, document: Mapping[str, Any]) -> Self:
        return super().revive({**document, "values": tuple(map(str, document["values"]))})

    def difference(self, wanted: Self) -> str | None:
        return "another model" if self.values != wanted.values else super().difference(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingJob:
    """Executor job that collects statistics of values on one batch. `values`: value ids of the
    graph that the model yields in `lows` at `version`, which has this fingerprint.
    """

    lows: tuple[DType, ...]
    version: int | None
    fingerprint: str
    values: tuple[int, ...]
    title: str = "calibration"

    def open(self, models: Sequence[Model]) -> Callable[[Feeds], Collector]:
        reading = models[0].read(*self.lows, version=self.version)
        if reading.graph.fingerprint != self.fingerprint:
            raise ContractError(
                f"{models[0].name}: is read as another graph here than where it was planned"
            )
        return self.open_on(models[0], reading, [])

    def open_on(
        self, model: Model, reading: "Reading", watching: Sequence[Calibrator]
    ) -> Callable[[Feeds], Collector]:
        """`open` for a reading, which is consumed; the calibrators observe all elements too."""
        names = {value: reading.graph.values[value].name for value in self.values}
        return _Collecting(lab_of(model).observer(reading, self.values), names, watching)


class _Collecting:
    """A model with observers on its values, as a function of feeds; `names` are by value id."""

    def __init__(
        self,
        show: Callable[[Feeds], Iterator[ObservedValue]],
        names: Mapping[int, str],
        watching: Sequence[Calibrator],
    ) -> None:
        self._show, self._names, self._watching = show, names, watching

    @property
    def width(self) -> int:
        return width_of(self._show)

    def prepare(self, many: Sequence[Feeds]) -> None:
        prepare(self._show, many)

    def __call__(self, feeds: Feeds) -> Collector:
        collector = Collector()
        for shown in self._show(feeds):
            collector.add(self._names[shown.value], shown.numbers)
            for calibrator in self._watching:
                calibrator.collect(self._names[shown.value], shown.numbers)
        return collector


class CollectedStatistics(NamedTuple):
    """Collected statistics, the data they are from, and the number of batches that the data has."""

    data: DataSource
    collector: Collector
    batches: int


def collect(
    model: Model,
    planned: "Reading",
    session: DataSession,
    names: Sequence[str],
    watching: Sequence[Calibrator],
) -> CollectedStatistics:
    """Collect statistics of values, given by name, of a planned reading. Calibrators with their own
    `collect` observe all elements in this process, without a checkpoint. After the time limit, but
    not before there is a sample, further batches are only counted.

    Raises InputError: the data or the checkpoint is invalid.
    """
    reading = model.read(*planned.lows, version=planned.version)
    graph = reading.graph
    numbers = {value.name: number for number, value in enumerate(graph.values) if value.scope == 0}
    values = tuple(numbers[name] for name in names if name in numbers)
    job = CollectingJob(
        lows=planned.lows,
        version=planned.version,
        fingerprint=graph.fingerprint,
        values=values,
    )
    collecting = [
        calibrator for calibrator in watching if type(calibrator).collect is not Calibrator.collect
    ]
    executor = HERE if collecting else crew_at_work()
    run = executor.team(job, lambda: [model], lambda: job.open_on(model, reading, collecting))
    dataset = session.data
    requested = Collected(
        model=graph.content, data=dataset.name, content=dataset.content, values=tuple(names)
    )
    collection = _Collection(session.without_files() if collecting else session, requested)
    try:
        batches = (batch.feeds for batch in collection.unknown())
        for _, part in in_turn(run, batches):
            if model.progress is not None:
                model.progress("calibrating", collection.done.batches, 0)
            collection.add(part)
        if not collection.is_cut:
            collection.file.finish()
    finally:
        collection.file.save()
    if not collection.done.samples:
        raise InputError(
            f"{dataset.name}: has no sample, and scales come from data; give some with"
            f" {option('data')}"
        )
    done = collection.done
    return CollectedStatistics(
        dataset.source(done.batches, done.samples), collection.collector, collection.batches
    )


def _read_collector(saved: SavedState, requested: Collected) -> Collector:
    """The statistics in a resume file. Raises InputError: damaged, or of other values."""
    arrays = {name: saved.read(name) for name in saved.names}
    collector = Collector.from_state(arrays, str(saved.path))
    is_known = set(collector.names) <= set(requested.values)
    saved.check(is_known, "it holds values that were not asked for")
    return collector


class _Collection:
    """The statistics so far, in batch order."""

    def __init__(self, session: DataSession, requested: Collected) -> None:
        path = session.files.calibration
        self.done, self.collector = requested, Collector()
        if path is not None and path.exists():
            with open_state(path, _CALIBRATION) as saved:
                self.done = read_progress(saved, requested)
                self.collector = _read_collector(saved, requested)
        self.file = PassFile(path, _CALIBRATION, self.done, lambda: self.collector.state())
        self._under_way: deque[Batch] = deque()
        self._session, self._samples = session, self.done.samples
        self.batches, self.is_cut = 0, False

    def unknown(self) -> "Iterator[Batch]":
        """Batches that the checkpoint lacks. Raises InputError: the checkpoint has a different
        batch at a number.
        """
        for number, batch in enumerate(self._session.data):
            self.batches = number + 1
            if self.is_cut or self.file.has(number, batch):
                continue
            self.is_cut = self._samples > 0 and not self._session.has_time()
            if not self.is_cut:
                self._under_way.append(batch)
                self._samples += batch.samples
                yield batch

    def add(self, collector: Collector) -> None:
        with self.file.adding(self._under_way.popleft()):
            self.collector.merge(collector)
