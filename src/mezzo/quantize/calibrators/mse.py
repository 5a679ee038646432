"""MSE calibration: the range with the least squared error, of rounding and clipping together.

If elements are on both sides of zero and the grid is asymmetric, the two ends are optimized in
turn, starting from the best proportional shrinking of both.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.quantize.arithmetic.squares import squared_errors
from mezzo.quantize.observers.density import Doubles, density_of

# Bins on each side for squared errors.
_BINS = 1024
# Candidate fractions of the full range: a geometric grid first, then a linear one around the best.
_COARSE = 2.0 ** -np.linspace(0, 7, 22)
_FINE = 12


class MSE(Calibrator):
    name: ClassVar[str] = "mse"
    summary: ClassVar[str] = (
        "the range with the least squared error of rounding and clipping together"
    )
    also: ClassVar[tuple[str, ...]] = ("l2", "mean-squared-error")

    def choose(self, seen: Summary, grid: Grid) -> Range:
        density = density_of(seen, grid).coarser(_BINS)
        most = density.extremes
        if grid.is_symmetric:
            part = _search(
                lambda parts: squared_errors(
                    density, grid, -parts * most.largest, parts * most.largest
                )
            )
            return Range(-part * most.largest, part * most.largest)
        both = _search(
            lambda parts: squared_errors(density, grid, parts * most.low, parts * most.high)
        )
        low, high = both * most.low, both * most.high
        if not density.is_one_sided:
            high = most.high * _search(
                lambda parts: squared_errors(density, grid, low + 0 * parts, parts * most.high)
            )
            low = most.low * _search(
                lambda parts: squared_errors(density, grid, parts * most.low, high + 0 * parts)
            )
        return Range(low, high)


def _search(errors: Callable[[Doubles], Doubles]) -> float:
    """The fraction of the full range with the least error; of several, the largest."""
    coarse = errors(_COARSE)
    best = int(np.argmin(coarse))
    ends = _COARSE[max(best - 1, 0)], _COARSE[min(best + 1, len(_COARSE) - 1)]
    fine = np.linspace(*ends, _FINE + 2)[1:-1]
    fractions, losses = np.append(_COARSE[best], fine), np.append(coarse[best], errors(fine))
    return float(fractions[losses == losses.min()].max())
