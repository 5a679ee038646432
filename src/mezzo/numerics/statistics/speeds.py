"""How much faster one model runs than another, from times taken in turns, and whether that is more than noise.

Two intervals of the ratio of their times, and the wider of both is told. One is of the turns: those of a round stand
beside each other, so what drifts on the machine is in both, and the order of the rounds' ratios bounds their median
whatever their distribution (the sign test's interval: Conover, "Practical Nonparametric Statistics", 1999, 3.2). The
other is of the starts: where a process lies in memory makes it faster or slower for as long as it lives, which turns do
not show, however many (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", 2013); so models are loaded
anew several times, and Student's interval of the starts' medians covers that.

Of several models beside one reference each gets a smaller share of the error (Bonferroni): that any of them is told
apart wrongly happens as rarely as with one.
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

# By start, by round: ns per call.
Turns = Sequence[Sequence[float]]


class Difference(enum.Enum):
    """How a model runs beside the reference, as far as the data tells."""

    FASTER = "faster"
    SLOWER = "slower"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Times of one model in ns: the middle, the least, and between what the middle half lies."""

    median_ns: float
    least_ns: float
    low_ns: float
    high_ns: float

    @property
    def share(self) -> float:
        """How wide the middle half is, as a share of the median."""
        return (self.high_ns - self.low_ns) / self.median_ns if self.median_ns else 0.0


def spread_of(turns: Turns) -> Spread:
    """What the times of a model come to."""
    times = np.array([time_ns for start in turns for time_ns in start], np.float64)
    low, middle, high = np.quantile(times, [0.25, 0.5, 0.75])
    return Spread(median_ns=float(middle), least_ns=float(times.min()), low_ns=float(low), high_ns=float(high))


def speed(reference: Turns, model: Turns, comparisons: int = 1) -> Interval:
    """How many times as fast a model is as the reference, rounds beside rounds: 2 takes half the time.

    `comparisons`: with how many models the reference is compared; all intervals hold at once with the confidence told.
    Too few rounds bound nothing: then the interval is 0 to infinity.
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
    """What an interval of a speed says. A whole interval on one side of 1 is a difference."""
    if found.low > 1.0:
        return Difference.FASTER
    return Difference.SLOWER if found.high < 1.0 else Difference.UNKNOWN


def _of_turns(ordered: Sequence[float], error: float) -> tuple[float, float]:
    """Between which of the ordered ratios their median is: as few as possible left out with the error allowed."""
    count, left_out, tail = len(ordered), 0, 0.5 ** len(ordered)
    term = tail
    while 2 * tail <= error and left_out < count // 2:
        left_out += 1
        term *= (count - left_out + 1) / left_out
        tail += term
    return (-math.inf, math.inf) if left_out == 0 else (ordered[left_out - 1], ordered[count - left_out])


def _of_starts(medians: Sequence[float], error: float) -> tuple[float, float]:
    values = np.array(medians, np.float64)
    reach = student_quantile(len(values) - 1, 1 - error / 2) * float(values.std(ddof=1)) / math.sqrt(len(values))
    return float(values.mean()) - reach, float(values.mean()) + reach


def _exp(logarithm: float) -> float:
    return math.exp(logarithm) if logarithm < 700 else math.inf  # what an FP64 holds
