"""Marks of power-of-two scales on FX nodes. Tracers and saved programs preserve them."""

from collections.abc import Mapping
from typing import Any

from torch import fx

_CUSTOM = "custom"
_EXPONENT = "mezzo.exponent"
_MULTIPLICATION = "mezzo.multiplication"


def exponent_of(node: fx.Node) -> int:
    """The exponent k of a node's result, which is stored times 2^-k; 0 if it is not scaled."""
    exponent = _marks_of(node.meta).get(_EXPONENT)
    return exponent if isinstance(exponent, int) else 0


def is_multiplication(node: fx.Node) -> bool:
    """Whether a node was inserted to change an operand's scale."""
    return _MULTIPLICATION in _marks_of(node.meta)


def with_scale(meta: Mapping[str, Any], exponent: int, *, inserted: bool = False) -> dict[str, Any]:
    """A node's metadata with the exponent of its result."""
    marks = {**_marks_of(meta), _EXPONENT: exponent}
    return {**meta, _CUSTOM: marks | ({_MULTIPLICATION: True} if inserted else {})}


def _marks_of(meta: Mapping[str, Any]) -> Mapping[str, object]:
    marks = meta.get(_CUSTOM)
    return marks if isinstance(marks, Mapping) else {}
