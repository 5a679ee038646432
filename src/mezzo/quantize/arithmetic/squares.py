"""Squared errors of a tensor that a grid holds, of what is rounded and of what is clipped, told from its density."""

import numpy as np

from mezzo.contracts.calibrator import Grid
from mezzo.quantize.arithmetic.floats import squared_error_to
from mezzo.quantize.observers.density import Density, Doubles


def squared_errors(density: Density, grid: Grid, lows: Doubles, highs: Doubles) -> Doubles:
    """The sum of squared errors for each range from a low to a high, if a grid covers it."""
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
    # Numbers are spread evenly inside a bin. The squared error from zero to x, of even numbers: step ** 3 / 12 for each
    # whole step on the way, and a third of the cube of what is left.
    places = np.rint(edges / steps)
    np.maximum(places, -zeros, out=places)
    np.minimum(places, grid.steps - zeros, out=places)
    left = edges - places * steps
    squares = left * left * left / 3
    places *= steps**3 / 12
    squares += places
    found: Doubles = np.diff(squares, axis=1) @ masses
    return found
