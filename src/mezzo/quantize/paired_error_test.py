"""Paired test of whether one conversion of a model is significantly more accurate."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import EMULATED, Answers
from mezzo.contracts.reading import Artifact
from mezzo.numerics.data.datasets import Batch, Dataset
from mezzo.numerics.metrics.errors import squares_by_row
from mezzo.numerics.statistics.intervals import root_ratio

# Limit on the size of reference outputs that are cached between trials.
_MOST_BYTES = 1 << 26

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Errors:
    """Squared error per sample over the reference's mean square, summed over outputs."""

    squares: Doubles

    @property
    def root(self) -> float:
        """The relative L2 error over all samples."""
        return float(np.sqrt(self.squares.mean())) if len(self.squares) else 0.0

    def falls_to(self, other: "Errors") -> bool:
        """Whether another result's error on the same samples is significantly smaller."""
        if len(self.squares) != len(other.squares) or not np.isfinite(other.squares).all():
            return False
        if not np.isfinite(self.squares).all():
            return len(other.squares) > 0
        if not self.squares.any():
            return False
        return root_ratio(other.squares, self.squares).high < 1.0


class Trials:
    """Errors of conversions of one model on one data set, by emulation. The source model runs once:
    its outputs are cached up to `_MOST_BYTES`.
    """

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self._wanted: list[Answers] | None = None  # per batch with samples; None if not cached

    def errors_of(self, model: Model, result: Artifact) -> Errors:
        """The errors of a result against the source model."""
        squares: dict[str, list[Doubles]] = {}
        wholes: dict[str, float] = {}
        for batch, expected, actual in self._answered(model, result):
            for name in expected:
                want, have = np.asarray(expected[name]), np.asarray(actual[name])
                if want.dtype.kind not in "fV" or want.shape != have.shape:
                    continue
                rows = batch.samples if want.ndim and want.shape[0] % batch.samples == 0 else 1
                wrong, whole = squares_by_row(want, have, rows)
                squares.setdefault(name, []).append(wrong)
                wholes[name] = wholes.get(name, 0.0) + whole
        return _summed(squares, wholes)

    def _answered(self, model: Model, result: Artifact) -> Iterator[tuple[Batch, Answers, Answers]]:
        """Each batch with samples, with the reference's outputs and the result's."""
        pair = lab_of(model.given).pair(model.runnable(result), EMULATED)
        batches = (batch for batch in self.dataset if batch.samples)
        if self._wanted is not None:
            run = pair.candidate()
            for batch, expected in zip(batches, self._wanted, strict=True):
                yield batch, expected, run(batch.feeds)
            return
        sessions, stored, room = pair.load({}), list[Answers](), _MOST_BYTES
        for batch in batches:
            expected, actual = sessions.run(batch.feeds)
            room -= sum(
                np.asarray(answer).nbytes for answer in expected.values() if answer is not None
            )
            if room >= 0:
                stored.append(expected)
            yield batch, expected, actual
        self._wanted = stored if room >= 0 else None


def _summed(squares: Mapping[str, Sequence[Doubles]], wholes: Mapping[str, float]) -> Errors:
    """The errors of all outputs together, per sample if all outputs have equally many."""
    parts = [np.concatenate(batches) for batches in squares.values()]
    counts = {len(part) for part in parts}
    if len(counts) != 1:  # some outputs have no batch axis
        parts, counts = [np.array([part.sum()]) for part in parts], {1}
    total = np.zeros(counts.pop())
    for name, part in zip(squares, parts, strict=True):
        # Infinity times zero is NaN: a broken output stays broken where the reference is zero.
        with np.errstate(invalid="ignore"):
            scaled = part * (len(part) / wholes[name] if wholes[name] > 0 else 0.0)
        total += np.where(np.isinf(part), np.inf, scaled)
    return Errors(total)
