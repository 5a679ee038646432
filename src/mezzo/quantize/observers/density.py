"""Density of a tensor's nonzero elements, from its histogram: bin masses on both sides of zero."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid, Range, Summary

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Bin masses at a common width: `above` and `below` zero, outwards, each up to the last
    nonempty bin.

    Exact zeros are excluded, as every grid represents them. `extremes` include zero. `samples`:
    number of nonzero elements that the density is estimated from.
    """

    extremes: Range
    width: float
    above: Doubles
    below: Doubles
    samples: float

    @property
    def mass(self) -> float:
        """The total mass of all bins."""
        return float(self.above.sum() + self.below.sum())

    @property
    def bins(self) -> int:
        """The number of bins on the longer side."""
        return max(len(self.above), len(self.below))

    @property
    def is_one_sided(self) -> bool:
        """Whether all elements are on one side of zero."""
        return self.extremes.low == 0 or self.extremes.high == 0

    def folded(self) -> "Density":
        """The density of magnitudes."""
        longest = np.zeros(self.bins)
        longest[: len(self.above)] += self.above
        longest[: len(self.below)] += self.below
        folded = Range(0.0, self.extremes.largest)
        return Density(
            extremes=folded,
            width=self.width,
            above=longest,
            below=np.zeros(0),
            samples=self.samples,
        )

    def coarser(self, most: int) -> "Density":
        """The density with at most `most` bins on each side, merged in powers of two."""
        times = 1
        while -(-self.bins // times) > most:
            times *= 2
        if times == 1:
            return self
        above, below = (_joined(side, times) for side in (self.above, self.below))
        return Density(
            extremes=self.extremes,
            width=self.width * times,
            above=above,
            below=below,
            samples=self.samples,
        )


def density_of(seen: Summary, grid: Grid) -> Density:
    """The density of elements for a grid; of magnitudes if the grid is symmetric."""
    assert seen.extremes is not None, "numbers were seen"
    extremes, half = seen.extremes.with_zero(), len(seen.counts) // 2
    counts = seen.counts.astype(np.float64)
    above, below = counts[half:].copy(), counts[half::-1].copy()
    near = counts[half] - seen.zeros
    both = extremes.low < 0 < extremes.high
    above[0], below[0] = (
        near * (0.5 if both else extremes.high > 0),
        near * (0.5 if both else extremes.low < 0),
    )
    # Elements exactly at the end of the last whole bin belong to it.
    for side in (above, below):
        side[-2] += side[-1]
    total = int(seen.counts.sum())
    density = Density(
        extremes=extremes, width=seen.width, above=_trimmed(above[:-1]), below=_trimmed(below[:-1]),
        samples=seen.samples * (1 - seen.zeros / total) if total else 0.0,
    )  # fmt: skip
    return density.folded() if grid.is_symmetric and not density.is_one_sided else density


def _trimmed(side: Doubles) -> Doubles:
    used = np.flatnonzero(side)
    return side[: used[-1] + 1] if len(used) else side[:0]


def _joined(side: Doubles, times: int) -> Doubles:
    return np.add.reduceat(side, np.arange(0, len(side), times)) if len(side) else side
