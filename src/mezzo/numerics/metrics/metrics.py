"""How one value of a model differs from the reference's: added up batch by batch in FP64, in bounded memory."""

import math
from array import array
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import FORMATS, DType, Format
from mezzo.numerics.measures import Deviation, Interval
from mezzo.numerics.metrics.decisions import Changed, Decisions
from mezzo.numerics.metrics.faults import NOTICED, Faults
from mezzo.numerics.metrics.figures import figures
from mezzo.numerics.metrics.regression import Regression
from mezzo.numerics.metrics.slices import LOST, Lost, Slices
from mezzo.numerics.statistics.intervals import root_ratio, wilson
from mezzo.numerics.verdicts import choose_budget

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_K = 5
# Numbers handled at once: a few FP64 copies of them stay in a processor's cache, or near it.
_PIECE = 1 << 18


class Meter:
    """Compares one value with the reference's over batches. `is_output`: whether ranks and slices are looked at too.
    `tables`: the numbers of rows of the tables that the model's inputs pick rows of. `are_labels`: integers of it are
    places of the largest numbers, which have no size: of those that vary a format's share has to stay.

    Sequences are compared element by element. Places where both are NaN, or the same infinity, say nothing and are
    left out. Other numbers that are no floats have to be equal.
    """

    def __init__(
        self, name: str, ulp_format: DType, *, is_output: bool = True, tables: Collection[int] = (),
        are_labels: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self._format = FORMATS[ulp_format]
        self._is_output, self._are_labels = is_output, are_labels
        self._slices, self._decisions = Slices(self._format), Decisions(self._format, tables)
        self._regression = Regression(self._format)
        self._squares = array("d")  # of the error, per sample
        self._wholes = array("d")  # of the reference, per sample
        self._product = self._candidate_square = 0.0
        self._largest = self._largest_ulp = 0.0
        self._tallies = {figure.name: figure.begin() for figure in figures()}
        self._rows = self._top1 = self._topk = 0
        self._axis: int | None = None
        self._faults = Faults(self._format)

    def add(self, reference: Any, candidate: Any, samples: int) -> None:
        """Compare one batch. Where the first axis is a multiple of the number of samples, each has so many rows of it;
        otherwise the value is one sample."""
        pairs = list(self._pairs(reference, candidate))
        units = _units(pairs[0][0].shape, samples) if len(pairs) == 1 else 1
        first = len(self._squares)
        self._squares.extend([0.0] * units)
        self._wholes.extend([0.0] * units)
        self._faults.begin(units)
        for want, found in pairs:
            if want.shape != found.shape:
                self._faults.note_shape(want.shape, found.shape)
            elif want.size:
                self._add_pair(want, found, units, first)
        self._faults.end()

    def result(self) -> Deviation:
        """What was found so far."""
        squares, wholes = np.frombuffer(self._squares), np.frombuffer(self._wholes)
        total, error = math.fsum(wholes), math.fsum(squares)
        interval, by_sample = root_ratio(squares, wholes), _errors_by_sample(squares, wholes)
        return Deviation(
            name=self.name,
            samples=len(squares),
            relative_l2=interval,
            cosine=_cosine(self._product, total, self._candidate_square),
            sqnr_db=-20 * math.log10(interval.estimate) if interval.estimate else math.inf,
            largest_absolute=self._largest,
            largest_ulp=self._largest_ulp,
            ulp_format=self._format.dtype,
            fault=self._faults.find(wholes, is_zero_reference=total == 0.0 < error, largest=self._largest),
            top1=self._share(self._top1),
            # Of five classes or fewer the five largest are all of them, whatever the model says.
            topk=self._share(self._topk) if self._axis is not None and self._axis > _K else None,
            k=_K if self._rows and self._axis is not None and self._axis > _K else None,
            worst=float(by_sample.max()) if len(by_sample) else None,
            worst_at=int(by_sample.argmax()) if len(by_sample) else None,
            figures={name: tally.result() for name, tally in self._tallies.items()},
        )

    def lost(self, budget: float, noise: float) -> Lost:
        """What of an output is lost whatever its error as a whole is: slices, else samples. A budget that allows zeros
        in place of all loses nothing.
        """
        if budget >= LOST:
            return Lost()
        if self._faults.spared is not None:
            return Lost(worry=self._faults.spared)
        lost = self._slices.lost(budget, noise)
        if lost.fault or lost.worry:
            return lost
        errors = _errors_by_sample(np.frombuffer(self._squares), np.frombuffer(self._wholes))
        count, at = int(np.count_nonzero(errors >= LOST)), int(errors.argmax()) if len(errors) else 0
        if not count or len(errors) < 2:
            return Lost()
        worst = f", sample {at} by {errors[at]:.3g} of it"
        return Lost(worry=f"{count} of {len(errors)} samples are off by as much as they hold{worst}")

    def changed(self, budget: float, noise: float) -> Changed:
        """What of an output changed that its error as a whole does not show: decisions where it looks like scores,
        single numbers where a row has few and may be none, parts in other units, and what samples differ by. These are
        held to the format's default budget at least. A budget that allows zeros allows any.
        """
        if budget >= LOST:
            return Changed()
        budget = max(budget, choose_budget(None, self._format.dtype, noise).error)
        several = [] if self._decisions.are_all else [self._regression.changed(budget, noise)]
        several += [
            self._decisions.changed(budget, noise),
            self._slices.changed(budget, noise, is_one_unit=self._decisions.are_probabilities),
        ]
        several.sort(key=lambda changed: (changed.fault is None, changed.doubt is None))
        return several[0]

    @property
    def broken(self) -> str | None:
        """What is wrong and cannot come from rounding, however ill-conditioned the value is; None if nothing is."""
        return self._faults.find_broken()

    @property
    def is_exact(self) -> bool:
        """Whether the value is of integers, truth values or text, of which only equal ones are right."""
        return self._faults.is_exact

    def _share(self, agreeing: int) -> Interval | None:
        return wilson(agreeing, self._rows) if self._rows else None

    def _pairs(self, reference: Any, candidate: Any) -> Iterator[tuple[Array, Array]]:
        """The arrays to compare. What has no counterpart is a fault."""
        if isinstance(reference, list | tuple) or isinstance(candidate, list | tuple):
            if not isinstance(reference, list | tuple) or not isinstance(candidate, list | tuple):
                self._faults.note("one of the two is a sequence, the other is none")
            elif len(reference) != len(candidate):
                self._faults.note(f"a sequence of {len(candidate)} where the reference has {len(reference)}")
            else:
                for want, found in zip(reference, candidate, strict=True):
                    yield from self._pairs(want, found)
        elif reference is None or candidate is None:
            if reference is not candidate:
                self._faults.note(f"{'empty' if candidate is None else 'not empty'} where the reference is not so")
        else:
            yield np.asarray(reference), np.asarray(candidate)

    def _add_pair(self, want: Array, found: Array, units: int, first: int) -> None:
        if not (is_number(want) and is_number(found)):
            self._faults.note_unequal(int(np.count_nonzero(want.astype(str) != found.astype(str))), want.size)
            return
        if not (is_float(want) or is_float(found)):
            varied = want.size - int(np.unique(want, return_counts=True)[1].max()) if self._are_labels else 0
            self._faults.note_unequal(int(np.count_nonzero(want != found)), want.size, varied)
            if self._are_labels:
                return
        if is_complex(want) or is_complex(found):
            want, found = (
                np.ascontiguousarray(values, np.complex128)[..., None].view(np.float64) for values in (want, found)
            )
        elif self._is_output and is_float(want) and want.ndim:
            self._slices.add(want, found, units)
            self._regression.add(want, found, units)
            if want.ndim > 1 and want.shape[-1] > 1:
                self._decisions.add(want, found, units)
                self._add_ranks(want.reshape(-1, want.shape[-1]), found.reshape(-1, want.shape[-1]))
        wanted, compared = want.reshape(units, -1), found.reshape(units, -1)
        for rows, columns in _pieces(*wanted.shape):
            piece = _widen(wanted[rows, columns]), _widen(compared[rows, columns])
            self._add_piece(*piece, slice(first + rows.start, first + rows.stop), rows)

    def _add_piece(self, want: Floats, found: Floats, where: slice, rows: slice) -> None:
        with np.errstate(all="ignore"):
            usable = np.isfinite(want) & np.isfinite(found)
            self._faults.add(want, found, usable, rows)
            if not usable.all():
                want, found = np.where(usable, want, 0.0), np.where(usable, found, 0.0)
            error = np.abs(found - want)
            _add_to(self._squares, where, np.einsum("ij,ij->i", error, error))
            _add_to(self._wholes, where, np.einsum("ij,ij->i", want, want))
            self._product += float(np.einsum("ij,ij->", want, found))
            self._candidate_square += float(np.einsum("ij,ij->", found, found))
            self._largest = max(self._largest, float(error.max()))
            for tally in self._tallies.values():
                tally.add(want, found, error)
            self._largest_ulp = max(self._largest_ulp, float((error / ulp(want, self._format)).max()))

    def _add_ranks(self, want: Array, found: Array) -> None:
        rows, length = want.shape
        # The smallest axis stands for all where they differ: what is told is never more than was looked at.
        self._axis = length if self._axis is None else min(self._axis, length)
        step = max(1, _PIECE // length)
        self._rows += rows
        for start in range(0, rows, step):
            block, other = _widen(want[start : start + step]), _widen(found[start : start + step])
            self._top1 += int(np.count_nonzero(_agree(block, other, 1)))
            if length > _K:
                self._topk += int(np.count_nonzero(_agree(block, other, _K)))


def is_float(values: Array) -> bool:
    """Whether an array holds floats, those of ml_dtypes and complex ones included."""
    return values.dtype.kind in "fc" or values.dtype.name.startswith(("bfloat", "float"))


def is_complex(values: Array) -> bool:
    return values.dtype.kind == "c"


def is_number(values: Array) -> bool:
    """Whether an array holds what arithmetic makes sense of."""
    return values.dtype.kind in "biufc" or values.dtype.name.startswith(("bfloat", "float", "int", "uint"))


def ulp(values: Floats, fmt: Format) -> Floats:
    """The gap between neighbours in a format at the magnitude of the values; among subnormals, the smallest one."""
    exponents = np.frexp(np.maximum(np.abs(values), fmt.smallest_normal))[1] - 1
    gaps: Floats = np.ldexp(fmt.eps, exponents)
    return gaps


def _agree(want: Floats, found: Floats, k: int) -> npt.NDArray[np.bool_]:
    """Rows whose k largest elements are the reference's. Those that tie in the reference stand for each other."""
    if k == 1:
        chosen = np.take_along_axis(want, found.argmax(axis=1)[:, None], axis=1)
        least = want.max(axis=1)
    else:
        length = want.shape[1]
        chosen = np.take_along_axis(want, np.argpartition(found, length - k, axis=1)[:, length - k :], axis=1)
        least = np.partition(want, length - k, axis=1)[:, length - k]
    lowest = chosen.min(axis=1)
    agrees: npt.NDArray[np.bool_] = (lowest >= least) | (np.isnan(lowest) & np.isnan(least))
    return agrees


def _widen(values: Array) -> Floats:
    return values.astype(np.float64)


def _add_to(sums: "array[float]", where: slice, added: Floats) -> None:
    held = np.frombuffer(sums)
    held[where] += added


def _units(shape: tuple[int, ...], samples: int) -> int:
    """How many samples a value of this shape holds, in a batch of so many."""
    if not shape or samples == 0:
        return min(shape[0], 1) if shape else 1
    return samples if shape[0] % samples == 0 else 1


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Cut a table into parts of bounded size: runs of whole rows, or runs of columns of one long row."""
    if columns > _PIECE:
        for row in range(rows):
            for start in range(0, columns, _PIECE):
                yield slice(row, row + 1), slice(start, min(start + _PIECE, columns))
        return
    step = max(1, _PIECE // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows)), slice(0, columns)


def _errors_by_sample(squares: Floats, wholes: Floats) -> Floats:
    """The relative L2 of each sample; 0 of those so small that others hide what is wrong with them."""
    is_noticed = wholes > NOTICED**2 * wholes.mean() if len(wholes) else np.zeros(0, bool)
    with np.errstate(all="ignore"):
        errors: Floats = np.where(is_noticed, np.sqrt(squares / wholes), 0.0)
    return errors


def _cosine(product: float, whole: float, candidate: float) -> float:
    """The cosine of the angle between the two; 1 where both are zero, 0 where one is."""
    if whole == 0.0 or candidate == 0.0:
        return 1.0 if whole == candidate else 0.0
    return max(-1.0, min(1.0, product / math.sqrt(whole) / math.sqrt(candidate)))
