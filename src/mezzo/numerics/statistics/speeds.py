"""Speedup of one model over another from interleaved timings, with a confidence interval.

The interval is the wider of two. The first is over turns: those of one round run back to back, so
that machine drift affects both alike, and the sorted ratios of rounds bound their median for any
distribution (sign test: Conover, "Practical Nonparametric Statistics", 1999, 3.2). The second is
over process starts: memory layout makes a process faster or slower for its whole life, which no
number of turns reveals (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", 2013); so
models are loaded several times, and Student's interval of the starts' medians covers that.

If several models are compared with one reference, each gets a smaller share of the error
probability (Bonferroni), so that any false difference is as rare as with one model.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from mezzo.numerics.measures import Interval
from mezzo.numerics.statistics.intervals import CONFIDENCE
from mezzo.numerics.statistics.student import student_quantile

# Nanoseconds per call, by start and round.
Turns = Sequence[Sequence[float]]


class Difference(enum.Enum):
    """Whether a model is faster or slower than the reference, at the confidence of the data."""

    FASTER = "faster"
    SLOWER = "slower"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Times of one model in ns: median, minimum and quartiles."""

    median_ns: float
    least_ns: float
    low_ns: float
    high_ns: float

    @property
    def share(self) -> float:
        """The interquartile range as a fraction of the median."""
        return (self.high_ns - self.low_ns) / self.median_ns if self.median_ns else 0.0


def spread_of(turns: Turns) -> Spread:
    """The median, minimum and quartiles of a model's times."""
    times = np.array([time_ns for start in turns for time_ns in start], np.float64)
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return Spread(
        median_ns=float(middle), least_ns=float(times.min()), low_ns=float(low), high_ns=float(high)
    )


def speed(reference: Turns, model: Turns, comparisons: int = 1) -> Interval:
    """The speedup of a model over the reference, from paired rounds: 2 means half the time.

    `comparisons`: number of models compared with the reference; all intervals hold jointly at the
    confidence. Too few rounds bound nothing: the interval is 0 to infinity.
    """
    ratios = [
        [math.log(theirs / ours) for theirs, ours in zip(*pair, strict=True)]
        for pair in zip(reference, model, strict=True)
    ]
    error = (1 - CONFIDENCE) / max(1, comparisons)
    every = sorted(ratio for start in ratios for ratio in start)
    low, high = _of_turns(every, error)
    if len(ratios) > 1:
        least, most = _of_starts([median(start) for start in ratios], error)
        low, high = min(low, least), max(high, most)
    return Interval(math.exp(median(every)), _exp(low), _exp(high), CONFIDENCE)


def judge_speed(found: Interval) -> Difference:
    """The difference that a speedup's interval shows: it has to lie on one side of 1."""
    if found.low > 1.0:
        return Difference.FASTER
    return Difference.SLOWER if found.high < 1.0 else Difference.UNKNOWN


def _of_turns(ordered: Sequence[float], error: float) -> tuple[float, float]:
    """The sign test's bounds of the median of sorted ratios at this error probability."""
    count, left_out, tail = len(ordered), 0, 0.5 ** len(ordered)
    term = tail
    while 2 * tail <= error and left_out < count // 2:
        left_out += 1
        term *= (count - left_out + 1) / left_out
        tail += term
    return (
        (-math.inf, math.inf)
        if left_out == 0
        else (ordered[left_out - 1], ordered[count - left_out])
    )


def _of_starts(medians: Sequence[float], error: float) -> tuple[float, float]:
    values = np.array(medians, np.float64)
    reach = (
        student_quantile(len(values) - 1, 1 - error / 2)
        * float(values.std(ddof=1))
        / math.sqrt(len(values))
    )
    return float(values.mean()) - reach, float(values.mean()) + reach


def _exp(logarithm: float) -> float:
    # The largest FP64 number is about exp(709).
    return math.exp(logarithm) if logarithm < 700 else math.inf
