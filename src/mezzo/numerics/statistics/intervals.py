"""Confidence intervals over samples: bootstrap with a fixed seed, Student's t, Wilson.

With two samples or more: the wider of the percentile bootstrap, expanded for few samples
(Hesterberg, "What Teachers Should Know About the Bootstrap", 2015), and Student's t on the
linearised estimate, as a bootstrap of two samples never leaves the interval between them. One
sample has no measurable spread, and an infinite interval would make every verdict useless: its
interval is a factor `LONE_FACTOR` around the estimate, by convention.
"""

import math
from collections.abc import Sequence
from functools import cache, lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from mezzo.numerics.measures import Interval
from mezzo.numerics.statistics.student import student_quantile

CONFIDENCE = 0.95
# Assumed ratio of one sample's error to the error of all: samples of a trained network are similar.
LONE_FACTOR = 3.0
_RESAMPLES = 1000
# More samples than this are summed in that many groups first, which bounds memory and time.
_MOST_UNITS = 2048
_SEED = 20240229
_LOG_MAX = 700.0  # logarithm of about the largest FP64 number

Floats = npt.NDArray[np.float64]


def root_ratio(squares: Sequence[float] | Floats, wholes: Sequence[float] | Floats) -> Interval:
    """The interval of sqrt(sum(squares) / sum(wholes)); infinite if `wholes` are zero."""
    above, below = np.asarray(squares, np.float64), np.asarray(wholes, np.float64)
    estimate = _root(float(above.sum()), float(below.sum()))
    if estimate == 0.0 or not math.isfinite(estimate):
        return Interval(estimate, estimate, estimate, CONFIDENCE)
    if len(above) < 2:
        return lone(estimate)
    tops, bottoms = _resample(above, below)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = np.sqrt(np.where(tops == 0, 0.0, tops / bottoms))
    # The logarithm of a root is half the logarithm: its deviation is half that of the ratio of
    # sums.
    reach = math.exp(min(_LOG_MAX, _student(above - estimate**2 * below) / float(above.sum()) / 2))
    low, high = _percentiles(drawn, len(above))
    return Interval(estimate, min(low, estimate / reach), max(high, estimate * reach), CONFIDENCE)


def lone(estimate: float) -> Interval:
    """The interval of an error measured on one sample, or on identical samples."""
    return Interval(estimate, estimate / LONE_FACTOR, estimate * LONE_FACTOR, CONFIDENCE)


def weighted_mean(values: Sequence[float] | Floats, weights: Sequence[float] | Floats) -> Interval:
    """The interval of a mean of values that each count as `weights` samples."""
    value, weight = np.asarray(values, np.float64), np.asarray(weights, np.float64)
    total = float(weight.sum())
    estimate = float((value * weight).sum()) / total if total else 0.0
    if len(value) < 2:
        reach = (LONE_FACTOR - 1) * abs(estimate)
        return Interval(estimate, estimate - reach, estimate + reach, CONFIDENCE)
    tops, bottoms = _resample(value * weight, weight)
    low, high = _percentiles(tops / np.maximum(bottoms, np.finfo(np.float64).tiny), len(value))
    reach = _student((value - estimate) * weight) / total if total else 0.0
    return Interval(estimate, min(low, estimate - reach), max(high, estimate + reach), CONFIDENCE)


def wilson(successes: int, trials: int) -> Interval:
    """The Wilson score interval of a proportion (Wilson, 1927). Without trials: 0 to 1."""
    if trials == 0:
        return Interval(1.0, 0.0, 1.0, CONFIDENCE)
    z, share = NormalDist().inv_cdf((1 + CONFIDENCE) / 2), successes / trials
    scale = 1 + z * z / trials
    middle = (share + z * z / (2 * trials)) / scale
    reach = z / scale * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    low = 0.0 if successes == 0 else max(0.0, middle - reach)
    high = 1.0 if successes == trials else min(1.0, middle + reach)
    return Interval(share, low, high, CONFIDENCE)


def next_factor(factors: Sequence[float]) -> tuple[float, float]:
    """Prediction interval of one more factor like these: Student's, on their logarithms. For fewer
    than three factors: 0 to infinity.
    """
    count = len(factors)
    if count < 3:
        return 0.0, math.inf
    logs = np.log(np.asarray(factors, np.float64))
    reach = (
        student_quantile(count - 1, (1 + CONFIDENCE) / 2)
        * float(logs.std(ddof=1))
        * math.sqrt(1 + 1 / count)
    )
    middle = float(logs.mean())
    return math.exp(max(-_LOG_MAX, middle - reach)), math.exp(min(_LOG_MAX, middle + reach))


def _root(above: float, below: float) -> float:
    if above == 0.0:
        return 0.0
    return math.sqrt(above / below) if below > 0.0 else math.inf


def _resample(above: Floats, below: Floats) -> tuple[Floats, Floats]:
    """Sums over samples drawn with replacement, the same draws for both arrays."""
    if len(above) > _MOST_UNITS:
        # Strided, so that groups are of nearly equal size and each covers the whole data.
        starts = range(_MOST_UNITS)
        above = np.array([above[start::_MOST_UNITS].sum() for start in starts])
        below = np.array([below[start::_MOST_UNITS].sum() for start in starts])
    times = _draws(len(above))
    return times @ above, times @ below


@lru_cache(maxsize=1)  # many values are measured on the same samples
def _draws(count: int) -> Floats:
    """How often each sample is drawn, [resamples, count]."""
    drawn = np.random.default_rng(_SEED).multinomial(
        count, np.full(count, 1 / count), size=_RESAMPLES
    )
    return drawn.astype(np.float64)


def _percentiles(drawn: Floats, samples: int) -> tuple[float, float]:
    tail = _tail(min(samples, _MOST_UNITS))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def _student(residuals: Floats) -> float:
    """Half the width of Student's interval of a sum, from its terms' residuals."""
    return _wide(len(residuals)) * math.sqrt(float(np.einsum("i,i->", residuals, residuals)))


def _tail(samples: int) -> float:
    """The fraction of resamples to cut off at each end, smaller for few samples."""
    return NormalDist().cdf(-_wide(samples))


@cache
def _wide(samples: int) -> float:
    """Student's quantile, corrected for the biased deviation of few samples."""
    return math.sqrt(samples / (samples - 1)) * student_quantile(samples - 1, (1 + CONFIDENCE) / 2)
