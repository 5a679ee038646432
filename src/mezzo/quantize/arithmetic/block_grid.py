"""Integer grids of blocks of a weight: scales and zero points that cover a range, and rounding to
them.
"""

import numpy as np

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FORMATS, storage_span
from mezzo.formats.rounding import Floats, round_through


def round_to_grid(
    blocks: Floats, storage: BlockStorage, share: Floats | float = 1.0
) -> RoundedBlocks:
    """Round blocks of shape [blocks, elements] to the nearest integers; the rest is clipped.

    `share`: of each block's range that its grid covers, one number or one per block. Zero is always
    in the grid. Symmetric grids are -high to high. A block of zeros, or of a range below the
    smallest scale, has scale 1 and is all zero.
    """
    low, high = storage_span(storage.dtype)
    lowest = share * np.minimum(blocks.min(axis=1), 0).astype(np.float64)
    highest = share * np.maximum(blocks.max(axis=1), 0).astype(np.float64)
    if storage.is_symmetric:
        low, exact = -high, np.maximum(-lowest, highest) / high
    else:
        exact = (highest - lowest) / (high - low)
    largest = FORMATS[storage.scale_dtype].max_finite
    scales = round_through(np.minimum(exact, largest).astype(np.float32), storage.scale_dtype)
    scales[scales == 0] = 1.0
    zeros = np.zeros(len(scales), np.float64)
    if not storage.is_symmetric:
        zeros = np.clip(np.rint(low - lowest / scales), low, high)
    steps = np.rint(blocks / scales[:, None].astype(np.float64)) + zeros[:, None]
    integers = np.clip(steps, low, high).astype(np.int32)
    return RoundedBlocks(integers, scales, zeros.astype(np.int32))
