"""Entropy: the range whose integers tell most of how the numbers are spread.

For each threshold, what lies beyond it is clipped into the last bins, the bins are joined into as many groups as there
are integers, each group is spread evenly over those of its bins that hold any, and the divergence (Kullback, Leibler)
of what comes out from what went in is taken; the threshold of the least wins. A bin that one of them has and the other
has not counts as 1e-4; a threshold below all numbers is never taken.

Where many numbers are alike, as of an even background, of padding or of repeated tokens, or lie in a peak narrower than
a step, the divergence falls with every threshold that tells those apart, at whatever price beyond it, or it is much the
same for all and its least is chance. So only thresholds are weighed whose squared error, of rounding and of clipping,
is no more than that of covering all; and of those whose divergence is above the least by no more than a twentieth of
it, or than chance makes of so many numbers, that of the least squared error wins.

Groups may end inside a bin, whose numbers count as evenly spread: so each threshold gets the integers that it has, and
all thresholds are tried in one go, from sums up to each bin. Numbers that are exactly zero are left out: every grid
holds them, and the half of zeros that a Relu leaves would drown all else.

Source: MXNet 1.x, `_get_optimal_threshold`; Migacz, "8-bit inference with TensorRT", GTC 2017.
"""

import math
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.quantize.arithmetic.squares import squared_errors
from mezzo.quantize.observers.density import Density, Doubles, density_of

Bins = npt.NDArray[np.int64]

_EPS = 1e-4
_MOST_TRIED = 192
# Bins on each side from which squared errors are told.
_JUDGED_BINS = 1024
# Divergences are alike of which one is above another by no more than this part.
_NEAR = 1 / 20
# Of so few numbers per bin, divergences would be those of chance: bins are joined, but not below so many.
_PER_BIN, _FEWEST_BINS = 8, 1024


class Entropy(Calibrator):
    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = "the range whose integers tell most of how the numbers are spread; the rest is clipped"
    also: ClassVar[tuple[str, ...]] = ("kl", "kl-divergence")
    needs_even: ClassVar[bool] = True

    def choose(self, seen: Summary, grid: Grid) -> Range:
        density = density_of(seen, grid)
        density = density.coarser(max(_FEWEST_BINS, int(density.samples / _PER_BIN)))
        groups = grid.steps // 2 if grid.is_symmetric else grid.steps
        tried = _thresholds(density, groups)
        if not len(tried):
            return Range(-density.extremes.largest, density.extremes.largest)
        errors = _errors(density, grid, tried)
        is_weighed = errors <= errors[0]  # which covers all
        tried, errors = tried[is_weighed], errors[is_weighed]
        told = divergences(density, tried, groups)
        is_near = told <= told.min() + max(_NEAR * abs(told.min()), _chance(density))
        chosen = int(np.argmin(np.where(is_near, errors, np.inf)))
        threshold = float(_magnitudes(density, tried)[chosen])
        return Range(-threshold, threshold)


def _chance(density: Density) -> float:
    """Twice by how much chance scatters a divergence: half of chi-squared of the bins over the numbers."""
    used = np.count_nonzero(density.above) + np.count_nonzero(density.below)
    return math.sqrt(2 * used) / density.samples


def _thresholds(density: Density, groups: int) -> Bins:
    """Thresholds to try, in bins: those that leave each group a bin at least, all numbers among them."""
    fewest = groups if density.is_one_sided else -(-groups // 2)
    if density.bins <= fewest:
        return np.zeros(0, np.int64)
    step = -(-(density.bins - fewest) // _MOST_TRIED)
    return np.arange(density.bins, fewest - 1, -step)


def _magnitudes(density: Density, thresholds: Bins) -> Doubles:
    """Where thresholds in bins lie; that of all bins is the largest magnitude."""
    return np.where(thresholds >= density.bins, density.extremes.largest, thresholds * density.width)


def _errors(density: Density, grid: Grid, thresholds: Bins) -> Doubles:
    """The squared error of a grid that ends at each threshold."""
    ends, most = _magnitudes(density, thresholds), grid.covered(density.extremes)
    lows, highs = np.maximum(-ends, most.low), np.minimum(ends, most.high)
    return squared_errors(density.coarser(_JUDGED_BINS), grid, lows, highs)


def divergences(density: Density, thresholds: Bins, groups: int) -> Doubles:
    """The divergence for each threshold, in bins from zero; infinite where nothing lies within it."""
    masses = np.concatenate([density.below[::-1], density.above])
    zero = len(density.below)
    first, last = np.maximum(zero - thresholds, 0), np.minimum(zero + thresholds, len(masses))  # bins first to last - 1
    within = _up_to(masses)
    left, right = within[first], within[-1] - within[last]
    used = (masses > 0).astype(np.float64)
    edges = first[:, None] + (last - first)[:, None] * np.linspace(0, 1, groups + 1)
    held = np.diff(_sum_to(edges, masses), axis=1)
    spread = np.diff(_sum_to(edges, used), axis=1)
    # What is clipped fills the last bin, also where that was empty.
    spread[:, 0] += (left > 0) & (masses[first] == 0)
    spread[:, -1] += (right > 0) & (masses[last - 1] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        even = np.log(np.maximum(held / np.maximum(spread, _EPS), _EPS))
    told = (held * even).sum(axis=1) + left * even[:, 0] + right * even[:, -1]
    own = _up_to(_times_log(masses))
    whole = own[last] - own[first]
    whole += _times_log(masses[first] + left) - _times_log(masses[first])
    whole += _times_log(masses[last - 1] + right) - _times_log(masses[last - 1])
    total, inside = within[-1], held.sum(axis=1)
    by_chance = np.maximum(spread - 1, 0).sum(axis=1) / (2 * density.samples)
    with np.errstate(divide="ignore"):
        found = (whole - told) / total - np.log(total) + np.log(inside) - by_chance
        return np.where(inside > 0, found, np.inf)


def _up_to(masses: Doubles) -> Doubles:
    """Sums of all before each bin, and of all."""
    return np.concatenate([[0.0], np.cumsum(masses)])


def _sum_to(places: Doubles, masses: Doubles) -> Doubles:
    """Sums up to places between bins' starts, the bins being spread evenly."""
    bins = np.minimum(places.astype(np.int64), len(masses) - 1)
    found: Doubles = _up_to(masses)[bins] + (places - bins) * masses[bins]
    return found


def _times_log(masses: Doubles) -> Doubles:
    return masses * np.log(np.where(masses > 0, masses, 1.0))
