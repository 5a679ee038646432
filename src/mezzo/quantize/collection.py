"""What values of a model hold on data, for calibrators: collected by whoever works, and kept in a file."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from mezzo.common.errors import ContractError, InputError
from mezzo.common.message_style import option
from mezzo.contracts.calibrator import Calibrator
from mezzo.contracts.executor import HERE, crew_at_work, in_turn, prepare, width_of
from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import Feeds, Shown
from mezzo.conversion.results import lab_of
from mezzo.evaluate.resume_file import Keeping
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.datasets import Dataset
from mezzo.numerics.measures import DataSource
from mezzo.quantize.collection_file import Collected, dump_collected, load_collected
from mezzo.quantize.observers.collector import Collector

if TYPE_CHECKING:
    from mezzo.contracts.reading import Reading
    from mezzo.numerics.data.datasets import Batch


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectingJob:
    """Collects what values hold on one batch's feeds. `values` are ids of the graph that is read of the model in `low`,
    at `version`, whose fingerprint it is.
    """

    low: DType
    version: int | None
    fingerprint: str
    values: tuple[int, ...]
    title: str = "calibration"

    def open(self, models: Sequence[Model]) -> Callable[[Feeds], Collector]:
        reading = models[0].read(self.low, self.version)
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


class Held(NamedTuple):
    """What values held, on how much of the data, and how many batches there are of it."""

    data: DataSource
    collector: Collector
    batches: int


def collect(
    model: Model,
    planned: "Reading",
    dataset: Dataset,
    names: Sequence[str],
    watching: Sequence[Calibrator],
    resume: Path | None = None,
    may_go_on: Callable[[], bool] = lambda: True,
) -> Held:
    """What values of a planned reading, by name, hold on the data. `resume` keeps it: where the file exists, collecting
    goes on behind what it has. Calibrators that collect on their own see all numbers in this process, and nothing is
    kept of what they saw. `may_go_on` is asked once there is a sample: batches behind are counted, and no more.

    Raises InputError: the data is at fault, or the file is.
    """
    reading = model.read(planned.low, planned.version)
    graph = reading.graph
    numbers = {value.name: number for number, value in enumerate(graph.values) if value.scope == 0}
    values = tuple(numbers[name] for name in names if name in numbers)
    job = CollectingJob(low=planned.low, version=planned.version, fingerprint=graph.fingerprint, values=values)
    collecting = [one for one in watching if type(one).collect is not Calibrator.collect]
    executor = HERE if collecting else crew_at_work()
    run = executor.team(job, lambda: [model], lambda: job.open_on(model, reading, collecting))
    wanted = Collected(model=graph.content, data=dataset.name, content=dataset.content, values=tuple(names))
    collection = _Collection(None if collecting else resume, wanted, may_go_on)
    try:
        batches = (batch.feeds for batch in collection.unknown(dataset))
        for _, part in in_turn(run, batches):
            if model.progress is not None:
                model.progress("calibrating", collection.done.batches, 0)
            collection.add(part)
        if not collection.is_cut:
            collection.keeping.finish()
    finally:
        collection.keeping.save()
    if not collection.done.samples:
        raise InputError(f"{dataset.name}: has no sample, and scales come from data; give some with {option('data')}")
    done = collection.done
    return Held(dataset.source(done.batches, done.samples), collection.collector, collection.batches)


class _Collection:
    """What was collected so far, in the order of the batches."""

    def __init__(self, path: Path | None, wanted: Collected, may_go_on: Callable[[], bool]) -> None:
        self.done, self.collector = wanted, Collector()
        if path is not None and path.exists():
            self.done, self.collector = load_collected(path, wanted)
        self.keeping = Keeping(path, self.done, lambda: dump_collected(self.done, self.collector))
        self._under_way: deque[Batch] = deque()
        self._may_go_on, self._samples = may_go_on, self.done.samples
        self.batches, self.is_cut = 0, False

    def unknown(self, dataset: Dataset) -> "Iterator[Batch]":
        """The batches that are not in the file. Raises InputError: it has another in the place of one."""
        for number, batch in enumerate(dataset):
            self.batches = number + 1
            if self.is_cut or self.keeping.has(number, batch):
                continue
            self.is_cut = self._samples > 0 and not self._may_go_on()
            if not self.is_cut:
                self._under_way.append(batch)
                self._samples += batch.samples
                yield batch

    def add(self, collector: Collector) -> None:
        with self.keeping.adding(self._under_way.popleft()):
            self.collector.merge(collector)
