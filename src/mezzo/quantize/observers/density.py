"""What a summary says of how numbers are spread: masses in bins on both sides of zero, without those that are zero."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid, Range, Summary

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Density:
    """Masses of bins of one width: `above` zero outwards and `below` zero outwards, each up to the last that holds any.

    Numbers that are exactly zero are in neither: every grid holds them. `extremes` have zero with them. `samples` are
    how many numbers that are not zero it is told from.
    """

    extremes: Range
    width: float
    above: Doubles
    below: Doubles
    samples: float

    @property
    def mass(self) -> float:
        """Of all bins."""
        return float(self.above.sum() + self.below.sum())

    @property
    def bins(self) -> int:
        """How many there are on the longer side."""
        return max(len(self.above), len(self.below))

    @property
    def is_one_sided(self) -> bool:
        """Whether nothing but zero was seen on one side of it."""
        return self.extremes.low == 0 or self.extremes.high == 0

    def folded(self) -> "Density":
        """The same of magnitudes."""
        longest = np.zeros(self.bins)
        longest[: len(self.above)] += self.above
        longest[: len(self.below)] += self.below
        folded = Range(0.0, self.extremes.largest)
        return Density(extremes=folded, width=self.width, above=longest, below=np.zeros(0), samples=self.samples)

    def coarser(self, most: int) -> "Density":
        """The same in at most so many bins on each side, two and two joined as often as it takes."""
        times = 1
        while -(-self.bins // times) > most:
            times *= 2
        if times == 1:
            return self
        above, below = (_joined(side, times) for side in (self.above, self.below))
        return Density(extremes=self.extremes, width=self.width * times, above=above, below=below, samples=self.samples)


def density_of(seen: Summary, grid: Grid) -> Density:
    """How numbers are spread that a grid is to hold; of magnitudes where zero is in its middle."""
    assert seen.extremes is not None, "numbers were seen"
    extremes, half = seen.extremes.with_zero(), len(seen.counts) // 2
    counts = seen.counts.astype(np.float64)
    above, below = counts[half:].copy(), counts[half::-1].copy()
    near = counts[half] - seen.zeros
    both = extremes.low < 0 < extremes.high
    above[0], below[0] = near * (0.5 if both else extremes.high > 0), near * (0.5 if both else extremes.low < 0)
    # What lies exactly where the last whole bin ends belongs to that.
    for side in (above, below):
        side[-2] += side[-1]
    total = int(seen.counts.sum())
    found = Density(
        extremes=extremes, width=seen.width, above=_trimmed(above[:-1]), below=_trimmed(below[:-1]),
        samples=seen.samples * (1 - seen.zeros / total) if total else 0.0,
    )  # fmt: skip
    return found.folded() if grid.is_symmetric and not found.is_one_sided else found


def _trimmed(side: Doubles) -> Doubles:
    used = np.flatnonzero(side)
    return side[: used[-1] + 1] if len(used) else side[:0]


def _joined(side: Doubles, times: int) -> Doubles:
    return np.add.reduceat(side, np.arange(0, len(side), times)) if len(side) else side
