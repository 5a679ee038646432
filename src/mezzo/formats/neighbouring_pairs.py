"""Sums of neighbouring weights: how far kernels that add pairs of products in INT16 may go."""

import math

import numpy as np
import numpy.typing as npt

from mezzo.formats.rounding import Floats

Doubles = npt.NDArray[np.float64]
# Elements whose pairs are added together.
_PIECE = 1 << 22


def largest_pairs(slices: Floats) -> Doubles:
    """The largest sum of the magnitudes of two neighbours of one sign in each slice: along every
    axis, and in memory order with either end of the axes last, as kernels lay out what they sum.
    """
    size = max(math.prod(slices.shape[1:]), 1)
    step = max(_PIECE // size, 1)
    pieces = [_pairs(slices[at : at + step]) for at in range(0, len(slices), step)]
    return np.concatenate([np.zeros(0), *pieces])


def _pairs(slices: Floats) -> Doubles:
    flat = slices.reshape(len(slices), -1)
    largest = np.abs(flat).max(axis=1, initial=0.0)
    orders = [flat, np.moveaxis(slices, 1, -1).reshape(flat.shape)] if slices.ndim > 2 else [flat]
    orders += [np.moveaxis(slices, axis, -1) for axis in range(1, slices.ndim)]
    for ordered in orders:
        for part in (np.maximum(ordered, 0), np.maximum(-ordered, 0)):
            sums = part[..., 1:] + part[..., :-1]
            largest = np.maximum(largest, sums.reshape(len(slices), -1).max(axis=1, initial=0.0))
    return np.asarray(largest, np.float64)
