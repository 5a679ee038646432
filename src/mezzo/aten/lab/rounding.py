"""Rounding to a low-precision format, with the result in the original dtype."""

import torch

from mezzo.aten.program import FROM_DTYPE
from mezzo.formats.dtypes import DType

FORMATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2})
EMULATED = FORMATS | {DType.QUANTIZED8}
LOW_TYPES = frozenset(FROM_DTYPE[dtype] for dtype in FORMATS)

# Magnitudes above 464 round past E4M3FN's maximum: 464 ties to 448, which is even.
_LARGEST_KEPT = 464.0


def round_through(numbers: torch.Tensor, dtype: DType, limit: float | None = None) -> torch.Tensor:
    """Round to nearest even in a format and back. Overflow yields infinity, NaN in E4M3FN.

    Finite elements beyond `limit` are clamped to it.
    """
    clamped = numbers
    if limit is not None:
        clamped = torch.where(numbers.isfinite(), numbers.clamp(-limit, limit), numbers)
    rounded = clamped.to(FROM_DTYPE[dtype]).to(numbers.dtype)
    if dtype is DType.FLOAT8E4M3FN:  # PyTorch saturates instead
        return torch.where(clamped.abs() > _LARGEST_KEPT, torch.nan, rounded)
    return rounded
