"""Counts of a conversion, as a record."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts of a conversion: operators that compute floats; sizes include external data."""

    low_nodes: int
    high_nodes: int
    casts: int
    size_before_bytes: int
    size_after_bytes: int
    opset_before: int | None
    opset_after: int | None
    notes: tuple[str, ...]
