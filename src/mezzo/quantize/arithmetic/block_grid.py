"""Integer grids of blocks of a weight: scales and zero points that cover a range, and rounding to
them.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzo.contracts.rounding import RoundedBlocks, Rounding
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through

Doubles = npt.NDArray[np.float64]
# Elements of blocks as columns [elements, blocks]: FP32, or FP64 where squares could overflow.
Columns = npt.NDArray[np.floating[Any]]
# Elements per piece, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 16
# Largest magnitudes of blocks whose squares FP32 holds with all their digits.
_LEAST_FP32, _MOST_FP32 = 1e-12, 1e12


class GridRounding(Rounding):
    """A rounding to the nearest integers of the grids that it chooses."""

    def round_on(
        self,
        blocks: Floats,
        storage: BlockStorage,
        scales: Floats,
        zero_points: "npt.NDArray[np.int32]",
    ) -> "npt.NDArray[np.int32]":
        result, is_apart = np.empty(blocks.shape, np.int32), _need_fp64(blocks)
        for dtype, chosen in ((np.float32, ~is_apart), (np.float64, is_apart)):
            grids = BlockGrids(*(each[chosen].astype(np.float64) for each in (scales, zero_points)))
            levels = levels_on(blocks[chosen].T.astype(dtype), grids, storage)
            result[chosen] = levels.T + zero_points[chosen, None]
        return result


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


def levels_on(columns: Columns, grids: BlockGrids, storage: BlockStorage) -> Columns:
    """The nearest integers minus zero points of blocks as columns [elements, blocks]."""
    low, high = storage_span(storage.dtype)
    zeros = grids.zeros.astype(columns.dtype)
    levels = columns / grids.scales.astype(columns.dtype)
    np.rint(levels, out=levels)
    np.maximum(levels, low - zeros, out=levels)
    return np.minimum(levels, high - zeros, out=levels)


def ranges_of(columns: Columns) -> tuple[Doubles, Doubles]:
    """The least and the largest element of each column, with 0."""
    lowest, highest = columns.min(axis=0), columns.max(axis=0)
    return np.minimum(lowest, 0.0, dtype=np.float64), np.maximum(highest, 0.0, dtype=np.float64)


def whole_range(columns: Columns, storage: BlockStorage) -> BlockGrids:
    """Grids that cover the whole range of each column."""
    return grids_over(*ranges_of(columns), storage)


def round_in_pieces(
    blocks: Floats, storage: BlockStorage, choose: Callable[[Columns, BlockStorage], BlockGrids]
) -> RoundedBlocks:
    """Round blocks [blocks, elements] to the nearest integers of the grids that `choose` returns
    for blocks as columns [elements, blocks], which are `Columns`. What is beyond a grid is clipped.
    Pieces run on all processors.
    """
    is_apart = _need_fp64(blocks)
    if not is_apart.any():
        return _round_in_pieces(blocks, storage, choose, np.float32)
    result = RoundedBlocks(
        np.empty(blocks.shape, np.int32),
        np.empty(len(blocks), np.float32),
        np.empty(len(blocks), np.int32),
    )
    for dtype, chosen in ((np.float32, ~is_apart), (np.float64, is_apart)):
        part = _round_in_pieces(blocks[chosen], storage, choose, dtype)
        for whole, rounded in zip(result, part, strict=True):
            whole[chosen] = rounded
    return result


def _round_in_pieces(
    blocks: Floats,
    storage: BlockStorage,
    choose: Callable[[Columns, BlockStorage], BlockGrids],
    dtype: type[np.floating[Any]],
) -> RoundedBlocks:
    count, elements = blocks.shape
    integers = np.empty(blocks.shape, np.int32)
    scales, zeros = np.empty(count, np.float32), np.empty(count, np.int32)
    step = max(1, _PIECE // elements)

    def round_piece(start: int) -> None:
        piece = slice(start, min(start + step, count))
        # Sums over a single column are ordered differently: it is doubled.
        columns = np.empty((elements, max(piece.stop - start, 2)), dtype)
        columns[:] = blocks[piece].T
        grids = choose(columns, storage)
        levels = levels_on(columns, grids, storage) + grids.zeros.astype(dtype)
        integers[piece] = levels.T[: piece.stop - start]
        scales[piece] = grids.scales[: piece.stop - start]
        zeros[piece] = grids.zeros[: piece.stop - start]

    starts = range(0, count, step)
    if len(starts) > 1:
        with ThreadPoolExecutor(min(os.cpu_count() or 1, len(starts))) as pool:
            list(pool.map(round_piece, starts))
    else:
        for start in starts:
            round_piece(start)
    return RoundedBlocks(integers, scales, zeros)


def _need_fp64(blocks: Floats) -> "npt.NDArray[np.bool_]":
    """Whether squares of a block overflow, or lose digits, in FP32; [blocks]."""
    largest = np.maximum(blocks.max(axis=1), -blocks.min(axis=1))
    is_apart: npt.NDArray[np.bool_] = (largest > 0) & (
        (largest < _LEAST_FP32) | (largest > _MOST_FP32)
    )
    return is_apart
