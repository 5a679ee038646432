"""Histogram in constant memory: an element beyond the last bin makes all bins merge in pairs.

Bin widths are powers of two, and edges are multiples of the width, counted from zero outwards. So
merged bins equal those of counting with the wider width, and merged partial histograms equal one
histogram bit for bit, in any order. Multiplying FP32 by a power of two is exact, except for numbers
that fall into the middle bin anyway.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.quantize.observers.sampling import AT_ONCE

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

# The narrowest bins: the inverse of their width is an FP32 number.
_LEAST = -126


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Counts for several slices of a tensor, updated in place.

    `exponents` [slices]: bins are 2 ** exponent wide. `counts` [slices, 2 * half + 1]; `half` is a
    power of two. `zeros` [slices]: exact zeros, part of the middle bins; `samples` [slices]:
    elements counted, before weighting.
    """

    half: int
    exponents: npt.NDArray[np.int32]
    counts: Ints
    zeros: Ints
    samples: Ints

    @staticmethod
    def empty(slices: int, half: int) -> "Histogram":
        """A histogram without counts."""
        assert half & (half - 1) == 0, "bins are joined two and two"
        return Histogram(
            half=half,
            exponents=np.full(slices, _LEAST, np.int32),
            counts=np.zeros((slices, 2 * half + 1), np.int64),
            zeros=np.zeros(slices, np.int64),
            samples=np.zeros(slices, np.int64),
        )

    def reach(self, largest: npt.NDArray[np.float64]) -> None:
        """Merge bins until they cover each slice's largest magnitude."""
        exponents = exponents_for(largest, self.half)
        for row in np.flatnonzero(exponents > self.exponents):
            shift = int(exponents[row] - self.exponents[row])
            self.counts[row] = _joined(self.counts[row], self.half, shift)
            self.exponents[row] = exponents[row]

    def add_row(self, numbers: Floats, weight: int) -> None:
        """Count elements, within reach, of the only slice; each has this weight."""
        scale = np.float32(2.0 ** -int(self.exponents[0]))
        at_once = min(AT_ONCE, len(numbers))
        scaled, places, is_zero = (
            np.empty(at_once, np.float32),
            np.empty(at_once, np.int32),
            np.empty(at_once, bool),
        )
        zeros = 0
        for start in range(0, len(numbers), AT_ONCE):
            part = numbers[start : start + AT_ONCE]
            size = len(part)
            zeros += int(np.count_nonzero(np.equal(part, 0, out=is_zero[:size])))
            np.multiply(part, scale, out=scaled[:size])
            np.copyto(places[:size], scaled[:size], casting="unsafe")
            places[:size] += self.half
            counts = np.bincount(places[:size])
            self.counts[0, : len(counts)] += counts if weight == 1 else counts * weight
        self.zeros[0] += zeros * weight
        self.samples[0] += len(numbers)

    def add_rows(
        self, numbers: Floats, is_counted: npt.NDArray[np.bool_] | None, weight: int
    ) -> None:
        """Count elements [slices, n] within reach where `is_counted` is set, with this weight."""
        scales = np.ldexp(np.float32(1), -self.exponents)[:, None]
        bins = self.counts.shape[1]
        flat = self.counts.reshape(-1)
        columns = max(1, AT_ONCE // len(numbers))
        first = np.arange(len(numbers), dtype=np.intp)[:, None] * bins + self.half
        for start in range(0, numbers.shape[1], columns):
            part = numbers[:, start : start + columns]
            places = (part * scales).astype(np.int32) + first
            is_zero = part == 0
            if is_counted is not None:
                counted = is_counted[:, start : start + columns]
                places, is_zero = places[counted], is_zero & counted
            np.add.at(flat, places.reshape(-1), weight)
            self.samples[:] += (
                part.shape[1] if is_counted is None else np.count_nonzero(counted, axis=1)
            )
            self.zeros[:] += np.count_nonzero(is_zero, axis=1) * weight

    def merge(self, other: "Histogram") -> None:
        """Add another histogram's counts; that one is unchanged."""
        assert (self.half, self.counts.shape) == (
            other.half,
            other.counts.shape,
        ), "histograms are of one shape"
        for row, (own, its) in enumerate(
            zip(self.exponents.tolist(), other.exponents.tolist(), strict=True)
        ):
            exponent = max(own, its)
            counts = _joined(other.counts[row], self.half, exponent - its)
            self.counts[row] = _joined(self.counts[row], self.half, exponent - own) + counts
            self.exponents[row] = exponent
        self.zeros[:] += other.zeros
        self.samples[:] += other.samples


def exponents_for(largest: npt.NDArray[np.float64], half: int) -> npt.NDArray[np.int32]:
    """The exponent of the narrowest bins of which `half` cover a magnitude."""
    fractions, exponents = np.frexp(largest)
    exponents = exponents - (fractions == 0.5) - (half.bit_length() - 1)
    return np.where(largest > 0, np.maximum(exponents, _LEAST), _LEAST).astype(np.int32)


def _joined(counts: Ints, half: int, shift: int) -> Ints:
    """The counts in bins 2 ** shift times as wide."""
    if shift == 0:
        return counts
    joined = np.zeros_like(counts)
    shift = min(shift, half.bit_length())
    starts = np.arange(0, half + 1, 1 << shift)
    above, below = counts[half:].copy(), counts[half::-1].copy()
    below[0] = 0  # the middle bin is counted once
    joined[half : half + len(starts)] += np.add.reduceat(above, starts)
    joined[half - len(starts) + 1 : half + 1] += np.add.reduceat(below, starts)[::-1]
    return joined
