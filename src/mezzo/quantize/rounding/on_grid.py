"""Recovery of the integers of weights that another tool has dequantized: stored without a loss."""

from typing import ClassVar

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import GridRounding
from mezzo.quantize.arithmetic.grid_recovery import recover_grids


class OnGrid(GridRounding):
    name: ClassVar[str] = "on-grid"
    summary: ClassVar[str] = "the grid that a block's elements are on already; else as nearest"
    also: ClassVar[tuple[str, ...]] = ("exact", "dequantized", "pre-quantized")

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        return recover_grids(blocks, storage)[0]
