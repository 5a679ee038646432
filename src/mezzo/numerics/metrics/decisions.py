"""Top-1 decisions of score outputs: the class of each row, or the label sequence that rows decode
to.

An output holds scores if in most rows the largest element clearly leads the others; random numbers,
images and embeddings have no such leader. Logits over a vocabulary lead by less, and are recognized
by their number: an embedding table of the model has as many rows, or there are more of them than
embeddings are wide. Scores per step of a sequence, as of CTC and tagging, are decoded greedily:
repeats and the most common class, the blank, are dropped, so that a shift by one step is no change.

Few samples have few changed decisions, so the fraction that would change on other data is estimated
too: the lead that the top class loses in one row may exceed its lead in another.
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

# The largest element is a clear lead if the next is this many standard deviations of its row below
# it: the largest of 200 to 10,000 normal numbers leads by a third of one.
_LEAD = 1.0
# Two elements always differ by two standard deviations: pairs count as scores only if they are
# probabilities.
_FEWEST = 3
# Leads of random rows are distributed exponentially with mean deviation / sqrt(2 ln classes): a
# seventh exceed twice that. Of a vocabulary's logits a quarter have to; two fifths of a trained
# language model's do.
_CHANCES, _MORE_THAN_CHANCE = 2.0, 1 / 4
# No embedding of current models is wider.
WIDEST_EMBEDDING = 1 << 14
# In half of the rows of three or four random numbers the largest leads as far.
_BY_CHANCE = 4
# Tolerance of the sum of a row of probabilities around 1.
_SUM = 1e-2
# Minimum steps of a sequence, and the fraction of steps that most sequences spend in the blank. CTC
# emits other classes in peaks of one or two steps; segments, as of tagging, are longer.
_STEPS, _BLANKS, _PEAK = 8, 1 / 5, 3
# An output's error, spread evenly over its elements, changes a difference of two by sqrt(2) times
# as much, and by less than three times that in 399 of 400 rows.
_WITHIN = 3 * 2**0.5
# FP32's noise is measured over a whole output, and may be larger by this factor in one row, slice
# or element.
NOISES = 16
# Elements per block, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 16
# Limit on stored leads: more add no information.
_KEPT = 1 << 16
# Fractions of decisions that must not change: in formats with scales, in low floats, and in FP32 or
# wider.
_OF_INTEGERS, _OF_FLOATS, _OF_OTHERS = 0.95, {DType.FLOAT16: 0.99, DType.BFLOAT16: 0.97}, 0.999


class Changed(NamedTuple):
    """Changes of an output that its overall error does not show, as text: a `fault` fails the
    output, a `doubt` leaves its ruling open.
    """

    fault: str | None = None
    doubt: str | None = None


class Leads:
    """The lead of the top class over the runner-up in rows of the reference, and how much of it the
    candidate loses.
    """

    def __init__(self) -> None:
        self._leads, self._losses = array("d"), array("d")
        self._units = array("q")  # the sample index of each row

    def add(self, leads: Floats, losses: Floats, units: int) -> None:
        """Add the rows of a batch of `units` samples."""
        rows = min(len(leads), _KEPT - len(self._leads))
        first = self._units[-1] + 1 if self._units else 0
        numbers = first + np.arange(len(leads)) * units // max(len(leads), 1)
        self._leads.extend(leads[:rows].tolist())
        self._losses.extend(losses[:rows].tolist())
        self._units.extend(numbers[:rows].tolist())

    def share_lost(self, least: float, *, by_unit: bool) -> float:
        """The upper bound on the fraction of rows, or of samples with any such row, that would lose
        a lead above `least`, if losses were independent of leads.
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
    """Per row: the top class of the reference and of the candidate, the reference's score
    difference between the two, its lead, and how much of that lead the candidate loses.
    """

    chosen: Array
    choices: Array
    lost: Floats
    leads: Floats
    losses: Floats


class DecisionChanges:
    """Counts changed decisions of an output over batches, and how clear each was in the reference.

    `tables`: the numbers of rows of the embedding tables that the model's inputs index.
    """

    def __init__(self, fmt: Format, tables: Collection[int] = ()) -> None:
        self._format, self._tables = fmt, frozenset(tables)
        self._leads = Leads()
        self._rows = self._leading = self._beyond_chance = self._units = 0
        self._with_blanks = self._peaks = self._steps_in_peaks = 0
        self._has_sums = self._has_steps = True
        self._classes = 0
        self._row_leads, self._unit_leads = array("d"), array("d")  # of changed decisions
        self._square = self._count = 0.0

    def add(self, want: Array, found: Array, units: int) -> None:
        """Compare a batch of `units` samples: two float arrays [..., classes]."""
        length = want.shape[-1]
        ours, theirs = want.reshape(-1, length), found.reshape(-1, length)
        step = max(1, _PIECE // length)
        starts = range(0, max(len(ours), 1), step)
        pieces = [
            self._add_rows(ours[start : start + step], theirs[start : start + step])
            for start in starts
        ]
        rows = _Rows(*map(np.concatenate, zip(*pieces, strict=True)))
        chosen, choices, lost = rows.chosen, rows.choices, rows.lost
        self._leads.add(rows.leads, rows.losses, units)
        self._count += ours.size
        self._classes = length if not self._classes else min(self._classes, length)
        self._rows, self._units = self._rows + len(ours), self._units + units
        _extend(self._row_leads, lost[lost > 0.0])
        self._add_sequences(
            chosen.reshape(units, -1),
            choices.reshape(units, -1),
            lost.reshape(units, -1),
            want.ndim,
        )

    def _add_rows(self, want: Array, actual: Array) -> "_Rows":
        """Compare a block of rows of scores [rows, classes]."""
        ours, theirs, length = want.astype(np.float64), actual.astype(np.float64), want.shape[1]
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
        """Count the sequences, [units, steps], whose greedy decoding changed."""
        self._has_steps &= ndim == 3 and chosen.shape[1] >= _STEPS and not self._are_tokens
        if not self._has_steps:
            return
        changed = []
        for ours, theirs, leads in zip(chosen, choices, lost, strict=True):
            classes, counts = np.unique(ours, return_counts=True)
            self._with_blanks += bool(counts.max() >= _BLANKS * len(ours))
            blank = classes[counts.argmax()]
            self._steps_in_peaks += len(ours) - int(counts.max())
            self._peaks += int(
                np.count_nonzero((ours != blank) & np.diff(ours, prepend=blank).astype(bool))
            )
            if _spell(ours, blank) != _spell(theirs, blank):
                changed.append(float(leads.max()))
        _extend(self._unit_leads, np.array(changed))

    @property
    def are_scores(self) -> bool:
        """Whether the output looks like scores."""
        if self._are_tokens or self._classes > WIDEST_EMBEDDING:
            return self._beyond_chance >= _MORE_THAN_CHANCE * self._rows
        return (
            self._classes >= (2 if self._has_sums else _FEWEST) and 2 * self._leading >= self._rows
        )

    @property
    def _are_tokens(self) -> bool:
        """Whether the last axis is as long as an embedding table of the model."""
        return self._classes in self._tables

    @property
    def _are_spelled(self) -> bool:
        """Whether rows are steps of a sequence that is decoded by dropping repeats and blanks."""
        is_peaked = 0 < self._steps_in_peaks < _PEAK * self._peaks
        return self._has_steps and 2 * self._with_blanks > self._units and is_peaked

    @property
    def are_probabilities(self) -> bool:
        """Whether all rows sum to 1, so that all elements are of one unit."""
        return self._rows > 0 and self._has_sums

    @property
    def are_all(self) -> bool:
        """Whether the output is used for its decisions alone. Three or four elements that are not
        probabilities may have a leader by chance.
        """
        return self.are_scores and (self._has_sums or self._classes > _BY_CHANCE)

    def changed(self, budget: float, noise: float) -> Changed:
        """The change of decisions in a score output, given a budget for the whole and its noise."""
        rms = (self._square / self._count) ** 0.5 if self._count else 0.0
        if not self.are_scores or not rms:
            return Changed()
        leads, count, kind = self._row_leads, self._rows, "decisions"
        if self._are_spelled:
            leads, count, kind = self._unit_leads, self._units, "sequences"
        sizes = np.frombuffer(leads)
        lost = int(np.count_nonzero(sizes > NOISES * noise * rms))
        clear = int(np.count_nonzero(sizes > _WITHIN * budget * rms))
        share = kept_share(self._format)
        allowed = (1.0 - share) * count
        summary = f"{lost} of {count} {kind} are others, and {100 * share:g} % have to stay"
        if clear > allowed:
            return Changed(fault=summary)
        if lost > allowed:
            return Changed(doubt=f"{summary}; those that changed were close")
        # In other outputs the top element may mean nothing.
        if not (self._are_spelled or self._are_tokens or self._has_sums):
            return Changed()
        likely = self._leads.share_lost(NOISES * noise * rms, by_unit=self._are_spelled)
        if likely > 1.0 - share:
            return Changed(
                doubt=(
                    f"{summary}; by how far leads move it may be {100 * likely:.2g} % on other data"
                )
            )
        return Changed()


def kept_share(fmt: Format) -> float:
    """The fraction of decisions, or of regression outputs, that a format has to preserve."""
    return _OF_INTEGERS if fmt.dtype in QUANTIZED else _OF_FLOATS.get(fmt.dtype, _OF_OTHERS)


def _taken(scores: Floats, classes: Array) -> Floats:
    """The score of one class per row."""
    scores_of_classes: Floats = np.take_along_axis(scores, classes[:, None], axis=1)[:, 0]
    return scores_of_classes


def _lead_of(scores: Floats, classes: Array) -> Floats:
    """The lead of one class per row over the best other, or minus its lag. Overwrites `scores`."""
    own = _taken(scores, classes)
    np.put_along_axis(scores, classes[:, None], -np.inf, axis=1)
    leads: Floats = own - scores.max(1)
    return leads


def _spell(choices: Array, blank: Any) -> list[int]:
    """A class sequence without repeats and blanks."""
    is_new = np.concatenate([[True], choices[1:] != choices[:-1]])
    decoded: list[int] = choices[is_new & (choices != blank)].tolist()
    return decoded


def _extend(stored: "array[float]", leads: Floats) -> None:
    stored.extend(leads[: max(0, _KEPT - len(stored))].tolist())
