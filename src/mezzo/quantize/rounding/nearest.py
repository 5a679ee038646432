"""Round-to-nearest (RTN) of weights in blocks: the grid covers the block's whole range."""

from typing import ClassVar

import numpy as np

from mezzo.contracts.rounding import RoundedBlocks, Rounding
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through


class Nearest(Rounding):
    name: ClassVar[str] = "nearest"
    summary: ClassVar[str] = "each element to the nearest integer; the grid covers the whole block"
    also: ClassVar[tuple[str, ...]] = ("rtn", "round-to-nearest")

    def round(self, blocks: Floats, storage: BlockStorage) -> RoundedBlocks:
        low, high = storage_span(storage.dtype)
        lowest = np.minimum(blocks.min(axis=1), 0).astype(np.float64)
        highest = np.maximum(blocks.max(axis=1), 0).astype(np.float64)
        if storage.is_symmetric:
            exact = np.maximum(-lowest, highest) / high  # -high to high: the grid has no -high - 1
        else:
            exact = (highest - lowest) / (high - low)
        form = FORMATS[storage.scale_dtype]
        limited = np.minimum(exact, form.max_finite).astype(np.float32)
        scales = round_through(limited, storage.scale_dtype)
        # Elements of a block of zeros, or of a range below the smallest scale, are all 0.
        scales[scales == 0] = 1.0
        zeros = np.zeros(len(scales), np.float64)
        if not storage.is_symmetric:
            zeros = np.clip(np.rint(low - lowest / scales), low, high)
        smallest = -high if storage.is_symmetric else low
        steps = np.rint(blocks / scales[:, None].astype(np.float64)) + zeros[:, None]
        integers = np.clip(steps, smallest, high).astype(np.int32)
        return RoundedBlocks(integers, scales, zeros.astype(np.int32))
