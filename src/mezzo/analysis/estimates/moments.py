"""Moments of a value: mean, standard deviation, plausible range and flags.

Moments are over all elements and plausible inputs, taken as independent. `low` and `high` are
plausible ends, not bounds: four standard deviations for sampled values, or true bounds set by an
operator or a constant.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

# Flags of a value.
INTEGER = 1  # integers in any dtype
MASKED = 2  # some elements are very negative mask values, which the moments exclude
LOST = 8  # unknown: no overflow and no tolerance is derived
POSITIVE = 32  # mathematically nonnegative
UNIT = 64  # mathematically within [0, 1], and may reach both ends
TOUCHING = 128  # many elements are zero
HARD = 512  # its ends are mathematical bounds
CENTRED = 1024  # sums to zero along its last axis
RARE = 256  # reaches its low end only where an epsilon applies

# Comparisons replace min and max, which take six times as long, here and in frequent laws.
# Sampled values are assumed to stay within this many standard deviations in overflow checks.
SIGMA = 4.0
# The same for the distance from zero.
SINGULAR_SIGMA = 6.0
# Standard deviation of the error of rounding to integers.
_STEP_SPREAD = 12.0**-0.5
# A sum of many numbers of one sign stays within this factor of its mean.
_CONCENTRATED = 100.0
# Larger estimates are not credible, since the model works in FP32.
BELIEVABLE = 1e10


class Moments(NamedTuple):
    """Mean, standard deviation and plausible range of a value's elements; `flags` describe their
    kind.
    """

    mean: float
    std: float
    low: float
    high: float
    flags: int


_new: Callable[[tuple[float, float, float, float, int]], Moments] = partial(tuple.__new__, Moments)

# The estimate of an unknown value.
UNKNOWN = Moments(0.0, 1.0, -SIGMA, SIGMA, LOST)
# The estimate of a mask constant.
HIDDEN = Moments(0.0, 0.0, 0.0, 0.0, MASKED)
# The estimate of numbers that are 0 or 1.
TRUTH = Moments(0.5, 0.5, 0.0, 1.0, INTEGER | POSITIVE | UNIT | HARD)


def moments(mean: float, std: float, low: float, high: float, flags: int = 0) -> Moments:
    """Build a consistent estimate: the mean within the range, the deviation no larger than the
    range allows.
    """
    if not low <= high:  # NaN too
        return UNKNOWN
    if not low <= mean <= high:
        mean = min(max(mean, low), high) if mean == mean else (low + high) / 2
    above, below = high - mean, mean - low
    reach = below if below > above else above
    if not std <= reach:
        std = reach
    return _new((mean, std, low, high, flags))


def exactly(number: float, flags: int = 0) -> Moments:
    return _new((number, 0.0, number, number, flags))


def normal(mean: float, std: float, flags: int = 0) -> Moments:
    """The estimate of normally distributed numbers."""
    return moments(mean, std, mean - SIGMA * std, mean + SIGMA * std, flags)


def uniform(low: float, high: float, flags: int = 0) -> Moments:
    """The estimate of uniformly distributed numbers between two ends."""
    flags |= POSITIVE if low >= 0.0 else 0
    return moments((low + high) / 2, (high - low) / math.sqrt(12.0), low, high, flags)


def flagged(x: Moments, flags: int) -> Moments:
    """The same moments with other flags."""
    return _new((x.mean, x.std, x.low, x.high, flags))


def rms(x: Moments) -> float:
    """Root mean square."""
    mean, std = x.mean, x.std
    return math.sqrt(mean * mean + std * std)


def largest(x: Moments) -> float:
    """Largest plausible magnitude."""
    above, below = x.high, -x.low
    return below if below > above else above


def nearest_zero(x: Moments) -> float:
    """Smallest plausible magnitude; a hundredth of the size if the range contains zero."""
    if x.low > 0.0:
        return x.low
    if x.high < 0.0:
        return -x.high
    size = rms(x)
    far = abs(x.mean) - SINGULAR_SIGMA * x.std
    return max(far, size / _CONCENTRATED)


def crosses_zero(x: Moments) -> bool:
    """Whether both signs are plausible, so that few elements are close to zero."""
    return x.low < 0.0 < x.high


def is_singular(x: Moments) -> bool:
    """Whether x comes so close to zero, by an epsilon or a bound, that its size says nothing about
    its smallest elements.
    """
    return nearest_zero(x) * (2.0 * _CONCENTRATED) < max(abs(x.mean), 0.5 * rms(x))


def low_of_sum(mean: float, std: float, terms: float, least: float) -> float:
    """Plausible minimum of a sum of `terms` nonnegative numbers; `least` is `terms` times their
    minimum. A sum of squares has a chi-squared distribution; its quantile is Wilson and Hilferty's
    (1931).
    """
    if terms < 2 or not mean > 0.0:
        return max(least, 0.0)
    spread = std * std / (9.0 * mean * mean)
    root = 1.0 - spread - SIGMA * math.sqrt(spread)
    return max(least, mean * root**3 if root > 0.0 else 0.0, mean / _CONCENTRATED)


def scaled(x: Moments, factor: float) -> Moments:
    """Moments of x times a number."""
    mean, std, low, high, kinds = x
    start, end = low * factor, high * factor
    low, high = end if end < start else start, end if end > start else start
    flags = kinds & (MASKED | LOST | HARD | CENTRED)
    if factor >= 0.0:
        flags |= kinds & (POSITIVE | TOUCHING)
    elif kinds & HARD and low >= 0.0:
        flags |= (
            POSITIVE
            | (UNIT if high <= 1.0 + _ROUNDED else 0)
            | (TOUCHING if low <= _NEAR_BOUND else 0)
        )
    if kinds & INTEGER and abs(factor) < BELIEVABLE and factor == int(factor):
        flags |= INTEGER
    return _new((mean * factor, std * abs(factor), low, high, flags))


def shifted(x: Moments, offset: float) -> Moments:
    """Moments of x plus a number. Bounds stay bounds: one minus a probability is a probability."""
    low, high = x.low + offset, x.high + offset
    flags = x.flags & (MASKED | LOST | HARD)
    if offset == int(offset):
        flags |= x.flags & INTEGER
    if x.flags & HARD and (abs(low) <= _ROUNDED or (low > 0.0 and offset >= _bound_below(x))):
        flags |= POSITIVE
        low = max(low, 0.0)
        if high <= 1.0 + _ROUNDED and (
            offset <= 0.0 or high >= 1.0 - _ROUNDED or not x.flags & UNIT
        ):
            flags |= UNIT
        if low <= _NEAR_BOUND:
            flags |= TOUCHING
    elif x.flags & POSITIVE and offset >= 0.0:
        flags |= POSITIVE
    return moments(x.mean + offset, x.std, low, max(high, low), flags)


def cut_off(x: Moments, cut: Callable[[float], float], drift: float) -> Moments:
    """Moments of x rounded to integers by a function that shifts the mean by `drift`. The fraction
    that is cut off is uniform.
    """
    std = math.hypot(x.std, _STEP_SPREAD)
    flags = INTEGER | x.flags & POSITIVE
    return moments(x.mean + drift, std, float(cut(x.low)), float(cut(x.high)), flags)


def _bound_below(x: Moments) -> float:
    """The offset that makes bounded numbers nonnegative, a power of two: plausible ends stay short
    of bounds like 1 and 1/2.
    """
    if x.low >= 0.0 or x.flags & (UNIT | POSITIVE):
        return 0.0
    return float(2.0 ** math.ceil(math.log2(-x.low)))


# Tolerances for equality with a bound, and for elements close to a bound.
_ROUNDED, _NEAR_BOUND = 1e-12, 1e-3


def hull(parts: "list[Moments]") -> Moments:
    """Moments of the union of several values' elements."""
    if len(parts) == 1:
        return parts[0]
    believed = [x for x in parts if not x.flags & LOST]
    if not believed:
        return UNKNOWN
    mean = square = 0.0
    _, _, low, high, _ = believed[0]
    every, some = INTEGER | POSITIVE | UNIT, 0
    for x in believed:
        mean += x.mean
        square += x.mean * x.mean + x.std * x.std
        low, high = min(low, x.low), max(high, x.high)
        every &= x.flags
        some |= x.flags
    mean, square = mean / len(believed), square / len(believed)
    flags = every | some & MASKED | (LOST if len(believed) < len(parts) else 0)
    return moments(mean, math.sqrt(max(square - mean * mean, 0.0)), low, high, flags)


# Nodes and weights of Gauss-Hermite quadrature in five points, for the standard normal
# distribution.
_POINTS = (
    (-2.8569700138728056, 0.011257411327720688), (-1.3556261799742659, 0.22207592200561266),
    (0.0, 0.5333333333333333), (1.3556261799742659, 0.22207592200561266),
    (2.8569700138728056, 0.011257411327720688),
)  # fmt: skip


def sampled(f: Callable[[float], float], x: Moments, flags: int = 0) -> Moments:
    """Moments of f(x), from five quadrature points of a normal distribution and the two ends."""
    middle, std, low, high, _ = x
    mean = square = 0.0
    least, most = math.inf, -math.inf
    for point, weight in _POINTS:
        at = middle + point * std
        y = f(low if at < low else high if at > high else at)
        mean += weight * y
        square += weight * y * y
        least, most = y if y < least else least, y if y > most else most
    for y in (f(low), f(high)):
        least, most = y if y < least else least, y if y > most else most
    return moments(mean, math.sqrt(max(square - mean * mean, 0.0)), least, most, flags)


def slope(f: Callable[[float], float], x: Moments) -> float:
    """Root mean square of the derivative of f over the distribution of x."""
    middle, std, low, high, _ = x
    step = 1e-3 * max(std, 1e-3 * abs(middle), 1e-12)
    total = 0.0
    for point, weight in _POINTS:
        at = middle + point * std
        at = low if at < low else high if at > high else at
        rise = (f(at + step) - f(at - step)) / (2 * step)
        total += weight * rise * rise
    return math.sqrt(total)


def steepness_of_step(f: Callable[[float], float], x: Moments, end: float) -> float:
    """Root mean square of the derivative of a function that rises only within [-end, end], for an x
    much wider than that: five quadrature points would miss the rise or overcount it.
    """
    if x.std <= end:
        return math.inf
    step = end / _STEPS
    rise = (
        sum((f(-end + (k + 1) * step) - f(-end + k * step)) ** 2 for k in range(2 * _STEPS)) / step
    )
    nearest = min(max(x.mean, -end), end)
    density = math.exp(-0.5 * ((nearest - x.mean) / x.std) ** 2) / (
        x.std * math.sqrt(2.0 * math.pi)
    )
    return math.sqrt(rise * max(density, 0.1 / x.std))


_STEPS = 8


def share_between(x: Moments, low: float, high: float) -> float:
    """Share of a normal distribution between two ends, either of which may be infinite."""
    scale = x.std * math.sqrt(2.0)
    return 0.5 * (math.erf((high - x.mean) / scale) - math.erf((low - x.mean) / scale))
