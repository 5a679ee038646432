"""Regression outputs: few numbers per sample that are each meaningful alone, such as ratings, box
coordinates, quantities.

A rating of 2.7, where ratings lie between 2 and 3, with an error of 1 % of its size has an error of
10 % of what separates ratings. So the error of each number of a sample is relative to its variation
between samples: the mean absolute deviation over all data.
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

# A sample of more numbers than ratings, boxes and landmarks have holds features or pixels.
_MOST_NUMBERS = 16
# Limit on stored numbers of an output: more add no information.
_KEPT = 1 << 16
# Tolerance of FP64 for a whole number of elements.
_EXACTLY = 1e-6


class Regression:
    """Stores the numbers of an output and their errors, over batches."""

    def __init__(self, fmt: Format) -> None:
        self._format = fmt
        self._length: int | None = None  # per sample; 0: too many numbers, or a varying count
        self._values, self._errors = array("d"), array("d")

    def add(self, want: Array, found: Array, units: int) -> None:
        """Add a batch of `units` samples: two float arrays [N, ...], N a multiple of `units`."""
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
        """Whether too many numbers have an error above the budget relative to their variation,
        FP32's noise excepted. At least one number may always exceed it.
        """
        if not self._length or len(self._values) < FEWEST_SAMPLES * self._length:
            return Changed()
        values, errors = (
            np.frombuffer(side).reshape(-1, self._length) for side in (self._values, self._errors)
        )
        varies = np.abs(values - values.mean(0)).mean(0)
        of_noise = NOISES * noise * np.sqrt(np.square(values).mean())
        is_off = (errors > np.maximum(budget * varies, of_noise)) & (varies > 0.0)
        share, off, count = kept_share(self._format), int(np.count_nonzero(is_off)), is_off.size
        if off <= math.ceil(count - share * count - _EXACTLY):
            return Changed()
        limit = f"more than {budget:.3g} of what they vary"
        return Changed(
            doubt=(
                f"{off} of {count} numbers are off by {limit}, and {100 * share:g} % have to stay"
                " within"
            )
        )
