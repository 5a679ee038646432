"""Range calibration: the range of every value of a model, measured on data batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mezzo.contracts.executor import Team, crew_at_work, in_turn, prepare, width_of
from mezzo.contracts.frontend import lab_of
from mezzo.contracts.lab import Feeds, Instruments, MeasuredValue, Records
from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.range_state import RANGES, RangeProgress, dump_accumulator, load_ranges
from mezzo.evaluate.resume_file import Array, PassFile, open_state
from mezzo.numerics.data.data_checks import DataWatch
from mezzo.numerics.measures import Ranges
from mezzo.numerics.ranges.ranges import Accumulator, ValueName

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model
    from mezzo.contracts.lab import Lab
    from mezzo.numerics.data.datasets import Batch

# Batch names are stored up to this many; then those that no range refers to are dropped.
_MOST_ORIGINS = 1000
# Samples per value: a fraction of the elements of a run, so that adding them up costs a fraction of
# its time.
_FEWEST, _MOST = 128, 1024
_ELEMENTS_PER_SAMPLE = 128
_MOST_SAMPLES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class InstrumentFacts:
    """A description of what a model's instruments measure: their contract (`contracts/lab.py`)
    without the runs.
    """

    fingerprint: str
    size: int
    elements: int
    values: Sequence[MeasuredValue]
    skipped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasuredBatch:
    """One batch to measure: its number, which seeds the sampling, and samples per value."""

    batch: "Batch"
    number: int
    samples: int


@dataclass(frozen=True, slots=True)
class RangesJob:
    """Executor job that measures a model. An item is a `MeasuredBatch`; None returns the
    `InstrumentFacts`.
    """

    feeds: Feeds  # of the first batch: all workers take the model's lengths from it
    title: str = "ranges"

    def open(
        self, models: "Sequence[Model]"
    ) -> Callable[[MeasuredBatch | None], Records | InstrumentFacts]:
        return _Instrumented(lab_of(models[0]).instruments(self.feeds))


class _Instrumented:
    """A model with its instruments, as a function of readings."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    @property
    def width(self) -> int:
        return width_of(self._instruments)

    def prepare(self, many: Sequence[MeasuredBatch | None]) -> None:
        prepare(self._instruments, [_asked(reading) for reading in many if reading is not None])

    def __call__(self, reading: MeasuredBatch | None) -> Records | InstrumentFacts:
        instruments = self._instruments
        if reading is None:
            return InstrumentFacts(
                fingerprint=instruments.fingerprint, size=instruments.size,
                elements=instruments.elements, values=tuple(instruments.values),
                skipped=instruments.skipped,
            )  # fmt: skip
        return instruments.run(*_asked(reading))


def _asked(reading: MeasuredBatch) -> tuple[Feeds, int, int]:
    return reading.batch.feeds, reading.number, reading.samples


def measure_ranges(model: "Model", session: DataSession) -> Ranges:
    """Measure the ranges of an open model on the session's data: of the batches until its time
    limit, at least of the first. All else is as in `ranges`.
    """
    watch = DataWatch()
    batches = _watched(session, watch, lab_of(model))
    first = next(batches, None)
    if first is None:
        return Ranges(session.data.source(0, 0), (), (), watch.faults())
    progress = model.progress
    if progress is not None:
        progress("preparing", 0, 0)
    job = RangesJob(first.feeds)
    team = crew_at_work().team(job, lambda: [model], lambda: job.open([model]))
    about = team.start(None).result()
    assert isinstance(about, InstrumentFacts), "asked for nothing else"
    measuring = _Measuring(about, session, first)
    try:
        for number in measuring.take(team, first, batches):
            if progress is not None:
                progress("measuring", number, 0)
        if session.has_time():
            measuring.file.finish()
    finally:
        measuring.file.save()
    return replace(measuring.result(), unknown=watch.faults())


def _watched(session: DataSession, watch: DataWatch, lab: "Lab") -> "Iterator[Batch]":
    """Yield the batches that hold samples until the time limit, each checked by the watch."""
    for number, batch in enumerate(session.data.filled()):
        if number and not session.has_time():
            return
        watch.add(lab.inputs.typed(batch.feeds), batch.samples, batch.origin)
        yield batch


class _Measuring:
    """One pass over data. Holds no worker, so that their memory is freed after the pass."""

    def __init__(self, about: InstrumentFacts, session: DataSession, first: "Batch") -> None:
        data, path = session.data, session.files.ranges
        self._about, self._data = about, data
        self._state = RangeProgress(
            model=about.fingerprint, data=data.name, content=data.content, values=about.size
        )
        self._accumulator = Accumulator(about.size)
        if path is not None and path.exists():
            with open_state(path, RANGES) as saved:
                self._state, self._accumulator = load_ranges(saved, self._state)
        self.file = PassFile(path, RANGES, self._state, self._arrays)
        self._first_fed = _count_numbers(first.feeds)

    def take(
        self,
        team: Team[MeasuredBatch | None, Records | InstrumentFacts],
        first: "Batch",
        more: "Iterator[Batch]",
    ) -> "Iterator[int]":
        """Measure all batches that the saved state lacks; yields each number before its result."""
        yield 0
        if not self.file.has(0, first):  # its element counts decide how the others are sampled
            samples = _sample_size(self._about.elements, self._about.size)
            shown = team.start(MeasuredBatch(first, 0, samples)).result()
            assert isinstance(shown, Records), "what was asked for"
            self._add(0, first, shown)
        for reading, records in in_turn(team, self._readings(more)):
            assert reading is not None and isinstance(records, Records), "what was asked for"
            yield reading.number
            self._add(reading.number, reading.batch, records)

    def _readings(self, batches: "Iterator[Batch]") -> Iterator[MeasuredBatch | None]:
        for number, batch in enumerate(batches, 1):
            if not self.file.has(number, batch):
                # From the batch's own length, so that it is sampled alike whichever batches were
                # measured before.
                elements = (
                    self._state.elements * _count_numbers(batch.feeds) // max(self._state.fed, 1)
                )
                yield MeasuredBatch(batch, number, _sample_size(elements, self._state.values))

    def _add(self, number: int, batch: "Batch", records: Records) -> None:
        state = self._state
        with self.file.adding(batch):
            self._accumulator.add(records, number)
            if number == 0:
                state.elements, state.fed = int(records.counts.sum()), self._first_fed
            state.origins[number] = batch.origin
            if len(state.origins) > _MOST_ORIGINS:
                self._drop_origins()

    def _drop_origins(self) -> None:
        referenced = self._accumulator.largest_batches()
        self._state.origins = {
            number: name for number, name in self._state.origins.items() if number in referenced
        }

    def _arrays(self) -> dict[str, Array]:
        self._drop_origins()
        return dump_accumulator(self._accumulator)

    def result(self) -> Ranges:
        """The ranges measured so far."""
        state = self._state
        names = [
            ValueName(value.record, value.name, value.node, value.op)
            for value in self._about.values
        ]
        source = self._data.source(state.batches, state.samples)
        return Ranges(source, self._accumulator.ranges(names, state.origins), self._about.skipped)


def _sample_size(elements: int, values: int) -> int:
    """Samples per value of a batch: a power of two between `_FEWEST` and `_MOST`."""
    share = min(elements // _ELEMENTS_PER_SAMPLE, _MOST_SAMPLES) // max(values, 1)
    return min(max(1 << share.bit_length() >> 1, _FEWEST), _MOST)


def _count_numbers(feeds: Feeds) -> int:
    """The number of elements that a batch feeds, those in sequences included."""

    def count(feed: Any) -> int:
        if feed is None:
            return 0
        return (
            sum(map(count, feed))
            if isinstance(feed, list | tuple)
            else int(getattr(feed, "size", 1))
        )

    return sum(map(count, feeds.values()))
