"""Sampling of large tensors for histograms: all outliers, and evenly spaced elements of the rest.

The sample depends on the one tensor alone, never on earlier ones, so that order and merging have no
effect. Clipping is decided by outliers, of which a plain sample would have few or none.
"""

import math

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Range

Floats = npt.NDArray[np.float32]

# Elements per block, so that intermediate arrays fit into a core's own cache.
AT_ONCE = 1 << 15


def split_sample(numbers: Floats, ends: Range, most: int | None) -> tuple[Floats, Floats, int]:
    """Split finite elements, whose range is `ends`, into those with weight 1, those with a larger
    weight, and that weight.

    Elements beyond half the largest magnitude have weight 1, if there are at most `most`; of the
    others about `most` are sampled. A tensor of at most `most` elements has weight 1 throughout.
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
    """The stride that samples at most `most` of `length` elements; 1 if there are few enough.

    Odd and no multiple of 3, 5 or 7: tensors often repeat with such periods, and a sample must
    cover all phases.
    """
    if most is None or length <= most:
        return 1
    step = -(-length // most)
    while math.gcd(step, 2 * 3 * 5 * 7) > 1:
        step += 1
    return step


def _beyond(numbers: Floats, cut: np.float32, ends: Range, most: int) -> Floats | None:
    """Elements with magnitude above `cut`; None if there are more than `most`."""
    parts, count = [], 0
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
        parts.append(part[np.flatnonzero(far)])
        count += len(parts[-1])
        if count > most:
            return None
    return np.concatenate(parts)
