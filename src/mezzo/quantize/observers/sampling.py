"""Which numbers of a large tensor a histogram takes: those far out, all of them, and of the rest evenly spaced ones.

What is taken depends on the one tensor alone, never on what was seen before: so order and merging change nothing.
Clipping is decided far out, where a sample would have few numbers or none.
"""

import math

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Range

Floats = npt.NDArray[np.float32]

# So many numbers are looked at at once: with what is made of them, they stay in a core's own cache.
AT_ONCE = 1 << 15


def split_sample(numbers: Floats, ends: Range, most: int | None) -> tuple[Floats, Floats, int]:
    """What is counted of finite numbers that lie between two ends: those that count once, those that count several
    times, and how many times.

    Numbers beyond half of the largest magnitude count once each, if they are no more than `most`; of those within it,
    about `most` are taken. All count once where there are no more.
    """
    step = sampling_step(len(numbers), most)
    if most is None or step == 1:
        return numbers, numbers[:0], 1
    cut = np.float32(ends.largest / 2)
    far, sample = _beyond(numbers, cut, ends, most), numbers[::step]
    if far is None:
        return numbers[:0], sample, step
    return far, sample[np.abs(sample) <= cut], step


def sampling_step(length: int, most: int | None) -> int:
    """Every which number of so many is taken, to take no more than `most`: 1 where there are few enough.

    Odd, and no multiple of 3, 5 or 7: tensors repeat themselves by such strides, and a sample must see all of it.
    """
    if most is None or length <= most:
        return 1
    step = -(-length // most)
    while math.gcd(step, 2 * 3 * 5 * 7) > 1:
        step += 1
    return step


def _beyond(numbers: Floats, cut: np.float32, ends: Range, most: int) -> Floats | None:
    """The numbers of a larger magnitude; None where they are more than so many."""
    found, count = [], 0
    is_far, is_low = np.empty(AT_ONCE, bool), np.empty(AT_ONCE, bool)
    for start in range(0, len(numbers), AT_ONCE):
        part = numbers[start : start + AT_ONCE]
        far, low = is_far[: len(part)], is_low[: len(part)]
        if ends.high <= cut:
            np.less(part, -cut, out=far)
        else:
            np.greater(part, cut, out=far)
            if ends.low < -cut:
                far |= np.less(part, -cut, out=low)
        found.append(part[np.flatnonzero(far)])
        count += len(found[-1])
        if count > most:
            return None
    return np.concatenate(found)
