"""Statistics of one tensor over batches: extremes, NaN and infinity counts, a histogram."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Range, Summary
from mezzo.quantize.observers.histogram import Floats, Histogram, Ints
from mezzo.quantize.observers.sampling import AT_ONCE, sampling_step, split_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsTally:
    """Statistics of a tensor's slices along `axis`, or of the whole tensor if None. Updated in
    place.

    `count`, `nans`, `infinities`, `lowest` and `highest` are of all elements, an entry per slice;
    `lowest` is infinite if no element was finite. The histogram has a sample of each batch.
    """

    axis: int | None
    count: Ints
    nans: Ints
    infinities: Ints
    lowest: npt.NDArray[np.float64]
    highest: npt.NDArray[np.float64]
    histogram: Histogram

    @staticmethod
    def empty(axis: int | None, slices: int, half: int) -> "StatisticsTally":
        """Statistics of no elements."""
        count, nans, infinities = np.zeros((3, slices), np.int64)
        return StatisticsTally(
            axis=axis, count=count, nans=nans, infinities=infinities,
            lowest=np.full(slices, np.inf), highest=np.full(slices, -np.inf),
            histogram=Histogram.empty(slices, half),
        )  # fmt: skip

    @property
    def slices(self) -> int:
        return len(self.count)

    def add(self, numbers: Floats, most_sampled: int | None) -> None:
        """Add a batch: flat without an axis, else [slices, n]. The histogram takes a sample of
        about `most_sampled` elements.
        """
        if not numbers.size:
            return
        rows = numbers.reshape(self.slices, -1)
        length = rows.shape[1]
        self.count[:] += length
        lowest, highest = _extremes(rows)
        are_finite = bool(np.isfinite(lowest).all() and np.isfinite(highest).all())
        if not are_finite:
            lowest, highest = self._leave_out(rows)
        # Adding +0 turns -0 into +0, so that their order does not matter.
        np.minimum(self.lowest, lowest + 0.0, out=self.lowest)
        np.maximum(self.highest, highest + 0.0, out=self.highest)
        largest = np.maximum(-lowest, highest)
        self.histogram.reach(np.where(np.isfinite(largest), largest, 0.0))
        if self.slices > 1:
            self._count_slices(rows, most_sampled, are_finite)
            return
        finite = rows[0] if are_finite else rows[0][np.isfinite(rows[0])]
        if len(finite):
            once, several, times = split_sample(
                finite, Range(float(lowest[0]), float(highest[0])), most_sampled
            )
            self.histogram.add_row(np.ascontiguousarray(once), 1)
            self.histogram.add_row(np.ascontiguousarray(several), times)

    def _leave_out(self, rows: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Count NaN and infinities; returns the extremes of the finite elements."""
        is_finite = np.isfinite(rows)
        nans = np.count_nonzero(np.isnan(rows), axis=1)
        self.nans[:] += nans
        self.infinities[:] += rows.shape[1] - np.count_nonzero(is_finite, axis=1) - nans
        lowest = rows.min(axis=1, where=is_finite, initial=np.inf)
        return lowest.astype(np.float64), rows.max(axis=1, where=is_finite, initial=-np.inf).astype(
            np.float64
        )

    def _count_slices(self, rows: Floats, most_sampled: int | None, are_finite: bool) -> None:
        step = sampling_step(
            rows.shape[1], None if most_sampled is None else -(-most_sampled // self.slices)
        )
        sample = rows[:, ::step]
        if are_finite:
            self.histogram.add_rows(sample, None, step)
        else:
            is_finite = np.isfinite(sample)
            self.histogram.add_rows(np.where(is_finite, sample, np.float32(0)), is_finite, step)

    def merge(self, other: "StatisticsTally") -> None:
        """Add another tally's statistics; that one is unchanged."""
        for own, its in (
            (self.count, other.count),
            (self.nans, other.nans),
            (self.infinities, other.infinities),
        ):
            own += its
        np.minimum(self.lowest, other.lowest, out=self.lowest)
        np.maximum(self.highest, other.highest, out=self.highest)
        self.histogram.merge(other.histogram)

    def summaries(self) -> tuple[Summary, ...]:
        """The statistics per slice."""
        return tuple(self._summary(row) for row in range(self.slices))

    def _summary(self, row: int) -> Summary:
        low, high = float(self.lowest[row]), float(self.highest[row])
        counts = self.histogram.counts[row].copy()
        counts.flags.writeable = False
        return Summary(
            count=int(self.count[row]),
            nans=int(self.nans[row]),
            infinities=int(self.infinities[row]),
            zeros=int(self.histogram.zeros[row]),
            samples=int(self.histogram.samples[row]),
            extremes=Range(low, high) if low <= high else None,
            width=math.ldexp(1.0, int(self.histogram.exponents[row])),
            counts=counts,
        )


def _extremes(rows: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The smallest and largest element of each row; NaN if one is NaN."""
    if len(rows) > 1:
        return rows.min(axis=1).astype(np.float64), rows.max(axis=1).astype(np.float64)
    # In blocks, so that both passes read from a core's own cache.
    parts = [rows[0, start : start + AT_ONCE] for start in range(0, rows.shape[1], AT_ONCE)]
    ends = np.array([(part.min(), part.max()) for part in parts], np.float64)
    return ends[:, 0].min(keepdims=True), ends[:, 1].max(keepdims=True)


def by_slice(array: npt.NDArray[Any], axis: int | None) -> Floats:
    """A tensor as FP32: [slices along the axis, all else], or flat without an axis."""
    with np.errstate(over="ignore"):  # FP64 beyond FP32 becomes infinite and is counted as such
        floats = np.asarray(array, np.float32)
    if axis is None:
        return floats.reshape(-1)
    return np.moveaxis(floats, axis, 0).reshape(floats.shape[axis], -1)
