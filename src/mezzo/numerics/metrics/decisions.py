"""Decisions that an output's scores lead to: the class of each row, or what a sequence of rows spells.

An output looks like scores where in most rows the largest element stands out from the others; random numbers, images
and embeddings have none that does. Scores over a vocabulary, such as a language model's logits, stand out less, and
are told by their number: a table that the model looks tokens up in has a row for each, or there are more of them than
embeddings are wide. Sequences of scores per step, as of CTC and tagging, are read as such decoders do: repeats and the
most common class, the blank, are dropped, so that a step earlier or later is the same text.

Few samples show few changes, so the share that would change on others is estimated too: by how much the lead of the
best class shrinks in one row, in another its lead is lost.
"""

import math
from array import array
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import QUANTIZED, DType, Format
from mezzo.numerics.statistics.intervals import weighted_mean

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# The largest element stands out where it leads the next by so many standard deviations of its row: the largest of 200
# to 10,000 normal numbers leads by a third of one.
_LEAD = 1.0
# Two elements are always apart by two standard deviations: of them only probabilities are taken for scores.
_FEWEST = 3
# Leads of random rows are spread exponentially about the deviation over sqrt(2 ln classes): a seventh are twice that.
# Of a vocabulary's scores a quarter have to be; of a trained language model's two fifths are.
_CHANCES, _MORE_THAN_CHANCE = 2.0, 1 / 4
# No embedding of today's models is wider.
_WIDEST_EMBEDDING = 1 << 14
# In half of rows of three or four random numbers the largest leads as far.
_BY_CHANCE = 4
# How far a row of probabilities may add up from 1.
_SUM = 1e-2
# A sequence has so many steps, and most have one class in such a share of them. What stands between is spelled in
# peaks of one or two steps; segments, as of tagging, are longer.
_STEPS, _BLANKS, _PEAK = 8, 1 / 5, 3
# Errors that an output as a whole may have, spread over its numbers, move the difference of two by the root of 2 times
# as much, and less than three times that in 399 rows of 400.
_WITHIN = 3 * 2**0.5
# FP32's own noise is measured of an output as a whole, and may be larger in one row, slice or number.
NOISES = 16
# Numbers handled at once: what is computed of them stays in a processor's cache.
_PIECE = 1 << 16
# Lost leads, and rows with their leads, that are kept as numbers: more say nothing more.
_KEPT = 1 << 16
# Shares of decisions that stay as they are, in formats with scales, in floats, and in FP32 and more.
_OF_INTEGERS, _OF_FLOATS, _OF_OTHERS = 0.95, {DType.FLOAT16: 0.99, DType.BFLOAT16: 0.97}, 0.999


class Changed(NamedTuple):
    """What of an output's decisions, numbers or parts changed, in words: `fault` makes it wrong, `doubt` leaves it
    open.
    """

    fault: str | None = None
    doubt: str | None = None


class Leads:
    """Leads of the best class over the next in rows of the reference, and by how much the candidate's are smaller."""

    def __init__(self) -> None:
        self._leads, self._losses = array("d"), array("d")
        self._units = array("q")  # the number of each row's sample

    def add(self, leads: Floats, losses: Floats, units: int) -> None:
        """Add rows of a batch of so many samples."""
        rows = min(len(leads), _KEPT - len(self._leads))
        first = self._units[-1] + 1 if self._units else 0
        numbers = first + np.arange(len(leads)) * units // max(len(leads), 1)
        self._leads.extend(leads[:rows].tolist())
        self._losses.extend(losses[:rows].tolist())
        self._units.extend(numbers[:rows].tolist())

    def share_lost(self, least: float, *, by_unit: bool) -> float:
        """The upper end of the share of rows, or of samples any row of which, would lose a lead above `least`, if any
        row's loss may come with any other's lead.
        """
        leads, losses = np.frombuffer(self._leads), np.sort(np.frombuffer(self._losses))
        if not len(leads):
            return 0.0
        chances = 1.0 - np.searchsorted(losses, leads, side="right") / len(losses)
        chances[leads <= least] = 0.0
        if by_unit:
            starts = np.flatnonzero(np.diff(np.frombuffer(self._units, np.int64), prepend=-1))
            chances = 1.0 - np.multiply.reduceat(1.0 - chances, starts)
        return min(1.0, weighted_mean(chances, np.ones(len(chances))).high)


class _Rows(NamedTuple):
    """Of rows: the classes that the reference and the candidate choose, what the reference's score loses by the other
    choice, its lead, and by how much the candidate's is smaller.
    """

    chosen: Array
    choices: Array
    lost: Floats
    leads: Floats
    losses: Floats


class Decisions:
    """Counts the decisions of an output that changed, over batches, and by how much the reference is for its own.

    `tables` are the numbers of rows of the tables that the model's inputs pick rows of.
    """

    def __init__(self, fmt: Format, tables: Collection[int] = ()) -> None:
        self._format, self._tables = fmt, frozenset(tables)
        self._leads = Leads()
        self._rows = self._leading = self._beyond_chance = self._units = 0
        self._with_blanks = self._peaks = self._steps_in_peaks = 0
        self._has_sums = self._has_steps = True
        self._classes = 0
        self._row_leads, self._unit_leads = array("d"), array("d")  # that were lost
        self._square = self._count = 0.0

    def add(self, want: Array, found: Array, units: int) -> None:
        """Compare a batch of so many samples of floats: two arrays of one shape, whose last axis is of classes."""
        length = want.shape[-1]
        ours, theirs = want.reshape(-1, length), found.reshape(-1, length)
        step = max(1, _PIECE // length)
        starts = range(0, max(len(ours), 1), step)
        pieces = [self._add_rows(ours[start : start + step], theirs[start : start + step]) for start in starts]
        rows = _Rows(*map(np.concatenate, zip(*pieces, strict=True)))
        chosen, choices, lost = rows.chosen, rows.choices, rows.lost
        self._leads.add(rows.leads, rows.losses, units)
        self._count += ours.size
        self._classes = length if not self._classes else min(self._classes, length)
        self._rows, self._units = self._rows + len(ours), self._units + units
        _extend(self._row_leads, lost[lost > 0.0])
        self._add_sequences(chosen.reshape(units, -1), choices.reshape(units, -1), lost.reshape(units, -1), want.ndim)

    def _add_rows(self, want: Array, found: Array) -> "_Rows":
        """Compare a few rows of scores [rows, classes]."""
        ours, theirs, length = want.astype(np.float64), found.astype(np.float64), want.shape[1]
        with np.errstate(all="ignore"):
            chosen, choices = ours.argmax(1), theirs.argmax(1)
            spread = ours.std(1)
            self._has_sums &= bool((np.abs(ours.sum(1) - 1.0) < _SUM).all() and (ours >= 0.0).all())
            self._square += float(np.einsum("ij,ij->", ours, ours))
            lost = _taken(ours, chosen) - _taken(ours, choices)
            leads = _lead_of(ours, chosen)
            losses = leads - _lead_of(theirs, chosen)
            self._leading += int(np.count_nonzero(leads >= _LEAD * spread))
            beyond = (spread > 0.0) & (leads >= _CHANCES * spread / math.sqrt(2 * math.log(length)))
            self._beyond_chance += int(np.count_nonzero(beyond))
        lost, losses = (np.where(np.isfinite(each), each, 0.0) for each in (lost, losses))
        return _Rows(chosen, choices, lost, leads, losses)

    def _add_sequences(self, chosen: Array, choices: Array, lost: Floats, ndim: int) -> None:
        self._has_steps &= ndim == 3 and chosen.shape[1] >= _STEPS and not self._are_tokens
        if not self._has_steps:
            return
        changed = []
        for ours, theirs, leads in zip(chosen, choices, lost, strict=True):
            classes, counts = np.unique(ours, return_counts=True)
            self._with_blanks += bool(counts.max() >= _BLANKS * len(ours))
            blank = classes[counts.argmax()]
            self._steps_in_peaks += len(ours) - int(counts.max())
            self._peaks += int(np.count_nonzero((ours != blank) & np.diff(ours, prepend=blank).astype(bool)))
            if _spell(ours, blank) != _spell(theirs, blank):
                changed.append(float(leads.max()))
        _extend(self._unit_leads, np.array(changed))

    @property
    def are_scores(self) -> bool:
        """Whether the output looks like scores."""
        if self._are_tokens or self._classes > _WIDEST_EMBEDDING:
            return self._beyond_chance >= _MORE_THAN_CHANCE * self._rows
        return self._classes >= (2 if self._has_sums else _FEWEST) and 2 * self._leading >= self._rows

    @property
    def _are_tokens(self) -> bool:
        """Whether there is a number for each row of a table that the model looks tokens up in."""
        return self._classes in self._tables

    @property
    def _are_spelled(self) -> bool:
        """Whether rows are steps of sequences that are read without repeats and blanks."""
        is_peaked = 0 < self._steps_in_peaks < _PEAK * self._peaks
        return self._has_steps and 2 * self._with_blanks > self._units and is_peaked

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
        if self._are_spelled:
            leads, count, what = self._unit_leads, self._units, "sequences"
        sizes = np.frombuffer(leads)
        lost = int(np.count_nonzero(sizes > NOISES * noise * rms))
        clear = int(np.count_nonzero(sizes > _WITHIN * budget * rms))
        share = kept_share(self._format)
        allowed = (1.0 - share) * count
        said = f"{lost} of {count} {what} are others, and {100 * share:g} % have to stay"
        if clear > allowed:
            return Changed(fault=said)
        if lost > allowed:
            return Changed(doubt=f"{said}; those that changed were close")
        if not (self._are_spelled or self._are_tokens or self._has_sums):  # in others one may lead that nobody reads
            return Changed()
        likely = self._leads.share_lost(NOISES * noise * rms, by_unit=self._are_spelled)
        if likely > 1.0 - share:
            return Changed(doubt=f"{said}; by how far leads move it may be {100 * likely:.2g} % on other data")
        return Changed()


def kept_share(fmt: Format) -> float:
    """The share of decisions, or of numbers that are each read by itself, that a format has to keep."""
    return _OF_INTEGERS if fmt.dtype in QUANTIZED else _OF_FLOATS.get(fmt.dtype, _OF_OTHERS)


def _taken(scores: Floats, classes: Array) -> Floats:
    """A score per row, by its class."""
    taken: Floats = np.take_along_axis(scores, classes[:, None], axis=1)[:, 0]
    return taken


def _lead_of(scores: Floats, classes: Array) -> Floats:
    """By how much a class per row is above the best of the others, which are spoilt; below zero where it is not."""
    taken = _taken(scores, classes)
    np.put_along_axis(scores, classes[:, None], -np.inf, axis=1)
    leads: Floats = taken - scores.max(1)
    return leads


def _spell(choices: Array, blank: Any) -> list[int]:
    """A sequence of classes without repeats and the blank."""
    is_new = np.concatenate([[True], choices[1:] != choices[:-1]])
    kept: list[int] = choices[is_new & (choices != blank)].tolist()
    return kept


def _extend(kept: "array[float]", leads: Floats) -> None:
    kept.extend(leads[: max(0, _KEPT - len(kept))].tolist())
