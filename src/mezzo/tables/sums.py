"""Sums inside kernels: the format of a kernel's accumulators, where it is not FP32."""

from collections.abc import Set
from dataclasses import dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class LowSum:
    """Operators of ONNX whose kernels, run in `dtype`, also sum in it, rounding after every `tile`
    terms.

    `lanes`: accumulators for a result of at least `least_terms`, a power of two: each takes every
    `lanes`-th term, and they are added in pairs; smaller sums have one. `source`: how it was
    measured, or where it is written.
    """

    ops: Set[str]
    dtype: DType
    source: str
    since: str
    tile: int = 1
    lanes: int = 1
    least_terms: int = 0

    def __post_init__(self) -> None:
        assert self.tile >= 1, "a sum has a term"
        assert self.lanes.bit_count() == 1, "accumulators are added in pairs"
