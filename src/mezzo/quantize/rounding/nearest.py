"""Round-to-nearest (RTN) of weights in blocks: the grid covers the block's whole range."""

from typing import ClassVar

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import GridRounding, round_in_pieces, whole_range


class Nearest(GridRounding):
    name: ClassVar[str] = "nearest"
    summary: ClassVar[str] = "each element to the nearest integer; the grid covers the whole block"
    also: ClassVar[tuple[str, ...]] = ("rtn", "round-to-nearest")

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        return round_in_pieces(blocks, storage, whole_range)
