"""Counts of a cast-placement strategy on a model, as a record."""

from collections.abc import Mapping
from dataclasses import dataclass

from mezzo.formats.dtypes import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyRow:
    """Counts of one strategy's plan.

    `low_nodes` of `nodes` operators run in low precision; `cast_bytes` are read and written by
    casts in one run, loops counted nominally; `cost` is in the planner's unit, one byte moved;
    `to_least` is the cost relative to the cheapest strategy's, None if that is 0.
    """

    strategy: str
    low_nodes: int
    nodes: int
    casts: int
    cast_bytes: int
    cost: int
    to_least: float | None
    by_format: Mapping[DType, int]
