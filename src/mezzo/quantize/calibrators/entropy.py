"""Entropy calibration: the clipping threshold with the least Kullback-Leibler divergence after
quantization.

For each threshold, elements beyond it are clipped into the last bins, bins are merged into as many
groups as there are integers, each group is spread evenly over its nonempty bins, and the divergence
of the result from the original is computed. A bin that is empty on one side alone counts as 1e-4; a
threshold below all elements is never chosen.

If many elements are equal (an even background, padding, repeated tokens), or in a peak narrower
than a step, the divergence rewards separating them at any cost in clipping, or hardly depends on
the threshold. So only thresholds whose squared error, rounding and clipping together, is at most
that of no clipping are candidates; and of those whose divergence is within a twentieth of the
least, or within its statistical noise, the one with the least squared error wins.

Groups may end inside a bin, which counts as uniform: so each threshold has exactly the available
integers, and all are evaluated at once by cumulative sums. Exact zeros are excluded: every grid
represents them, and the half of zeros after a Relu would dominate.

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

# Count of a bin that is empty on one side alone; limit on candidate thresholds.
_EPS = 1e-4
_MOST_TRIED = 192
# Bins on each side for squared errors.
_JUDGED_BINS = 1024
# Divergences within this fraction of the least count as equal.
_NEAR = 1 / 20
# With fewer elements per bin, divergences are statistical noise: bins are merged, but not below the
# minimum.
_PER_BIN, _FEWEST_BINS = 8, 1024


class Entropy(Calibrator):
    name: ClassVar[str] = "entropy"
    summary: ClassVar[str] = (
        "the range whose integers tell most of how the numbers are spread; the rest is clipped"
    )
    also: ClassVar[tuple[str, ...]] = ("kl", "kl-divergence")
    needs_even: ClassVar[bool] = True

    def choose(self, seen: Summary, grid: Grid) -> Range:
        density = density_of(seen, grid)
        density = density.coarser(max(_FEWEST_BINS, int(density.samples / _PER_BIN)))
        groups = grid.steps // 2 if grid.is_symmetric else grid.steps
        thresholds = _thresholds(density, groups)
        if not len(thresholds):
            return Range(-density.extremes.largest, density.extremes.largest)
        errors = _errors(density, grid, thresholds)
        is_weighed = errors <= errors[0]  # the first threshold clips nothing
        thresholds, errors = thresholds[is_weighed], errors[is_weighed]
        divergence = divergences(density, thresholds, groups)
        is_near = divergence <= divergence.min() + max(
            _NEAR * abs(divergence.min()), _chance(density)
        )
        chosen = int(np.argmin(np.where(is_near, errors, np.inf)))
        threshold = float(_magnitudes(density, thresholds)[chosen])
        return Range(-threshold, threshold)


def _chance(density: Density) -> float:
    """Twice a divergence's standard deviation: half of chi-squared, per element."""
    used = np.count_nonzero(density.above) + np.count_nonzero(density.below)
    return math.sqrt(2 * used) / density.samples


def _thresholds(density: Density, groups: int) -> Bins:
    """Candidate thresholds, in bins: from all bins down to one bin per group."""
    fewest = groups if density.is_one_sided else -(-groups // 2)
    if density.bins <= fewest:
        return np.zeros(0, np.int64)
    step = -(-(density.bins - fewest) // _MOST_TRIED)
    return np.arange(density.bins, fewest - 1, -step)


def _magnitudes(density: Density, thresholds: Bins) -> Doubles:
    """The magnitudes of thresholds in bins; for all bins, the largest magnitude."""
    return np.where(
        thresholds >= density.bins, density.extremes.largest, thresholds * density.width
    )


def _errors(density: Density, grid: Grid, thresholds: Bins) -> Doubles:
    """The squared error of a grid that ends at each threshold."""
    ends, most = _magnitudes(density, thresholds), grid.covered(density.extremes)
    lows, highs = np.maximum(-ends, most.low), np.minimum(ends, most.high)
    return squared_errors(density.coarser(_JUDGED_BINS), grid, lows, highs)


def divergences(density: Density, thresholds: Bins, groups: int) -> Doubles:
    """The divergence of each threshold, in bins from zero; infinite if no element is within it."""
    masses = np.concatenate([density.below[::-1], density.above])
    zero = len(density.below)
    # Bins first to last - 1.
    first, last = (
        np.maximum(zero - thresholds, 0),
        np.minimum(zero + thresholds, len(masses)),
    )
    within = _up_to(masses)
    left, right = within[first], within[-1] - within[last]
    used = (masses > 0).astype(np.float64)
    edges = first[:, None] + (last - first)[:, None] * np.linspace(0, 1, groups + 1)
    group_masses = np.diff(_sum_to(edges, masses), axis=1)
    spread = np.diff(_sum_to(edges, used), axis=1)
    # Clipped elements fill the last bin, even if it was empty.
    spread[:, 0] += (left > 0) & (masses[first] == 0)
    spread[:, -1] += (right > 0) & (masses[last - 1] == 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        even = np.log(np.maximum(group_masses / np.maximum(spread, _EPS), _EPS))
    cross_terms = (group_masses * even).sum(axis=1) + left * even[:, 0] + right * even[:, -1]
    own = _up_to(_times_log(masses))
    whole = own[last] - own[first]
    whole += _times_log(masses[first] + left) - _times_log(masses[first])
    whole += _times_log(masses[last - 1] + right) - _times_log(masses[last - 1])
    total, inside = within[-1], group_masses.sum(axis=1)
    by_chance = np.maximum(spread - 1, 0).sum(axis=1) / (2 * density.samples)
    with np.errstate(divide="ignore"):
        divergence = (whole - cross_terms) / total - np.log(total) + np.log(inside) - by_chance
        return np.where(inside > 0, divergence, np.inf)


def _up_to(masses: Doubles) -> Doubles:
    """Cumulative sums before each bin, and of all."""
    return np.concatenate([[0.0], np.cumsum(masses)])


def _sum_to(places: Doubles, masses: Doubles) -> Doubles:
    """Cumulative sums up to fractional positions, with bins as uniform."""
    bins = np.minimum(places.astype(np.int64), len(masses) - 1)
    sums: Doubles = _up_to(masses)[bins] + (places - bins) * masses[bins]
    return sums


def _times_log(masses: Doubles) -> Doubles:
    return masses * np.log(np.where(masses > 0, masses, 1.0))
