"""Squared error of quantizing a tensor, by rounding and clipping, estimated from its histogram."""

import numpy as np

from mezzo.contracts.calibrator import Grid
from mezzo.quantize.arithmetic.floats import squared_error_to
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
