"""What values of a model hold on data, for calibrators: collected by whoever works, and kept in a file."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.converting.results import lab_of
from mezzo.core.calibrator import Calibrator
from mezzo.core.crew import HERE, crew_at_work, in_turn, prepare, width_of
from mezzo.core.frontend import Model
from mezzo.core.lab import Feeds, Shown
from mezzo.dtypes import DType
from mezzo.errors import ContractError, InputError
from mezzo.judging.collected import Collected, dump_journal, load_journal
from mezzo.numerics.datasets import Dataset
from mezzo.numerics.measures import DataSource
from mezzo.quant.collector import Collector
from mezzo.staging import Staging
from mezzo.voices import option

if TYPE_CHECKING:
    from mezzo.core.reading import Reading
    from mezzo.numerics.datasets import Batch

_SAVE_EVERY_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingJob:
    """Collects what values hold on one batch's feeds. `values` are ids of the graph that is read of the model in `low`,
    whose fingerprint it is.
    """

    low: DType
    fingerprint: str
    values: tuple[int, ...]
    title: str = "calibration"

    def open(self, models: Sequence[Model]) -> Callable[[Feeds], Collector]:
        reading = models[0].read(self.low)
        if reading.graph.fingerprint != self.fingerprint:
            raise ContractError(f"{models[0].name}: is read as another graph here than where it was planned")
        return self.open_on(models[0], reading, [])

    def open_on(self, model: Model, reading: "Reading", watching: Sequence[Calibrator]) -> Callable[[Feeds], Collector]:
        """The same on a reading, which is spent; calibrators see all numbers too."""
        names = {value: reading.graph.values[value].name for value in self.values}
        return _Collecting(lab_of(model).observer(reading, self.values), names, watching)


class _Collecting:
    """Collects what a model shows of its values, which have names by their ids."""

    def __init__(
        self, show: Callable[[Feeds], Iterator[Shown]], names: Mapping[int, str], watching: Sequence[Calibrator]
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


def collect(
    model: Model,
    low: DType,
    dataset: Dataset,
    names: Sequence[str],
    watching: Sequence[Calibrator],
    resume: Path | None = None,
) -> tuple[DataSource, Collector]:
    """What values of the model, by name, hold on the data, and how much of that there was. `resume` keeps it: where the
    file exists, collecting goes on behind what it has. Calibrators that collect on their own see all numbers in this
    process, and nothing is kept of what they saw.

    Raises InputError: the data is at fault, or the file is.
    """
    reading = model.read(low)
    graph = reading.graph
    numbers = {value.name: number for number, value in enumerate(graph.values) if value.scope == 0}
    values = tuple(numbers[name] for name in names if name in numbers)
    job = CollectingJob(low=low, fingerprint=graph.fingerprint, values=values)
    collecting = [one for one in watching if type(one).collect is not Calibrator.collect]
    crew = HERE if collecting else crew_at_work()
    run = crew.team(job, lambda: [model], lambda: job.open_on(model, reading, collecting))
    wanted = Collected(model=graph.content, data=dataset.name, content=dataset.content, values=tuple(names))
    keeping = _Keeping(None if collecting else resume, wanted)
    try:
        batches = (batch.feeds for batch in keeping.unknown(dataset))
        for _, collector in in_turn(run, batches):
            if model.progress is not None:
                model.progress("calibrating", keeping.done.batches, 0)
            keeping.add(collector)
        keeping.finish()
    finally:
        keeping.save()
    if not keeping.done.samples:
        raise InputError(f"{dataset.name}: has no sample, and scales come from data; give some with {option('data')}")
    return dataset.source(keeping.done.batches, keeping.done.samples), keeping.collector


class _Keeping:
    """What was collected so far, in the order of the batches."""

    def __init__(self, path: Path | None, wanted: Collected) -> None:
        self._path, self.done, self.collector = path, wanted, Collector()
        if path is not None and path.exists():
            self.done, self.collector = load_journal(path, wanted)
        self._under_way: list[Batch] = []
        self._seen = 0
        self._is_saved = self._is_sound = True
        self._saved_at = time.monotonic()

    def unknown(self, dataset: Dataset) -> "Iterator[Batch]":
        """The batches that are not in the file. Raises InputError: it has another in the place of one."""
        known = self.done.batches
        for number, batch in enumerate(dataset):
            self._seen = number + 1
            if number == known - 1 and batch.origin != self.done.last:
                raise InputError(
                    f"{self._path}: batch {number} was {self.done.last!r} and is {batch.origin!r} now; give the same "
                    "data and batch size, or delete the file to start anew"
                )
            if number >= known:
                self._under_way.append(batch)
                yield batch

    def add(self, collector: Collector) -> None:
        batch = self._under_way.pop(0)
        # An interrupt from here on leaves a batch half added, which must not be saved.
        self._is_sound = False
        self.collector.merge(collector)
        self.done.batches, self.done.samples = self.done.batches + 1, self.done.samples + batch.samples
        self.done.last = batch.origin
        self._is_sound, self._is_saved = True, False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Check that the data has all the batches that the file says it had."""
        if self._seen < self.done.batches:
            raise InputError(
                f"{self._path}: the state has {self.done.batches} batches and the data {self._seen}; give the same "
                "data, or delete the file to start anew"
            )

    def save(self) -> None:
        """Write the file, if there is one and something new to write."""
        if self._path is None or self._is_saved or not self._is_sound:
            return
        with Staging() as staging:
            with staging.create(self._path) as file:
                file.write(dump_journal(self.done, self.collector))
            staging.commit()
        self._is_saved, self._saved_at = True, time.monotonic()
