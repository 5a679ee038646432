"""Numbers rounded to a low format and held in a wide one again."""

import torch

from mezzo.aten.program import FROM_DTYPE
from mezzo.formats.dtypes import DType

FORMATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2})
LOW_TYPES = frozenset(FROM_DTYPE[dtype] for dtype in FORMATS)

# What rounds past E4M3FN's largest number: beyond 464, whose neighbour 448 is even.
_LARGEST_KEPT = 464.0


def round_through(numbers: torch.Tensor, dtype: DType, limit: float | None = None) -> torch.Tensor:
    """Round numbers to nearest even in a format, and come back. What passes its range is infinite, NaN in E4M3FN.

    `limit`: finite numbers beyond it become the limit.
    """
    given = numbers
    if limit is not None:
        given = torch.where(numbers.isfinite(), numbers.clamp(-limit, limit), numbers)
    rounded = given.to(FROM_DTYPE[dtype]).to(numbers.dtype)
    if dtype is DType.FLOAT8E4M3FN:  # PyTorch gives the largest number instead
        return torch.where(given.abs() > _LARGEST_KEPT, torch.nan, rounded)
    return rounded
