"""MSE: the range with the least squared error, of what is rounded and of what is clipped, over all that was seen.

Where numbers lie on both sides of zero and the grid has no middle, both ends are found in turns, each with the other
held, from the ends that are best if both are drawn in alike.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.quantize.arithmetic.squares import squared_errors
from mezzo.quantize.observers.density import Doubles, density_of

# Bins on each side that are looked at.
_BINS = 1024
# Parts of the largest range that are tried: first ever smaller ones, then even ones around the best.
_COARSE = 2.0 ** -np.linspace(0, 7, 22)
_FINE = 12


class MSE(Calibrator):
    name: ClassVar[str] = "mse"
    summary: ClassVar[str] = "the range with the least squared error of rounding and clipping together"
    also: ClassVar[tuple[str, ...]] = ("l2", "mean-squared-error")

    def choose(self, seen: Summary, grid: Grid) -> Range:
        density = density_of(seen, grid).coarser(_BINS)
        most = density.extremes
        if grid.is_symmetric:
            part = _search(lambda parts: squared_errors(density, grid, -parts * most.largest, parts * most.largest))
            return Range(-part * most.largest, part * most.largest)
        both = _search(lambda parts: squared_errors(density, grid, parts * most.low, parts * most.high))
        low, high = both * most.low, both * most.high
        if not density.is_one_sided:
            high = most.high * _search(lambda parts: squared_errors(density, grid, low + 0 * parts, parts * most.high))
            low = most.low * _search(lambda parts: squared_errors(density, grid, parts * most.low, high + 0 * parts))
        return Range(low, high)


def _search(errors: Callable[[Doubles], Doubles]) -> float:
    """The part of the largest range with the least error; of several, the largest."""
    coarse = errors(_COARSE)
    best = int(np.argmin(coarse))
    ends = _COARSE[max(best - 1, 0)], _COARSE[min(best + 1, len(_COARSE) - 1)]
    fine = np.linspace(*ends, _FINE + 2)[1:-1]
    tried, found = np.append(_COARSE[best], fine), np.append(coarse[best], errors(fine))
    return float(tried[found == found.min()].max())
