"""What every value of a model holds on data, measured batch by batch."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.converting.results import Progress, lab_of
from mezzo.errors import InputError
from mezzo.numerics.measures import DataSource, Ranges
from mezzo.numerics.range_state import Progress as State
from mezzo.numerics.range_state import dump_state, load_state
from mezzo.numerics.ranges import Accumulator, ValueName
from mezzo.numerics.telling import DataWatch
from mezzo.staging import Staging

if TYPE_CHECKING:
    from mezzo.core.frontend import Model
    from mezzo.core.lab import Lab
    from mezzo.numerics.datasets import Batch, Dataset

_SAVE_EVERY_S = 5.0
# Names of batches are kept up to this many before those that no longer matter are dropped.
_MOST_ORIGINS = 1000
# Samples per value: a share of what a run computes, so that adding them up takes a share of its time.
_FEWEST, _MOST = 128, 1024
_ELEMENTS_PER_SAMPLE = 128
_MOST_SAMPLES = 1 << 20


def measure_ranges(
    model: "Model",
    dataset: "Dataset",
    *,
    resume: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Ranges:
    """Measure a model that is open, on data that is. The rest is as with `ranges`."""
    measuring: _Measuring | None = None
    lab, watch = lab_of(model), DataWatch()
    path = None if resume is None else Path(resume)
    try:
        for number, batch in enumerate(_with_samples(dataset, watch, lab)):
            if measuring is None:
                if progress is not None:
                    progress("preparing", 0, 0)
                measuring = _Measuring(lab, dataset, batch, path)
            if progress is not None:
                progress("measuring", number, 0)
            measuring.take(number, batch)
        if measuring is not None:
            measuring.finish()
    finally:
        if measuring is not None:
            measuring.save()
    if measuring is None:
        return Ranges(dataset.source(0, 0), (), (), watch.faults())
    return replace(measuring.result(), unknown=watch.faults())


def _with_samples(dataset: "Dataset", watch: DataWatch, lab: "Lab") -> "Iterator[Batch]":
    """The batches that hold a sample, each looked at."""
    for batch in dataset:
        if batch.samples:
            watch.add(lab.inputs.typed(batch.feeds), batch.samples, batch.origin)
            yield batch


class _Measuring:
    """One pass over data, on its way."""

    def __init__(self, lab: "Lab", data: "Dataset", batch: "Batch", path: Path | None) -> None:
        self._instruments = lab.instruments(batch.feeds)
        self._path, self._seed = path, data.seed
        self._state = State(model=self._instruments.fingerprint, data=data.name, values=self._instruments.size)
        self._accumulator = Accumulator(self._instruments.size)
        if path is not None and os.path.lexists(path):
            self._state, self._accumulator = load_state(path, self._state)
        self._seen = 0
        self._is_saved = True
        self._is_sound = True
        self._saved_at = time.monotonic()

    def take(self, number: int, batch: "Batch") -> None:
        """Measure a batch, unless the state has it."""
        state, self._seen = self._state, number + 1
        if number < state.batches:
            if number == state.batches - 1 and batch.origin != state.last:
                raise InputError(
                    f"{self._path}: batch {number} was {state.last!r} and is {batch.origin!r} now; give the same data "
                    "and batch size, or delete the file to start anew"
                )
            return
        gathered = self._instruments.run(batch.feeds, number, self._sample_size())
        # An interrupt from here on leaves a batch half added, which must not be saved.
        self._is_sound = False
        self._accumulator.add(gathered, number)
        state.batches, state.samples = number + 1, state.samples + batch.samples
        state.elements, state.last = int(gathered.counts.sum()), batch.origin
        state.origins[number] = batch.origin
        if len(state.origins) > _MOST_ORIGINS:
            self._drop_origins()
        self._is_sound, self._is_saved = True, False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Check that the data has all the batches that the state says it had."""
        if self._seen < self._state.batches:
            raise InputError(
                f"{self._path}: the state has {self._state.batches} batches and the data {self._seen}; give the same "
                "data, or delete the file to start anew"
            )

    def _sample_size(self) -> int:
        """Samples per value of the next batch, by the size of the last one: the same data gives the same samples."""
        elements = self._state.elements if self._state.batches else self._instruments.elements
        wanted = min(elements // _ELEMENTS_PER_SAMPLE, _MOST_SAMPLES) // max(self._state.values, 1)
        return min(max(1 << wanted.bit_length() >> 1, _FEWEST), _MOST)

    def _drop_origins(self) -> None:
        kept = self._accumulator.largest_batches()
        self._state.origins = {number: name for number, name in self._state.origins.items() if number in kept}

    def save(self) -> None:
        """Write the state, if there is a file for it and something new to write."""
        if self._path is None or self._is_saved or not self._is_sound:
            return
        self._drop_origins()
        with Staging() as staging:
            with staging.create(self._path) as file:
                file.write(dump_state(self._state, self._accumulator))
            staging.commit()
        self._is_saved, self._saved_at = True, time.monotonic()

    def result(self) -> Ranges:
        """What was measured so far."""
        state = self._state
        names = [ValueName(value.record, value.name, value.node, value.op) for value in self._instruments.values]
        source = DataSource(state.data, state.batches, state.samples, self._seed)
        return Ranges(source, self._accumulator.ranges(names, state.origins), self._instruments.skipped)
