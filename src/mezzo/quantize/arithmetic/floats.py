"""Rounding error of FP8 storage, whose step grows with the magnitude."""

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.arithmetic import STORAGE

Doubles = npt.NDArray[np.float64]


class _Cells(NamedTuple):
    """Nonnegative numbers of a storage type; the lower bounds of the intervals that round to each;
    and the integrated squared error from zero to each bound, for uniform density.
    """

    numbers: Doubles
    starts: Doubles
    errors: Doubles


def squared_error_to(places: Doubles, dtype: DType) -> Doubles:
    """The integral of the squared rounding error from zero to `places`, in units of the scale, for
    uniform density; negative for negative `places`.
    """
    cells, sizes = _cells(dtype), np.abs(places)
    at = np.searchsorted(cells.starts, sizes, side="right") - 1
    errors = (
        cells.errors[at]
        + _cubes(sizes - cells.numbers[at])
        - _cubes(cells.starts[at] - cells.numbers[at])
    )
    return np.copysign(errors, places)


@cache
def _cells(dtype: DType) -> _Cells:
    """Source: OCP FP8 1.0, as implemented by ml_dtypes."""
    # Bit patterns without the sign bit.
    numbers = np.arange(128, dtype=np.uint8).view(STORAGE[dtype]).astype(np.float64)
    numbers = numbers[np.isfinite(numbers)]
    starts = np.concatenate([[0.0], (numbers[:-1] + numbers[1:]) / 2])
    inside = _cubes(starts[1:] - numbers[:-1]) - _cubes(starts[:-1] - numbers[:-1])
    return _Cells(numbers, starts, np.concatenate([[0.0], np.cumsum(inside)]))


def _cubes(numbers: Doubles) -> Doubles:
    """The integral of x ** 2 from zero."""
    integrals: Doubles = numbers * numbers * numbers / 3
    return integrals
