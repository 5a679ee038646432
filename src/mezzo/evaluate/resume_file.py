"""Checkpoint file of a pass over data, so that an interrupted pass resumes where it ended."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.common.errors import InputError
from mezzo.common.staging import Staging
from mezzo.numerics.ranges.journals import RangeJournal

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch

_SAVE_EVERY_S = 5.0


class Keeping:
    """Counts the batches of a pass in its journal, and saves it. `spell` returns the file's bytes;
    without a path nothing is saved.
    """

    def __init__(
        self, path: Path | None, journal: RangeJournal, spell: Callable[[], bytes]
    ) -> None:
        self._path, self._journal, self._spell = path, journal, spell
        self._seen = 0
        self._is_saved = self._is_sound = True
        self._saved_at = time.monotonic()

    def has(self, number: int, batch: "Batch") -> bool:
        """Whether the file has this batch. Raises InputError: it has another at this number."""
        self._seen = number + 1
        if number >= self._journal.batches:
            return False
        was = self._journal.origin(number)
        if was not in (None, batch.origin):
            raise InputError(
                f"{self._path}: batch {number} was {was!r} and is {batch.origin!r} now; give the"
                " same data and batch size, or delete the file to start anew"
            )
        return True

    @contextmanager
    def adding(self, batch: "Batch") -> Iterator[None]:
        """Count a batch that is added inside this context, and save from time to time. An interrupt
        inside leaves a half-added batch, which is never saved.
        """
        self._is_sound = False
        yield
        journal = self._journal
        journal.batches, journal.samples = journal.batches + 1, journal.samples + batch.samples
        journal.last = batch.origin
        self._is_sound, self._is_saved = True, False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Raises InputError: the data had fewer batches than the file."""
        if self._seen < self._journal.batches:
            raise InputError(
                f"{self._path}: the {self._journal.keeps} has {self._journal.batches} batches and"
                f" the data {self._seen}; give the same data, or delete the file to start anew"
            )

    def save(self) -> None:
        """Write the file, if there is a path and a complete batch that was not saved."""
        if self._path is None or self._is_saved or not self._is_sound:
            return
        with Staging() as staging:
            with staging.create(self._path) as file:
                file.write(self._spell())
            staging.commit()
        self._is_saved, self._saved_at = True, time.monotonic()
