"""Outputs of few numbers that are each read by itself: marks, coordinates of a box, quantities.

A mark of 2.7 where marks lie between 2 and 3 may be off by 1 % of its size and by 10 % of what tells marks apart. So
each number of a sample is weighed by how much it varies between samples: by the mean absolute deviation over all data,
which is an error's size in the same unit.
"""

import math
from array import array
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import Format
from mezzo.numerics.metrics.decisions import NOISES, Changed, kept_share
from mezzo.numerics.metrics.slices import FEWEST_SAMPLES

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

# A sample of more numbers than marks, boxes and landmarks have is of features or of places, which are read together.
_MOST_NUMBERS = 16
# Numbers that are kept of an output: more say nothing more.
_KEPT = 1 << 16
# What FP64 makes of a whole number of them.
_EXACTLY = 1e-6


class Regression:
    """Keeps the numbers of an output and their errors, over batches."""

    def __init__(self, fmt: Format) -> None:
        self._format = fmt
        self._length: int | None = None  # of a sample; 0: too many numbers, or not always as many
        self._values, self._errors = array("d"), array("d")

    def add(self, want: Array, found: Array, units: int) -> None:
        """Compare a batch of so many samples of floats: two arrays of one shape, [N, ...] with N a multiple of it."""
        length = want.size // units
        if length > _MOST_NUMBERS or self._length not in (None, length):
            length = 0
        self._length = length
        if length:
            numbers = min(want.size, (_KEPT - len(self._values)) // length * length)
            ours, theirs = (side.reshape(-1)[:numbers].astype(np.float64) for side in (want, found))
            with np.errstate(all="ignore"):
                self._values.extend(np.nan_to_num(ours, posinf=0.0, neginf=0.0).tolist())
                self._errors.extend(np.abs(theirs - ours).tolist())

    def changed(self, budget: float, noise: float) -> Changed:
        """What of the numbers is off by more than the budget allows of what they vary; FP32's noise is none of it. One
        number of the share that may be off always may.
        """
        if not self._length or len(self._values) < FEWEST_SAMPLES * self._length:
            return Changed()
        values, errors = (np.frombuffer(side).reshape(-1, self._length) for side in (self._values, self._errors))
        varies = np.abs(values - values.mean(0)).mean(0)
        of_noise = NOISES * noise * np.sqrt(np.square(values).mean())
        is_off = (errors > np.maximum(budget * varies, of_noise)) & (varies > 0.0)
        share, off, count = kept_share(self._format), int(np.count_nonzero(is_off)), is_off.size
        if off <= math.ceil(count - share * count - _EXACTLY):
            return Changed()
        limit = f"more than {budget:.3g} of what they vary"
        return Changed(doubt=f"{off} of {count} numbers are off by {limit}, and {100 * share:g} % have to stay within")
