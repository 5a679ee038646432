"""Integers and grids of blocks whose elements are on a grid already."""

import numpy as np
import numpy.typing as npt

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through
from mezzo.quantize.arithmetic.block_grid import round_in_pieces, whole_range

# Distance from an integer, in steps, of elements that count as on a grid: those of weights that
# were dequantized to FP16 or BF16 are this far off.
_NEAR = 1 / 64
# Elements of a block that are tried first: they rule out most steps.
_PROBED = 4


def recover_grids(
    blocks: Floats, storage: BlockStorage
) -> tuple[RoundedBlocks, "npt.NDArray[np.bool_]"]:
    """Round blocks of shape [blocks, elements] that are on a grid without a loss: the scale is the
    widest step of which all elements are multiples within the integers' span. Others are rounded to
    nearest. Also returns which blocks are on a grid.
    """
    result = round_in_pieces(blocks, storage, whole_range)
    low, high = storage_span(storage.dtype)
    numbers = blocks.astype(np.float64)
    lowest = np.minimum(numbers.min(axis=1), 0.0)
    span = np.maximum(numbers.max(axis=1), 0.0) - lowest
    is_found = span == 0.0
    is_open = ~is_found & (span < FORMATS[storage.scale_dtype].max_finite)
    for count in range(1, high - low + 1):
        at = np.flatnonzero(is_open)
        if not at.size:
            break
        scales = round_through((span[at] / count).astype(np.float32), storage.scale_dtype)
        at, scales = at[scales > 0.0], scales[scales > 0.0]
        may_fit = _is_near(numbers[at, :_PROBED] / scales[:, None].astype(np.float64))
        at, scales = at[may_fit], scales[may_fit]
        if not at.size:
            continue
        steps = numbers[at] / scales[:, None].astype(np.float64)
        integers = np.rint(steps)
        # Zero is in every grid: with no negative element its integer is the lowest.
        zeros = np.zeros(len(at))
        if not storage.is_symmetric:
            zeros = low - np.minimum(integers.min(axis=1), 0.0)
        shifted = integers + zeros[:, None]
        fits = _is_near(steps)
        fits &= (shifted.min(axis=1) >= low) & (shifted.max(axis=1) <= high)
        found = at[fits]
        result.integers[found] = shifted[fits].astype(np.int32)
        result.scales[found] = scales[fits]
        result.zero_points[found] = zeros[fits].astype(np.int32)
        is_open[found] = False
        is_found[found] = True
    return result, is_found


def _is_near(steps: "npt.NDArray[np.float64]") -> "npt.NDArray[np.bool_]":
    """For each block, whether all its elements are near integers."""
    return np.asarray((np.abs(steps - np.rint(steps)) <= _NEAR).all(axis=1))
