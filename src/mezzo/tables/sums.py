"""Sums inside kernels: the format of a kernel's accumulators, where it is not FP32."""

from collections.abc import Set
from dataclasses import dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class LowSum:
    """Operators of ONNX whose kernels, run in `dtype`, also sum in it, rounding after every `tile`
    terms.

    `lanes`: accumulators for one result, if it has at least as many terms: each takes every
    `lanes`-th term, and they are added in pairs. `source`: how it was measured, or where it is
    written.
    """

    ops: Set[str]
    dtype: DType
    source: str
    since: str
    tile: int = 1
    lanes: int = 1

    def __post_init__(self) -> None:
        assert self.tile >= 1 and self.lanes >= 1, "a sum has a term and an accumulator"
