"""All values at once: how large each is, what rounding it to the low format does at most, and which pass its range."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from mezzo.analysis.estimates.laws.law import FINEST
from mezzo.analysis.estimates.moments import LOST, Moments
from mezzo.analysis.estimates.site import Site
from mezzo.formats.dtypes import HIGH, Format

# Numbers below the smallest normal one err by this share of the smallest subnormal one, root mean square.
_BELOW_NORMAL = 0.29


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Columns by value id. `size`: the root of the mean square. `finest`: the smallest error that is asked for at all,
    NaN where nothing is known. `worst`: what rounding errs by at most; below zero for what is not stored in FP32.

    `vanishing` is the error of numbers that are lost; `faint` are constants of which a quarter of the numbers is lost,
    whatever the largest are, moved and cast, too. `overflowing` are values that are computed and may pass the range.
    """

    size: Sequence[float]
    finest: Sequence[float]
    worst: Sequence[float]
    vanishing: float
    faint: frozenset[int]
    overflowing: Sequence[int]


def measure(site: Site, low: Format) -> Sizes:
    """Work the columns out from the estimates."""
    import numpy as np

    graph, held = site.graph, site.held
    vanishing = _BELOW_NORMAL * low.smallest_subnormal
    fading = {
        value
        for value, facts in (*graph.constants.items(), *graph.wide_constants.items())
        if facts.faint is not None and vanishing > site.tolerance * facts.faint
    }
    faint = [value for value, origin in enumerate(site.origin) if origin in fading] if fading else []
    columns = np.fromiter(chain.from_iterable(held), np.float64, len(held) * len(Moments._fields))
    mean, std, bottom, top, flags = columns.reshape(len(held), len(Moments._fields)).T
    is_lost = flags.astype(np.int64) & LOST != 0
    is_high = graph.columns.holds(HIGH)
    with np.errstate(over="ignore", invalid="ignore"):  # hostile numbers, which are infinite here as in the walk
        size = np.sqrt(mean * mean + std * std)
        worst = low.eps / 2 * np.maximum(top, -bottom) + vanishing
    worst[faint] = np.inf
    worst[~is_high] = -np.inf
    overflows = ((top >= low.overflow_from) | (bottom <= -low.overflow_from)) & ~is_lost & is_high
    overflows[list(graph.constants)] = False
    return Sizes(
        size=size.tolist(),
        finest=np.where(is_lost, np.nan, FINEST * size).tolist(),
        worst=worst.tolist(),
        vanishing=vanishing,
        faint=frozenset(faint),
        overflowing=np.flatnonzero(overflows).tolist(),
    )
