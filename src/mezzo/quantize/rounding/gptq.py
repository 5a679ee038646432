"""GPTQ: weights were rounded on data while a plan was searched, each element with regard to those
before it (Frantar et al., 2022). What the model then holds is on a grid, and is stored without a
loss.
"""

from typing import ClassVar

from mezzo.common.errors import InputError
from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.quantize.arithmetic.block_grid import GridRounding
from mezzo.quantize.arithmetic.grid_recovery import recover_grids


class Gptq(GridRounding):
    name: ClassVar[str] = "gptq"
    summary: ClassVar[str] = (
        "each element with regard to the errors of others, on data; in a search"
    )
    takes_data: ClassVar[bool] = True

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        """Raises InputError: a block is on no grid, as the model's weights are its own."""
        rounded, is_found = recover_grids(blocks, storage)
        if not is_found.all():
            raise InputError(
                "GPTQ rounded this plan's weights on data, and the plan names no file of them; save"
                " the plan of the search again, or run the search again on the data"
            )
        return rounded
