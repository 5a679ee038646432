"""Search for the integer grid of each block with the least loss, and least-squares fits of grids to
given integers.
"""

from collections.abc import Callable

import numpy as np

from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import storage_span
from mezzo.quantize.arithmetic.block_grid import (
    BlockGrids,
    Columns,
    Doubles,
    grids_near,
    grids_over,
    levels_on,
    ranges_of,
)

# A line is fitted if the variance of its levels is above this fraction of their mean square, and a
# scale if the mean square is: sums in FP32 are off by some 1e-6 of it.
_LEAST_VARIANCE = 1e-5


class GridSearch:
    """Keeps the grid with the least loss of each block; the first is round-to-nearest's.

    `columns`: blocks as columns [elements, blocks]; `loss`: of errors of this shape, which it may
    overwrite, [blocks].
    """

    def __init__(
        self, columns: Columns, storage: BlockStorage, loss: Callable[[Columns], Doubles]
    ) -> None:
        self._columns, self._storage, self._loss = columns, storage, loss
        self.lowest, self.highest = ranges_of(columns)
        self.grids = grids_over(self.lowest, self.highest, storage)
        levels = levels_on(columns, self.grids, storage)
        self._losses = self._losses_of(self.grids, levels)

    def candidate(self, fraction: float) -> BlockGrids:
        """Grids that cover this fraction of the blocks' ranges."""
        return grids_over(fraction * self.lowest, fraction * self.highest, self._storage)

    def offer(self, grids: BlockGrids) -> Columns:
        """Keep the grids of the blocks whose loss is smaller with them; returns their levels."""
        levels = levels_on(self._columns, grids, self._storage)
        losses = self._losses_of(grids, levels)
        is_better = losses < self._losses
        self._losses = np.where(is_better, losses, self._losses)
        scales = np.where(is_better, grids.scales, self.grids.scales)
        self.grids = BlockGrids(scales, np.where(is_better, grids.zeros, self.grids.zeros))
        return levels

    def _losses_of(self, grids: BlockGrids, levels: Columns) -> Doubles:
        errors = levels * grids.scales.astype(levels.dtype)
        errors -= self._columns
        return self._loss(errors)


def squared_loss(errors: Columns) -> Doubles:
    """Sum of squares of each column."""
    return sums_of_products(errors, errors)


def sums_of_products(first: Columns, second: Columns) -> Doubles:
    """Dot product of each pair of columns."""
    return np.asarray(np.einsum("ij,ij->j", first, second), np.float64)


class GridFit:
    """Fits grids to given integers: the least weighted squared difference to the targets. Targets
    and weights are [elements, blocks].
    """

    def __init__(self, targets: Columns, weights: Columns, storage: BlockStorage) -> None:
        self._targets, self._weights, self._storage = targets, weights, storage
        self._total = weights.sum(axis=0).astype(np.float64)
        self._target_sums = sums_of_products(weights, targets)

    def grids(self, levels: Columns, grids: BlockGrids) -> BlockGrids:
        """Grids on which the levels, integers minus zero points of `grids`, fit best: zero points
        by a line, then scales. Blocks that determine no scale above 0 keep theirs.
        """
        storage = self._storage
        weighted = self._weights * levels
        products = sums_of_products(weighted, self._targets)
        squares = sums_of_products(weighted, levels)
        zeros, most = grids.zeros, squares
        if not storage.is_symmetric:
            sums = weighted.sum(axis=0).astype(np.float64)
            zeros = self._zeros(sums, products, squares, grids)
            # The sums over levels that are moved by the difference.
            moved = grids.zeros - zeros
            most = squares + moved * moved * self._total
            products = products + moved * self._target_sums
            squares = squares + moved * (2 * sums + moved * self._total)
        has_scale = (squares > _LEAST_VARIANCE * most) & (products > 0)
        exact = np.divide(products, squares, out=grids.scales.copy(), where=has_scale)
        low, _ = storage_span(storage.dtype)
        return grids_near(exact, (low - zeros) * exact, storage)

    def _zeros(
        self, sums: Doubles, products: Doubles, squares: Doubles, grids: BlockGrids
    ) -> Doubles:
        """Zero points of the weighted line of targets over levels, rounded to integers in span.
        `sums`, `products`, `squares`: of levels, levels times targets, and squared levels.
        """
        total, target_sums = self._total, self._target_sums
        covariances = total * products - sums * target_sums
        variances = total * squares - sums * sums
        has_line = (variances > _LEAST_VARIANCE * total * squares) & (covariances > 0)
        slopes = np.divide(covariances, variances, out=np.ones_like(total), where=has_line)
        offsets = target_sums - slopes * sums
        shifts = np.divide(offsets, slopes * total, out=np.zeros_like(total), where=has_line)
        span = storage_span(self._storage.dtype)
        return np.asarray(np.clip(np.rint(grids.zeros - shifts), *span))
