"""Decisions that an output's scores lead to: the class of each row, or what a sequence of rows spells.

An output looks like scores where in most rows the largest element stands out from the others; random numbers, images
and embeddings have none that does. Sequences of scores per step, as of CTC and tagging, are read as such decoders do:
repeats and the most common class, the blank, are dropped, so that a step earlier or later is the same text.
"""

from array import array
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.dtypes import QUANTIZED, DType, Format

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# The largest element stands out where it leads the next by so many standard deviations of its row: the largest of 200
# to 10,000 normal numbers leads by a third of one.
_LEAD = 1.0
# Two elements are always apart by two standard deviations: of them only probabilities are taken for scores.
_FEWEST = 3
# In half of rows of three or four random numbers the largest leads as far.
_BY_CHANCE = 4
# How far a row of probabilities may add up from 1.
_SUM = 1e-2
# A sequence has so many steps, and most have one class in such a share of them.
_STEPS, _BLANKS = 8, 1 / 5
# Errors that an output as a whole may have, spread over its numbers, move the difference of two by the root of 2 times
# as much, and less than three times that in 399 rows of 400.
_WITHIN = 3 * 2**0.5
# FP32's own noise is measured of an output as a whole, and may be larger in one row, slice or number.
NOISES = 16
# Lost leads that are kept as numbers: more say nothing more.
_KEPT = 1 << 16
# Shares of decisions that stay as they are, in formats with scales, in floats, and in FP32 and more.
_OF_INTEGERS, _OF_FLOATS, _OF_OTHERS = 0.95, {DType.FLOAT16: 0.99, DType.BFLOAT16: 0.97}, 0.999


class Changed(NamedTuple):
    """What of an output's decisions, numbers or parts changed, in words: `fault` makes it wrong, `doubt` leaves it
    open.
    """

    fault: str | None = None
    doubt: str | None = None


class Decisions:
    """Counts the decisions of an output that changed, over batches, and by how much the reference is for its own."""

    def __init__(self, fmt: Format) -> None:
        self._format = fmt
        self._rows = self._leading = self._units = self._with_blanks = 0
        self._has_sums = self._has_steps = True
        self._classes = 0
        self._row_leads, self._unit_leads = array("d"), array("d")  # that were lost
        self._square = self._count = 0.0

    def add(self, want: Array, found: Array, units: int) -> None:
        """Compare a batch of so many samples of floats: two arrays of one shape, whose last axis is of classes."""
        length = want.shape[-1]
        ours, theirs = (side.reshape(-1, length).astype(np.float64) for side in (want, found))
        with np.errstate(all="ignore"):
            chosen, choices = ours.argmax(1), theirs.argmax(1)
            best, second = ours.max(1), np.partition(ours, length - 2, axis=1)[:, length - 2]
            lost = best - np.take_along_axis(ours, choices[:, None], axis=1)[:, 0]
            lost = np.where(np.isfinite(lost), lost, 0.0)
            self._leading += int(np.count_nonzero(best - second >= _LEAD * ours.std(1)))
            self._has_sums &= bool((np.abs(ours.sum(1) - 1.0) < _SUM).all() and (ours >= 0.0).all())
            self._square += float(np.square(ours).sum())
        self._count += ours.size
        self._classes = length if not self._classes else min(self._classes, length)
        self._rows, self._units = self._rows + len(ours), self._units + units
        _extend(self._row_leads, lost[lost > 0.0])
        self._add_sequences(chosen.reshape(units, -1), choices.reshape(units, -1), lost.reshape(units, -1), want.ndim)

    def _add_sequences(self, chosen: Array, choices: Array, lost: Floats, ndim: int) -> None:
        self._has_steps &= ndim == 3 and chosen.shape[1] >= _STEPS
        if not self._has_steps:
            return
        changed = []
        for ours, theirs, leads in zip(chosen, choices, lost, strict=True):
            classes, counts = np.unique(ours, return_counts=True)
            self._with_blanks += bool(counts.max() >= _BLANKS * len(ours))
            blank = classes[counts.argmax()]
            if _spell(ours, blank) != _spell(theirs, blank):
                changed.append(float(leads.max()))
        _extend(self._unit_leads, np.array(changed))

    @property
    def are_scores(self) -> bool:
        """Whether the output looks like scores."""
        return self._classes >= (2 if self._has_sums else _FEWEST) and 2 * self._leading >= self._rows

    @property
    def are_probabilities(self) -> bool:
        """Whether rows add up to 1: numbers of one unit, whatever their sizes."""
        return self._rows > 0 and self._has_sums

    @property
    def are_all(self) -> bool:
        """Whether nothing but the decisions is read of the output. Of few numbers that are no probabilities one leads
        by chance as well.
        """
        return self.are_scores and (self._has_sums or self._classes > _BY_CHANCE)

    def changed(self, budget: float, noise: float) -> Changed:
        """What changed in an output that looks like scores, within a budget for the whole and its noise."""
        rms = (self._square / self._count) ** 0.5 if self._count else 0.0
        if not self.are_scores or not rms:
            return Changed()
        leads, count, what = self._row_leads, self._rows, "decisions"
        if self._has_steps and 2 * self._with_blanks > self._units:
            leads, count, what = self._unit_leads, self._units, "sequences"
        sizes = np.frombuffer(leads)
        lost = int(np.count_nonzero(sizes > NOISES * noise * rms))
        clear = int(np.count_nonzero(sizes > _WITHIN * budget * rms))
        share = kept_share(self._format)
        allowed = (1.0 - share) * count
        said = f"{lost} of {count} {what} are others, and {100 * share:g} % have to stay"
        if clear > allowed:
            return Changed(fault=said)
        return Changed(doubt=f"{said}; those that changed were close") if lost > allowed else Changed()


def kept_share(fmt: Format) -> float:
    """The share of decisions, or of numbers that are each read by itself, that a format has to keep."""
    return _OF_INTEGERS if fmt.dtype in QUANTIZED else _OF_FLOATS.get(fmt.dtype, _OF_OTHERS)


def _spell(choices: Array, blank: Any) -> list[int]:
    """A sequence of classes without repeats and the blank."""
    is_new = np.concatenate([[True], choices[1:] != choices[:-1]])
    kept: list[int] = choices[is_new & (choices != blank)].tolist()
    return kept


def _extend(kept: "array[float]", leads: Floats) -> None:
    kept.extend(leads[: max(0, _KEPT - len(kept))].tolist())
