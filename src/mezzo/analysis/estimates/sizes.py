"""Vectorized statistics of all values: size, worst rounding error, and overflow in the
low-precision format.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from mezzo.analysis.estimates.laws.law import FINEST
from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.estimates.site import EstimatedGraph
from mezzo.formats.dtypes import HIGH, Format

# RMS rounding error of subnormal numbers, in units of the smallest subnormal: 12 ** -0.5.
_BELOW_NORMAL = 0.29


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeColumns:
    """Columns by value id. `size`: root mean square. `finest`: the smallest relevant error, NaN if
    unknown. `worst`: upper bound on the rounding error; negative for values not in FP32.
    `vanishing`: error of numbers that underflow. `faint`: constants, also moved or cast, of which a
    quarter of the numbers underflows. `overflowing`: computed values that may exceed the range.
    """

    size: Sequence[float]
    finest: Sequence[float]
    worst: Sequence[float]
    vanishing: float
    faint: frozenset[int]
    overflowing: Sequence[int]


def measure(site: EstimatedGraph, low: Format) -> SizeColumns:
    """Compute the columns from the estimates."""
    import numpy as np

    graph, estimates = site.graph, site.estimates
    vanishing = _BELOW_NORMAL * low.smallest_subnormal
    fading = {
        value
        for value, facts in (*graph.constants.items(), *graph.wide_constants.items())
        if facts.faint is not None and vanishing > site.tolerance * facts.faint
    }
    faint = (
        [value for value, origin in enumerate(site.origin) if origin in fading] if fading else []
    )
    columns = np.fromiter(
        chain.from_iterable(estimates), np.float64, len(estimates) * len(Moments._fields)
    )
    mean, std, bottom, top, flags = columns.reshape(len(estimates), len(Moments._fields)).T
    is_lost = flags.astype(np.int64) & LOST != 0
    is_high = graph.columns.holds(HIGH)
    # Hostile numbers become infinite, as in the forward pass.
    with np.errstate(over="ignore", invalid="ignore"):
        size = np.sqrt(mean * mean + std * std)
        worst = low.eps / 2 * np.maximum(top, -bottom) + vanishing
    worst[faint] = np.inf
    worst[~is_high] = -np.inf
    overflows = ((top >= low.overflow_from) | (bottom <= -low.overflow_from)) & ~is_lost & is_high
    overflows[list(graph.constants)] = False
    return SizeColumns(
        size=size.tolist(),
        finest=np.where(is_lost, np.nan, FINEST * size).tolist(),
        worst=worst.tolist(),
        vanishing=vanishing,
        faint=frozenset(faint),
        overflowing=np.flatnonzero(overflows).tolist(),
    )
