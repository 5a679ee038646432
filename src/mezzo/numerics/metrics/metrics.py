"""Error metrics of one value against the reference's, summed in FP64 in bounded memory."""

import math
from array import array
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import FORMATS, DType, Format
from mezzo.numerics.measures import Deviation, Interval
from mezzo.numerics.metrics import figures
from mezzo.numerics.metrics.decisions import Changed, DecisionChanges
from mezzo.numerics.metrics.faults import NOTICED, Faults
from mezzo.numerics.metrics.regression import Regression
from mezzo.numerics.metrics.slices import LOST, Lost, Slices
from mezzo.numerics.statistics.intervals import root_ratio, wilson
from mezzo.numerics.step_errors import StepErrors
from mezzo.numerics.verdicts import choose_budget

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

_K = 5
# Points of a curve over steps.
_POINTS = 100
# Elements per block, so that a few FP64 copies fit into or near a processor's cache.
_PIECE = 1 << 18


class Meter:
    """Compares one value with the reference's over batches. `is_output`: also compare ranks and
    slices. `tables`: the numbers of rows of embedding tables that the model's inputs index.
    `are_labels`: integers are class indices (ArgMax, TopK), of which a format's fraction has to
    match.

    Sequences are compared element by element. Positions where both are NaN, or the same infinity,
    are skipped. Other non-floats have to be equal.
    """

    def __init__(
        self, name: str, ulp_format: DType, *, is_output: bool = True, tables: Collection[int] = (),
        are_labels: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self._format = FORMATS[ulp_format]
        self._is_output, self._are_labels = is_output, are_labels
        self._slices, self._decisions = Slices(self._format), DecisionChanges(self._format, tables)
        self._regression = Regression(self._format)
        self._squares = array("d")  # of the error, per sample
        self._wholes = array("d")  # of the reference, per sample
        self._product = self._candidate_square = 0.0
        self._largest = self._largest_ulp = 0.0
        self._tallies = {figure.name: figure.begin() for figure in figures.FIGURES}
        self._rows = self._top1 = self._topk = 0
        self._axis: int | None = None
        self._faults = Faults(self._format)

    def add(self, reference: Any, candidate: Any, samples: int, tokens: int = 1) -> None:
        """Add one batch. If the first axis is a multiple of the number of samples, it holds equally
        many rows of each; otherwise the value is one sample. `tokens`: the length of axis 1, if it
        is of tokens of running text: each is an answer, and its place in the row means nothing.
        """
        pairs = list(self._pairs(reference, candidate))
        units = _units(pairs[0][0].shape, samples) if len(pairs) == 1 else 1
        first = len(self._squares)
        self._squares.extend([0.0] * units)
        self._wholes.extend([0.0] * units)
        self._faults.begin(units)
        for want, actual in pairs:
            if want.shape != actual.shape:
                self._faults.note_shape(want.shape, actual.shape)
            elif want.size:
                self._add_pair(want, actual, units, first, tokens)
        self._faults.end()

    def result(self) -> Deviation:
        """The metrics so far."""
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
            fault=self._faults.find(
                wholes, is_zero_reference=total == 0.0 < error, largest=self._largest
            ),
            top1=self._share(self._top1),
            # Of five classes or fewer, any model's top 5 is all of them.
            topk=self._share(self._topk) if self._axis is not None and self._axis > _K else None,
            k=_K if self._rows and self._axis is not None and self._axis > _K else None,
            worst=float(by_sample.max()) if len(by_sample) else None,
            worst_at=int(by_sample.argmax()) if len(by_sample) else None,
            figures={name: tally.result() for name, tally in self._tallies.items()},
        )

    def step_errors(self) -> StepErrors | None:
        """The error of each step, if samples are steps; None of a single one."""
        squares, wholes = np.frombuffer(self._squares), np.frombuffer(self._wholes)
        count = len(squares)
        if count < 2 or not wholes.any():
            return None
        errors, quarter = np.sqrt(squares / wholes.mean()), -(-count // 4)
        starts = np.unique(np.linspace(0, count, min(count, _POINTS), endpoint=False).astype(int))
        peaks = np.maximum.reduceat(errors, starts)
        return StepErrors(
            count=count,
            first=float(errors[0]),
            last=float(errors[-1]),
            worst=float(errors.max()),
            worst_at=int(errors.argmax()) + 1,
            early=root_ratio(squares[:quarter], wholes[:quarter]).estimate,
            late=root_ratio(squares[-quarter:], wholes[-quarter:]).estimate,
            curve=tuple((int(at) + 1, float(peak)) for at, peak in zip(starts, peaks, strict=True)),
        )

    def lost(self, budget: float, noise: float) -> Lost:
        """Slices, else samples, of an output that are lost despite its overall error. A budget that
        would accept zeros loses nothing.
        """
        if budget >= LOST:
            return Lost()
        if self._faults.spared is not None:
            return Lost(worry=self._faults.spared)
        lost = self._slices.lost(budget, noise)
        if lost.fault or lost.worry:
            return lost
        errors = _errors_by_sample(np.frombuffer(self._squares), np.frombuffer(self._wholes))
        count, at = (
            int(np.count_nonzero(errors >= LOST)),
            int(errors.argmax()) if len(errors) else 0,
        )
        if not count or len(errors) < 2:
            return Lost()
        worst = f", sample {at} by {errors[at]:.3g} of it"
        return Lost(
            worry=f"{count} of {len(errors)} samples are off by as much as they hold{worst}"
        )

    def changed(self, budget: float, noise: float) -> Changed:
        """Changes of an output that its overall error does not show: decisions of score outputs,
        individual numbers of small outputs, slices in other units, and differences between samples.
        They are held to the format's default budget at least. A budget that would accept zeros
        allows any.
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
        """Faults that no rounding error explains; None if there are none."""
        return self._faults.find_broken()

    @property
    def is_exact(self) -> bool:
        """Whether the value holds integers, booleans or text, which have to be equal."""
        return self._faults.is_exact

    def _share(self, agreeing: int) -> Interval | None:
        return wilson(agreeing, self._rows) if self._rows else None

    def _pairs(self, reference: Any, candidate: Any) -> Iterator[tuple[Array, Array]]:
        """Yield the arrays to compare. A missing counterpart is a fault."""
        if isinstance(reference, list | tuple) or isinstance(candidate, list | tuple):
            if not isinstance(reference, list | tuple) or not isinstance(candidate, list | tuple):
                self._faults.note("one of the two is a sequence, the other is none")
            elif len(reference) != len(candidate):
                self._faults.note(
                    f"a sequence of {len(candidate)} where the reference has {len(reference)}"
                )
            else:
                for want, actual in zip(reference, candidate, strict=True):
                    yield from self._pairs(want, actual)
        elif reference is None or candidate is None:
            if reference is not candidate:
                self._faults.note(
                    f"{'empty' if candidate is None else 'not empty'} where the reference is not so"
                )
        else:
            yield np.asarray(reference), np.asarray(candidate)

    def _add_pair(self, want: Array, actual: Array, units: int, first: int, tokens: int) -> None:
        if not (is_number(want) and is_number(actual)):
            self._faults.note_unequal(
                int(np.count_nonzero(want.astype(str) != actual.astype(str))), want.size
            )
            return
        if not (is_float(want) or is_float(actual)):
            varied = (
                want.size - int(np.unique(want, return_counts=True)[1].max())
                if self._are_labels
                else 0
            )
            self._faults.note_unequal(int(np.count_nonzero(want != actual)), want.size, varied)
            if self._are_labels:
                return
        if is_complex(want) or is_complex(actual):
            want, actual = (
                np.ascontiguousarray(values, np.complex128)[..., None].view(np.float64)
                for values in (want, actual)
            )
        elif self._is_output and is_float(want) and want.ndim:
            by_token = (want.shape[0] * tokens, *want.shape[2:]) if tokens > 1 else want.shape
            self._slices.add(want.reshape(by_token), actual.reshape(by_token), units * tokens)
            self._regression.add(want, actual, units)
            if want.ndim > 1 and want.shape[-1] > 1:
                self._decisions.add(want, actual, units)
                self._add_ranks(
                    want.reshape(-1, want.shape[-1]), actual.reshape(-1, want.shape[-1])
                )
        want_rows, actual_rows = want.reshape(units, -1), actual.reshape(units, -1)
        for rows, columns in _pieces(*want_rows.shape):
            piece = _widen(want_rows[rows, columns]), _widen(actual_rows[rows, columns])
            self._add_piece(*piece, slice(first + rows.start, first + rows.stop), rows)

    def _add_piece(self, want: Floats, actual: Floats, where: slice, rows: slice) -> None:
        with np.errstate(all="ignore"):
            usable = np.isfinite(want) & np.isfinite(actual)
            self._faults.add(want, actual, usable, rows)
            if not usable.all():
                want, actual = np.where(usable, want, 0.0), np.where(usable, actual, 0.0)
            error = np.abs(actual - want)
            _add_to(self._squares, where, np.einsum("ij,ij->i", error, error))
            _add_to(self._wholes, where, np.einsum("ij,ij->i", want, want))
            self._product += float(np.einsum("ij,ij->", want, actual))
            self._candidate_square += float(np.einsum("ij,ij->", actual, actual))
            self._largest = max(self._largest, float(error.max()))
            for tally in self._tallies.values():
                tally.add(want, actual, error)
            self._largest_ulp = max(
                self._largest_ulp, float((error / ulp(want, self._format)).max())
            )

    def _add_ranks(self, want: Array, actual: Array) -> None:
        rows, length = want.shape
        # Batches may differ in length: the smallest one decides whether top-k is reported.
        self._axis = length if self._axis is None else min(self._axis, length)
        step = max(1, _PIECE // length)
        self._rows += rows
        for start in range(0, rows, step):
            block, other = _widen(want[start : start + step]), _widen(actual[start : start + step])
            self._top1 += int(np.count_nonzero(_agree(block, other, 1)))
            if length > _K:
                self._topk += int(np.count_nonzero(_agree(block, other, _K)))


def is_float(values: Array) -> bool:
    """Whether an array holds floats, ml_dtypes and complex numbers included."""
    return values.dtype.kind in "fc" or values.dtype.name.startswith(("bfloat", "float"))


def is_complex(values: Array) -> bool:
    return values.dtype.kind == "c"


def is_number(values: Array) -> bool:
    """Whether an array holds numbers or booleans."""
    return values.dtype.kind in "biufc" or values.dtype.name.startswith(
        ("bfloat", "float", "int", "uint")
    )


def ulp(values: Floats, fmt: Format) -> Floats:
    """The distance of adjacent numbers of a format at the magnitude of the values; for subnormals,
    the smallest one.
    """
    exponents = np.frexp(np.maximum(np.abs(values), fmt.smallest_normal))[1] - 1
    gaps: Floats = np.ldexp(fmt.eps, exponents)
    return gaps


def _agree(want: Floats, actual: Floats, k: int) -> npt.NDArray[np.bool_]:
    """Rows whose k largest elements are at the reference's positions. Elements that tie in the
    reference are interchangeable.
    """
    if k == 1:
        chosen = np.take_along_axis(want, actual.argmax(axis=1)[:, None], axis=1)
        least = want.max(axis=1)
    else:
        length = want.shape[1]
        chosen = np.take_along_axis(
            want, np.argpartition(actual, length - k, axis=1)[:, length - k :], axis=1
        )
        least = np.partition(want, length - k, axis=1)[:, length - k]
    lowest = chosen.min(axis=1)
    agrees: npt.NDArray[np.bool_] = (lowest >= least) | (np.isnan(lowest) & np.isnan(least))
    return agrees


def _widen(values: Array) -> Floats:
    return values.astype(np.float64)


def _add_to(sums: "array[float]", where: slice, added: Floats) -> None:
    values = np.frombuffer(sums)
    values[where] += added


def _units(shape: tuple[int, ...], samples: int) -> int:
    """The number of samples in a value of this shape, from a batch of `samples`."""
    if not shape or samples == 0:
        return min(shape[0], 1) if shape else 1
    return samples if shape[0] % samples == 0 else 1


def _pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Cut a table into blocks of bounded size: whole rows, or parts of one long row."""
    if columns > _PIECE:
        for row in range(rows):
            for start in range(0, columns, _PIECE):
                yield slice(row, row + 1), slice(start, min(start + _PIECE, columns))
        return
    step = max(1, _PIECE // max(columns, 1))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows)), slice(0, columns)


def _errors_by_sample(squares: Floats, wholes: Floats) -> Floats:
    """The relative L2 error of each sample; 0 for samples far smaller than the others."""
    is_noticed = wholes > NOTICED**2 * wholes.mean() if len(wholes) else np.zeros(0, bool)
    with np.errstate(all="ignore"):
        errors: Floats = np.where(is_noticed, np.sqrt(squares / wholes), 0.0)
    return errors


def _cosine(product: float, whole: float, candidate: float) -> float:
    """The cosine similarity; 1 if both are zero, 0 if one is."""
    if whole == 0.0 or candidate == 0.0:
        return 1.0 if whole == candidate else 0.0
    return max(-1.0, min(1.0, product / math.sqrt(whole) / math.sqrt(candidate)))
