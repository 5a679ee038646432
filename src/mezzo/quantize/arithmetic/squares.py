"""Squared error of quantizing a tensor, by rounding and clipping, estimated from its histogram.
FP8's step grows with the magnitude.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from mezzo.contracts.calibrator import Grid
from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.arithmetic import STORAGE
from mezzo.quantize.observers.density import Density, Doubles


def squared_errors(density: Density, grid: Grid, lows: Doubles, highs: Doubles) -> Doubles:
    """The sum of squared errors of a grid that covers each range from a low to a high."""
    masses = np.concatenate([density.below[::-1], density.above]) / density.width
    edges = np.arange(-len(density.below), len(density.above) + 1) * density.width
    low, high = grid.span
    if not grid.is_even:
        scales = highs[:, None] / high
        return np.diff(squared_error_to(edges / scales, grid.dtype) * scales**3, axis=1) @ masses
    if grid.is_symmetric:
        steps = highs[:, None] / (high - grid.middle)
        zeros = np.full_like(steps, grid.middle - low)
    else:
        steps = (highs - lows)[:, None] / grid.steps
        zeros = np.rint(-lows[:, None] / steps)
    # Elements are uniform within a bin. The integral of the squared error from zero to x: step ** 3
    # / 12 per whole step, and a third of the cube of the remainder.
    places = np.rint(edges / steps)
    np.maximum(places, -zeros, out=places)
    np.minimum(places, grid.steps - zeros, out=places)
    left = edges - places * steps
    squares = left * left * left / 3
    places *= steps**3 / 12
    squares += places
    errors: Doubles = np.diff(squares, axis=1) @ masses
    return errors


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
