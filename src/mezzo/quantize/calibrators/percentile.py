"""Percentile calibration: a given share of elements is covered, and the rest is clipped.

On a symmetric grid, and for one-sided data, the largest magnitudes are clipped; otherwise half of
the rest at each end.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.quantize.observers.density import Density, Doubles, density_of


@dataclass(frozen=True, slots=True)
class Percentile(Calibrator):
    name: ClassVar[str] = "percentile"
    summary: ClassVar[str] = (
        "a share of all numbers, 99.99 percent unless set otherwise; the rest is clipped"
    )
    also: ClassVar[tuple[str, ...]] = ("quantile",)

    percent: float = 99.99

    def choose(self, seen: Summary, grid: Grid) -> Range:
        density = density_of(seen, grid)
        cut = (1 - self.percent / 100) * (density.mass + seen.zeros)
        if density.is_one_sided and grid.is_symmetric:
            return _mirrored(density, cut)
        if not density.is_one_sided:
            cut /= 2
        extremes = density.extremes
        return Range(
            -_last_within(density.below, density.width, -extremes.low, cut),
            _last_within(density.above, density.width, extremes.high, cut),
        )

    def setting(self, text: str) -> "Percentile":
        try:
            percent = float(text)
        except ValueError:
            percent = math.nan
        if not 50 <= percent <= 100:
            raise InputError(
                f"calibrator {self.name!r}: {text!r} is no share to cover; write a percentage from"
                f" 50 to 100, such as {self.name}=99.99"
            )
        return Percentile(percent)


def _mirrored(density: Density, cut: float) -> Range:
    """A symmetric range for one-sided data, clipped by its magnitudes."""
    side = density.above if density.extremes.high > 0 else density.below
    largest = _last_within(side, density.width, density.extremes.largest, cut)
    return Range(-largest, largest)


def _last_within(side: Doubles, width: float, largest: float, cut: float) -> float:
    """The magnitude beyond which `cut` of a side's mass lies, with bins as uniform."""
    if not len(side) or cut <= 0:
        return largest
    beyond = np.cumsum(side[::-1])[::-1]  # mass from the start of each bin on
    # The last bin with at least `cut` from its start on.
    at = int(np.searchsorted(-beyond, -cut, side="right")) - 1
    if at < 0:
        return 0.0
    start, end = at * width, min((at + 1) * width, largest)
    return end - float((cut - (beyond[at] - side[at])) / side[at]) * (end - start)
