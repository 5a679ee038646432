"""Counts of a conversion, as a record."""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class Widening:
    """What a conversion to FP32 found: operators by the low float that they were in, and sentences
    on weights that this float has damaged.
    """

    nodes: Mapping[DType, int]
    damage: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of a conversion: operators that compute floats; sizes include external data.
    `widening`: of a conversion to FP32.
    """

    low_nodes: int
    high_nodes: int
    casts: int
    size_before_bytes: int
    size_after_bytes: int
    opset_before: int | None
    opset_after: int | None
    notes: tuple[str, ...]
    widening: Widening | None = None
