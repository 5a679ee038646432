"""What rounding to the floats of a storage costs: steps that grow with the numbers, where integers have one for all."""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.arithmetic import STORAGE

Doubles = npt.NDArray[np.float64]


class _Cells(NamedTuple):
    """Numbers of a storage from zero on; where what is rounded to each begins; and the squared error of even numbers
    from zero to there.
    """

    numbers: Doubles
    starts: Doubles
    errors: Doubles


def squared_error_to(places: Doubles, dtype: DType) -> Doubles:
    """The squared error of numbers that lie even between zero and places, in units of the scale; below zero where the
    place is.
    """
    cells, sizes = _cells(dtype), np.abs(places)
    at = np.searchsorted(cells.starts, sizes, side="right") - 1
    found = cells.errors[at] + _cubes(sizes - cells.numbers[at]) - _cubes(cells.starts[at] - cells.numbers[at])
    return np.copysign(found, places)


@cache
def _cells(dtype: DType) -> _Cells:
    """Sources: OCP FP8 1.0, as ml_dtypes has it."""
    numbers = np.arange(128, dtype=np.uint8).view(STORAGE[dtype]).astype(np.float64)  # those without a sign
    numbers = numbers[np.isfinite(numbers)]
    starts = np.concatenate([[0.0], (numbers[:-1] + numbers[1:]) / 2])
    inside = _cubes(starts[1:] - numbers[:-1]) - _cubes(starts[:-1] - numbers[:-1])
    return _Cells(numbers, starts, np.concatenate([[0.0], np.cumsum(inside)]))


def _cubes(numbers: Doubles) -> Doubles:
    """What the square sums up to from zero on."""
    found: Doubles = numbers * numbers * numbers / 3
    return found
