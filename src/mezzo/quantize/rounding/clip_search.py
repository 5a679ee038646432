"""Search for the range of each block with the least squared rounding error (MSE clipping)."""

from typing import ClassVar

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import BlockGrids, Columns, GridRounding, round_in_pieces
from mezzo.quantize.arithmetic.grid_search import GridSearch, squared_loss

# Candidate ranges, as fractions of the block's: near 1 for 8 bits, to 0.5 for outliers in 4 bits.
# Wider grids clip nothing, but their integers may be nearer.
_FRACTIONS = (
    *(1 + 0.3 * (number / 6) ** 2 for number in range(1, 7)),
    *(1 - 0.5 * (number / 20) ** 2 for number in range(1, 21)),
)


class ClipSearch(GridRounding):
    name: ClassVar[str] = "clip-search"
    summary: ClassVar[str] = "the range with the least squared error; the largest may be clipped"
    also: ClassVar[tuple[str, ...]] = ("mse",)

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        return round_in_pieces(blocks, storage, _choose_grids)


def _choose_grids(columns: Columns, storage: BlockStorage) -> BlockGrids:
    search = GridSearch(columns, storage, squared_loss)
    for fraction in _FRACTIONS:
        search.offer(search.candidate(fraction))
    return search.grids
