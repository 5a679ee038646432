"""Integer grids of blocks of a weight: scales and zero points that cover a range, and rounding to
them.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through

Doubles = npt.NDArray[np.float64]
# Elements per piece, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 16


class BlockGrids(NamedTuple):
    """Scales that the storage's `scale_dtype` holds exactly, and integer zero points, [blocks]."""

    scales: Doubles
    zeros: Doubles


def grids_over(lowest: Doubles, highest: Doubles, storage: BlockStorage) -> BlockGrids:
    """Grids that cover the ranges from `lowest` <= 0 to `highest` >= 0; symmetric ones are -high to
    high.
    """
    low, high = storage_span(storage.dtype)
    if storage.is_symmetric:
        return grids_near(np.maximum(-lowest, highest) / high, lowest, storage)
    return grids_near((highest - lowest) / (high - low), lowest, storage)


def grids_near(exact: Doubles, lowest: Doubles, storage: BlockStorage) -> BlockGrids:
    """Grids of the storable scales nearest to `exact` ones >= 0, and the zero points with which the
    lowest integer is nearest to `lowest`. A scale below the smallest is 1, which gives zeros.
    """
    largest = FORMATS[storage.scale_dtype].max_finite
    scales = round_through(np.minimum(exact, largest).astype(np.float32), storage.scale_dtype)
    scales[scales == 0] = 1.0
    wide = scales.astype(np.float64)
    if storage.is_symmetric:
        return BlockGrids(wide, np.zeros_like(wide))
    low, high = storage_span(storage.dtype)
    return BlockGrids(wide, np.clip(np.rint(low - lowest / wide), low, high))


def levels_on(columns: Doubles, grids: BlockGrids, storage: BlockStorage) -> Doubles:
    """The nearest integers minus zero points of blocks as columns [elements, blocks]."""
    low, high = storage_span(storage.dtype)
    levels = columns / grids.scales
    np.rint(levels, out=levels)
    np.maximum(levels, low - grids.zeros, out=levels)
    return np.minimum(levels, high - grids.zeros, out=levels)


def ranges_of(columns: Doubles) -> tuple[Doubles, Doubles]:
    """The least and the largest element of each column, with 0."""
    return np.minimum(columns.min(axis=0), 0), np.maximum(columns.max(axis=0), 0)


def whole_range(columns: Doubles, storage: BlockStorage) -> BlockGrids:
    """Grids that cover the whole range of each column."""
    return grids_over(*ranges_of(columns), storage)


def round_in_pieces(
    blocks: Floats, storage: BlockStorage, choose: Callable[[Doubles, BlockStorage], BlockGrids]
) -> RoundedBlocks:
    """Round blocks [blocks, elements] to the nearest integers of the grids that `choose` returns
    for blocks as columns [elements, blocks]. What is beyond a grid is clipped.
    """
    count, elements = blocks.shape
    integers = np.empty(blocks.shape, np.int32)
    scales, zeros = np.empty(count, np.float32), np.empty(count, np.int32)
    step = max(1, _PIECE // elements)
    for start in range(0, count, step):
        piece = slice(start, min(start + step, count))
        # Sums over a single column are ordered differently: it is doubled.
        columns = np.empty((elements, max(piece.stop - start, 2)), np.float64)
        columns[:] = blocks[piece].T
        grids = choose(columns, storage)
        levels = levels_on(columns, grids, storage) + grids.zeros
        integers[piece] = levels.T[: piece.stop - start]
        scales[piece] = grids.scales[: piece.stop - start]
        zeros[piece] = grids.zeros[: piece.stop - start]
    return RoundedBlocks(integers, scales, zeros)
