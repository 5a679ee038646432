"""Recovery of the integers of weights that are on a grid already: dequantized from blocks by
another tool, or rounded by GPTQ, where the elements are stored again without a loss.
"""

from typing import ClassVar

import numpy as np

from mezzo.contracts.rounding import RoundedBlocks, Rounding
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through
from mezzo.quantize.arithmetic.block_grid import round_to_grid

# Distance from an integer, in steps, of elements that count as on a grid: those of weights that
# were dequantized to FP16 or BF16 are this far off.
_NEAR = 1 / 64


class OnGrid(Rounding):
    name: ClassVar[str] = "on-grid"
    summary: ClassVar[str] = "the grid that a block's elements are on already; else as nearest"
    also: ClassVar[tuple[str, ...]] = ("exact", "dequantized", "pre-quantized")

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        """The widest step of which all elements of a block are multiples within the integers' span
        is its scale. Blocks without one are rounded to nearest.
        """
        result = round_to_grid(blocks, storage)
        low, high = storage_span(storage.dtype)
        numbers = blocks.astype(np.float64)
        lowest = np.minimum(numbers.min(axis=1), 0.0)
        span = np.maximum(numbers.max(axis=1), 0.0) - lowest
        largest = FORMATS[storage.scale_dtype].max_finite
        is_open = (span > 0.0) & (span < largest)
        for count in range(1, high - low + 1):
            at = np.flatnonzero(is_open)
            if not at.size:
                break
            scales = round_through((span[at] / count).astype(np.float32), storage.scale_dtype)
            at, scales = at[scales > 0.0], scales[scales > 0.0]
            steps = numbers[at] / scales[:, None].astype(np.float64)
            integers = np.rint(steps)
            zeros = np.zeros(len(at)) if storage.is_symmetric else low - integers.min(axis=1)
            zeros = np.where(integers.min(axis=1) < 0, zeros, np.zeros(len(at)) + low * (low >= 0))
            shifted = integers + zeros[:, None]
            fits = (np.abs(steps - integers) <= _NEAR).all(axis=1)
            fits &= (shifted.min(axis=1) >= low) & (shifted.max(axis=1) <= high)
            found = at[fits]
            result.integers[found] = shifted[fits].astype(np.int32)
            result.scales[found] = scales[fits]
            result.zero_points[found] = zeros[fits].astype(np.int32)
            is_open[found] = False
        return result
