"""Whether one result of a model answers better than another, sample by sample on the same data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.contracts.frontend import Model
from mezzo.contracts.lab import EMULATED, Answers
from mezzo.contracts.reading import Artifact
from mezzo.conversion.results import lab_of
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.metrics.errors import squares_by_row
from mezzo.numerics.statistics.intervals import root_ratio

# What answers of a reference may take that are kept from one trial to the next.
_MOST_BYTES = 1 << 26

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Errors:
    """The squared error of each sample, over the mean square of the reference; of several outputs their sum."""

    squares: Doubles

    @property
    def root(self) -> float:
        """The error of all samples."""
        return float(np.sqrt(self.squares.mean())) if len(self.squares) else 0.0

    def falls_to(self, other: "Errors") -> bool:
        """Whether another result's error on the same samples is less by more than what samples vary by."""
        if len(self.squares) != len(other.squares) or not np.isfinite(other.squares).all():
            return False
        if not np.isfinite(self.squares).all():
            return len(other.squares) > 0
        if not self.squares.any():
            return False
        return root_ratio(other.squares, self.squares).high < 1.0


class Trials:
    """Errors of results of one model on one dataset, in the true precision. The given model answers once: its answers
    are kept, as long as they take less than `_MOST_BYTES`.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._wanted: list[Answers] | None = None  # per batch that has samples; None where they are not known

    def errors_of(self, model: Model, result: Artifact) -> Errors:
        """The errors of a result against the model that came in."""
        squares: dict[str, list[Doubles]] = {}
        wholes: dict[str, float] = {}
        for batch, wanted, found in self._answered(model, result):
            for name in wanted:
                want, have = np.asarray(wanted[name]), np.asarray(found[name])
                if want.dtype.kind not in "fV" or want.shape != have.shape:
                    continue
                rows = batch.samples if want.ndim and want.shape[0] % batch.samples == 0 else 1
                wrong, whole = squares_by_row(want, have, rows)
                squares.setdefault(name, []).append(wrong)
                wholes[name] = wholes.get(name, 0.0) + whole
        return _summed(squares, wholes)

    def _answered(self, model: Model, result: Artifact) -> Iterator[tuple[Batch, Answers, Answers]]:
        """Each batch that has samples, with the reference's answers and the result's."""
        pair = lab_of(model.given).pair(model.runnable(result), EMULATED)
        batches = (batch for batch in self.dataset if batch.samples)
        if self._wanted is not None:
            run = pair.candidate()
            for batch, wanted in zip(batches, self._wanted, strict=True):
                yield batch, wanted, run(batch.feeds)
            return
        sessions, kept, room = pair.load({}), list[Answers](), _MOST_BYTES
        for batch in batches:
            wanted, found = sessions.run(batch.feeds)
            room -= sum(np.asarray(answer).nbytes for answer in wanted.values() if answer is not None)
            if room >= 0:
                kept.append(wanted)
            yield batch, wanted, found
        self._wanted = kept if room >= 0 else None


def _summed(squares: Mapping[str, Sequence[Doubles]], wholes: Mapping[str, float]) -> Errors:
    """The errors of all outputs together, per sample where each output has as many."""
    parts = [np.concatenate(held) for held in squares.values()]
    counts = {len(part) for part in parts}
    if len(counts) != 1:  # outputs without a sample of their own
        parts, counts = [np.array([part.sum()]) for part in parts], {1}
    total = np.zeros(counts.pop())
    for name, part in zip(squares, parts, strict=True):
        with np.errstate(invalid="ignore"):  # infinity times zero: what is broken stays so where the reference is zero
            scaled = part * (len(part) / wholes[name] if wholes[name] > 0 else 0.0)
        total += np.where(np.isinf(part), np.inf, scaled)
    return Errors(total)
