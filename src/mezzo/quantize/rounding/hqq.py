"""Half-quadratic quantization (HQQ): each block's grid is fitted to the elements without their
largest errors, by an lp norm with p below 1 (shrinkage), and integers are chosen anew.

Source: Badri and Shaji, "Half-Quadratic Quantization of Large Machine Learning Models", 2023. There
only a float zero point is fitted. An integer zero point seldom moves by a whole step, so scales are
fitted too; with symmetric storage they alone.
"""

from typing import ClassVar

import numpy as np

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import (
    BlockGrids,
    Columns,
    Doubles,
    GridRounding,
    round_in_pieces,
)
from mezzo.quantize.arithmetic.grid_search import GridFit, GridSearch

_STEPS = 10
# The norm's p is 3/4, where the source has 0.7: square roots are the same on every machine, other
# powers are not. Errors up to beta ** (-1 / (2 - p)) steps, at first 0.3, shrink to zero: the grid
# is fitted to these, and larger ones count less. Beta grows by a factor, as in the source.
_FIRST_BETA, _GROWTH = 4.5, 1.01


class HalfQuadratic(GridRounding):
    name: ClassVar[str] = "hqq"
    summary: ClassVar[str] = "scale and zero point by an lp norm that tolerates few large errors"
    also: ClassVar[tuple[str, ...]] = ("half-quadratic",)

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        return round_in_pieces(blocks, storage, _choose_grids)


def _choose_grids(columns: Columns, storage: BlockStorage) -> BlockGrids:
    search = GridSearch(columns, storage, _absolute_loss)
    grids, weights = search.grids, np.ones_like(columns)
    levels = search.offer(grids)
    for number in range(_STEPS):
        scales = grids.scales.astype(columns.dtype)
        errors = columns / scales
        errors -= levels
        sparse = _shrink(errors, _FIRST_BETA * _GROWTH**number)
        targets = columns - sparse * scales
        grids = GridFit(targets, weights, storage).grids(levels, grids)
        levels = search.offer(grids)
    return search.grids


def _absolute_loss(errors: Columns) -> Doubles:
    """Sum of |error| of each column, by which the source stops."""
    return np.asarray(np.abs(errors, out=errors).sum(axis=0), np.float64)


def _shrink(errors: Columns, beta: float) -> Columns:
    """Generalized soft threshold: sign(e) * max(|e| - |e| ** (p - 1) / beta, 0)."""
    sizes = np.abs(errors)
    quarter_roots = np.sqrt(np.sqrt(sizes))
    # |e| - |e| ** (-1 / 4) / beta, without a division by zero.
    kept = np.maximum(sizes - 1 / (beta * np.maximum(quarter_roots, 1e-9)), 0)
    return np.copysign(kept, errors)
