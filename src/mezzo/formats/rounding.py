"""Rounding to floating-point formats, and the magnitudes that overflow or underflow."""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType

Floats = npt.NDArray[np.float32]

# Formats for which range statistics are reported.
RANGED = (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2)
_STORAGE: dict[DType, np.dtype[Any]] = {
    DType.FLOAT32: np.dtype(np.float32), DType.FLOAT16: np.dtype(np.float16),
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn),
    DType.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
_INFINITY_BITS = 0x7F800000


def round_through(values: Floats, dtype: DType) -> Floats:
    """Round f32 numbers to a format and back, to nearest even; overflow gives inf or NaN."""
    with np.errstate(all="ignore"):
        return values.astype(_STORAGE[dtype]).astype(np.float32)


@cache
def beyond_from(dtype: DType) -> float:
    """The smallest magnitude, as f32, that overflows when rounded. f16: 65520.0."""
    return _first(lambda magnitude: not np.isfinite(round_through(magnitude, dtype))[0])


@cache
def vanishing_up_to(dtype: DType) -> float:
    """The largest magnitude, as f32, that rounds to zero. f16: 2 ** -25."""
    first_kept = np.array(
        [_first(lambda magnitude: round_through(magnitude, dtype)[0] != 0)], np.float32
    )
    return float(np.nextafter(first_kept, np.float32(0))[0])


@cache
def smallest_normal(dtype: DType) -> float:
    """The smallest normal number. f16: 2 ** -14. Source: ml_dtypes.finfo."""
    limits = ml_dtypes.finfo(_STORAGE[dtype])  # type: ignore[no-untyped-call]  # ml_dtypes types its classes only
    return float(limits.smallest_normal)


class Limits(NamedTuple):
    """Largest finite, smallest normal and smallest subnormal number of a format."""

    largest: float
    smallest_normal: float
    smallest: float


@cache
def limits_of(dtype: DType) -> Limits:
    """Largest finite, smallest normal and smallest subnormal number. f16: 65504, 2 ** -14, 2 **
    -24. Source: ml_dtypes.finfo.
    """
    limits = ml_dtypes.finfo(_STORAGE[dtype])  # type: ignore[no-untyped-call]  # ml_dtypes types its classes only
    return Limits(
        float(limits.max), float(limits.smallest_normal), float(limits.smallest_subnormal)
    )


def _first(holds: Callable[[Floats], bool]) -> float:
    """The smallest positive f32 that satisfies a monotone predicate, else infinity. Bisection."""
    low, high = 0, _INFINITY_BITS
    while high - low > 1:
        middle = (low + high) // 2
        if holds(np.array([middle], np.uint32).view(np.float32)):
            high = middle
        else:
            low = middle
    return float(np.array([high], np.uint32).view(np.float32)[0])
