"""What an estimate says of a value: where its numbers lie, how large they are, and what kind they are.

Moments are of all elements of a value over plausible inputs, taken as independent. `low` and `high` are plausible ends,
not bounds: four standard deviations of what is sampled, or the true ends where an operator or a constant sets them.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

# Flags of a value.
INTEGER = 1  # whole numbers
MASKED = 2  # some places hold a very negative mask, which the moments leave out
LOST = 8  # nothing is known: it neither overflows nor asks for anything
POSITIVE = 32  # never below 0, by its mathematics
UNIT = 64  # within 0 and 1, by its mathematics, and may reach both
TOUCHING = 128  # many of its numbers are zero
HARD = 512  # its ends are bounds, by its mathematics
CENTRED = 1024  # sums to zero along its last axis
RARE = 256  # comes as near to zero as its low end says only where a guard against zero is met

# min and max take six times as long as a comparison, which counts below and in the laws that most operators have.
# Sampled values are taken to stay within this many standard deviations when asked whether they overflow.
SIGMA = 4.0
# The same when asked how near to zero they come.
SINGULAR_SIGMA = 6.0
# Standard deviation of what rounding to whole numbers takes off.
STEP_SPREAD = 12.0**-0.5
# A sum of many numbers of one sign stays within this factor of its mean.
_CONCENTRATED = 100.0
# Numbers past this are not believed: the model works in FP32.
BELIEVABLE = 1e10


class Moments(NamedTuple):
    """Mean, standard deviation and plausible ends of the numbers a value holds; `flags` say their kind."""

    mean: float
    std: float
    low: float
    high: float
    flags: int


_new: Callable[[tuple[float, float, float, float, int]], Moments] = partial(tuple.__new__, Moments)

# What stands for a value of which nothing is known.
UNKNOWN = Moments(0.0, 1.0, -SIGMA, SIGMA, LOST)
# What stands for a mask: what it hides is hidden.
HIDDEN = Moments(0.0, 0.0, 0.0, 0.0, MASKED)


def moments(mean: float, std: float, low: float, high: float, flags: int = 0) -> Moments:
    """Build a consistent estimate: the mean within the ends, the spread no larger than they allow."""
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


def flagged(x: Moments, flags: int) -> Moments:
    """The same numbers of another kind."""
    return _new((x.mean, x.std, x.low, x.high, flags))


def rms(x: Moments) -> float:
    """Root of the mean square."""
    mean, std = x.mean, x.std
    return math.sqrt(mean * mean + std * std)


def largest(x: Moments) -> float:
    """Largest plausible magnitude."""
    above, below = x.high, -x.low
    return below if below > above else above


def nearest_zero(x: Moments) -> float:
    """Smallest plausible magnitude; of what crosses zero, a hundredth of its size."""
    if x.low > 0.0:
        return x.low
    if x.high < 0.0:
        return -x.high
    size = rms(x)
    far = abs(x.mean) - SINGULAR_SIGMA * x.std
    return max(far, size / _CONCENTRATED)


def crosses_zero(x: Moments) -> bool:
    """Whether numbers of both signs are plausible, so that hardly any lies beside zero."""
    return x.low < 0.0 < x.high


def is_singular(x: Moments) -> bool:
    """Whether x comes so near to zero, by a guard or a bound, that its size says nothing of its smallest numbers."""
    return nearest_zero(x) * (2.0 * _CONCENTRATED) < max(abs(x.mean), 0.5 * rms(x))


def low_of_sum(mean: float, std: float, terms: float, least: float) -> float:
    """How small the sum of so many numbers that are never negative plausibly is; `least` is so many times the
    smallest. A sum of squares has a chi-squared distribution; its quantile is Wilson and Hilferty's (1931).
    """
    if terms < 2 or not mean > 0.0:
        return max(least, 0.0)
    spread = std * std / (9.0 * mean * mean)
    root = 1.0 - spread - SIGMA * math.sqrt(spread)
    return max(least, mean * root**3 if root > 0.0 else 0.0, mean / _CONCENTRATED)


def scaled(x: Moments, factor: float) -> Moments:
    """x times a number."""
    mean, std, low, high, kinds = x
    one, other = low * factor, high * factor
    low, high = other if other < one else one, other if other > one else one
    flags = kinds & (MASKED | LOST | HARD | CENTRED)
    if factor >= 0.0:
        flags |= kinds & (POSITIVE | TOUCHING)
    elif kinds & HARD and low >= 0.0:
        flags |= POSITIVE | (UNIT if high <= 1.0 + _ROUNDED else 0) | (TOUCHING if low <= _NEAR_BOUND else 0)
    if kinds & INTEGER and abs(factor) < BELIEVABLE and factor == int(factor):
        flags |= INTEGER
    return _new((mean * factor, std * abs(factor), low, high, flags))


def shifted(x: Moments, offset: float) -> Moments:
    """x plus a number. Of numbers within bounds the sum is within bounds too: a probability's complement is one."""
    low, high = x.low + offset, x.high + offset
    flags = x.flags & (MASKED | LOST | HARD)
    if offset == int(offset):
        flags |= x.flags & INTEGER
    if x.flags & HARD and (abs(low) <= _ROUNDED or (low > 0.0 and offset >= _bound_below(x))):
        flags |= POSITIVE
        low = max(low, 0.0)
        if high <= 1.0 + _ROUNDED and (offset <= 0.0 or high >= 1.0 - _ROUNDED or not x.flags & UNIT):
            flags |= UNIT
        if low <= _NEAR_BOUND:
            flags |= TOUCHING
    elif x.flags & POSITIVE and offset >= 0.0:
        flags |= POSITIVE
    return moments(x.mean + offset, x.std, low, max(high, low), flags)


def _bound_below(x: Moments) -> float:
    """What makes numbers within bounds positive, if added: plausible ends stay short of bounds like 1 and 1/2."""
    if x.low >= 0.0 or x.flags & (UNIT | POSITIVE):
        return 0.0
    return float(2.0 ** math.ceil(math.log2(-x.low)))


# What FP32 makes of a bound, and how near to one a number counts as at it.
_ROUNDED, _NEAR_BOUND = 1e-12, 1e-3


def hull(parts: "list[Moments]") -> Moments:
    """What holds the numbers of all parts."""
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


# Nodes and weights of Gauss-Hermite quadrature in five points, for the standard normal distribution.
_POINTS = (
    (-2.8569700138728056, 0.011257411327720688), (-1.3556261799742659, 0.22207592200561266), (0.0, 0.5333333333333333),
    (1.3556261799742659, 0.22207592200561266), (2.8569700138728056, 0.011257411327720688),
)  # fmt: skip


def sampled(f: Callable[[float], float], x: Moments, flags: int = 0) -> Moments:
    """f(x), by five points of a normal distribution and the two ends."""
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
    """Root mean square of the derivative of f over x. A steep place counts by how often it is met."""
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
    """Root mean square of the derivative of what rises between -end and end alone, over an x far wider than that: five
    points of it would miss the rise, or count it for all that lies between them.
    """
    if x.std <= end:
        return math.inf
    step = end / _STEPS
    rise = sum((f(-end + (k + 1) * step) - f(-end + k * step)) ** 2 for k in range(2 * _STEPS)) / step
    nearest = min(max(x.mean, -end), end)
    density = math.exp(-0.5 * ((nearest - x.mean) / x.std) ** 2) / (x.std * math.sqrt(2.0 * math.pi))
    return math.sqrt(rise * max(density, 0.1 / x.std))


_STEPS = 8


def share_between(x: Moments, low: float, high: float) -> float:
    """Share of the numbers between two ends, of normal ones of this spread; either end may be infinite."""
    scale = x.std * math.sqrt(2.0)
    return 0.5 * (math.erf((high - x.mean) / scale) - math.erf((low - x.mean) / scale))
