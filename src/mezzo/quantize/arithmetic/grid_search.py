"""Search for the integer grid of each block with the least loss, and least-squares fits of grids to
given integers.
"""

from collections.abc import Callable

import numpy as np

from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import storage_span
from mezzo.quantize.arithmetic.block_grid import (
    BlockGrids,
    Doubles,
    grids_near,
    grids_over,
    levels_on,
    ranges_of,
)

# A line is fitted if the variance of its levels is above this fraction of their mean square.
_LEAST_VARIANCE = 1e-9


class GridSearch:
    """Keeps the grid with the least loss of each block; the first is round-to-nearest's.

    `columns`: blocks as columns [elements, blocks]; `loss`: of errors of this shape, which it may
    overwrite, [blocks].
    """

    def __init__(
        self, columns: Doubles, storage: BlockStorage, loss: Callable[[Doubles], Doubles]
    ) -> None:
        self._columns, self._storage, self._loss = columns, storage, loss
        self.lowest, self.highest = ranges_of(columns)
        self.grids = grids_over(self.lowest, self.highest, storage)
        levels = levels_on(columns, self.grids, storage)
        self._losses = self._losses_of(self.grids, levels)

    def candidate(self, fraction: float) -> BlockGrids:
        """Grids that cover this fraction of the blocks' ranges."""
        return grids_over(fraction * self.lowest, fraction * self.highest, self._storage)

    def offer(self, grids: BlockGrids) -> Doubles:
        """Keep the grids of the blocks whose loss is smaller with them; returns their levels."""
        levels = levels_on(self._columns, grids, self._storage)
        losses = self._losses_of(grids, levels)
        is_better = losses < self._losses
        self._losses = np.where(is_better, losses, self._losses)
        scales = np.where(is_better, grids.scales, self.grids.scales)
        self.grids = BlockGrids(scales, np.where(is_better, grids.zeros, self.grids.zeros))
        return levels

    def _losses_of(self, grids: BlockGrids, levels: Doubles) -> Doubles:
        errors = levels * grids.scales
        errors -= self._columns
        return self._loss(errors)


def squared_loss(errors: Doubles) -> Doubles:
    """Sum of squares of each column."""
    return sums_of_products(errors, errors)


def sums_of_products(first: Doubles, second: Doubles) -> Doubles:
    """Dot product of each pair of columns."""
    return np.asarray(np.einsum("ij,ij->j", first, second), np.float64)


def fitted_grids(
    targets: Doubles, levels: Doubles, weights: Doubles, grids: BlockGrids, storage: BlockStorage
) -> BlockGrids:
    """Grids on which the levels, integers minus zero points of `grids`, have the least weighted
    squared difference to the targets: zero points by a line, then scales. All arguments are
    [elements, blocks]; blocks that determine no scale above 0 keep theirs.
    """
    zeros = grids.zeros
    if not storage.is_symmetric:
        zeros = _fitted_zeros(targets, levels, weights, grids, storage)
        levels = levels + (grids.zeros - zeros)
    weighted = weights * levels
    products, squares = sums_of_products(weighted, targets), sums_of_products(weighted, levels)
    has_scale = (squares > 0) & (products > 0)
    exact = np.divide(products, squares, out=grids.scales.copy(), where=has_scale)
    low, _ = storage_span(storage.dtype)
    return grids_near(exact, (low - zeros) * exact, storage)


def _fitted_zeros(
    targets: Doubles, levels: Doubles, weights: Doubles, grids: BlockGrids, storage: BlockStorage
) -> Doubles:
    """Zero points of the weighted line of targets over levels, rounded to integers in span."""
    weighted = weights * levels
    total, level_sums = weights.sum(axis=0), weighted.sum(axis=0)
    target_sums = sums_of_products(weights, targets)
    products = total * sums_of_products(weighted, targets) - level_sums * target_sums
    squares = total * sums_of_products(weighted, levels)
    variances = squares - level_sums * level_sums
    has_line = (variances > _LEAST_VARIANCE * squares) & (products > 0)
    slopes = np.divide(products, variances, out=np.ones_like(total), where=has_line)
    offsets = target_sums - slopes * level_sums
    shifts = np.divide(offsets, slopes * total, out=np.zeros_like(total), where=has_line)
    return np.asarray(np.clip(np.rint(grids.zeros - shifts), *storage_span(storage.dtype)))
