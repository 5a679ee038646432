"""K-quant rounding: scale and minimum of each block by weighted least squares on the integers of
several candidate scales. Larger elements have larger weights.

Source: the scheme of llama.cpp's k-quants and of ONNX Runtime's `k_quant`. There the minimum is a
float; here zero points are integers, and scales are fitted again once these are chosen.
"""

from typing import ClassVar

import numpy as np

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import storage_span
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import (
    BlockGrids,
    Columns,
    Doubles,
    GridRounding,
    levels_on,
    round_in_pieces,
)
from mezzo.quantize.arithmetic.grid_search import GridFit, GridSearch, squared_loss

# Candidate scales divide the block's range into this many more steps than the storage has.
_MORE_STEPS = tuple(number / 5 for number in range(-5, 6, 2))


class KQuant(GridRounding):
    name: ClassVar[str] = "k-quant"
    summary: ClassVar[str] = "scale and minimum by least squares; larger elements count more"

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        return round_in_pieces(blocks, storage, _choose_grids)


def _choose_grids(columns: Columns, storage: BlockStorage) -> BlockGrids:
    weights = np.abs(columns)
    weights += np.sqrt(squared_loss(columns) / len(columns)).astype(columns.dtype)
    roots = np.sqrt(weights)

    def weighted_loss(errors: Columns) -> Doubles:
        return squared_loss(np.multiply(errors, roots, out=errors))

    search, fit = GridSearch(columns, storage, weighted_loss), GridFit(columns, weights, storage)
    low, high = storage_span(storage.dtype)
    steps = high if storage.is_symmetric else high - low
    for more in _MORE_STEPS:
        grids = search.candidate(steps / (steps + more))
        search.offer(fit.grids(levels_on(columns, grids, storage), grids))
    return search.grids
