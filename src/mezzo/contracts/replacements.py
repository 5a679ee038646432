"""Replacement of several operators of a model by one equivalent operator."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from mezzo.ir.nodes import Use


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A new FP32 constant, all elements `number`."""

    number: float
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshaped:
    """A new constant: the elements of the constant `value` in another shape."""

    value: int
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Integers:
    """A new INT64 constant of one axis."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The result of a new operator."""

    op: str
    reads: "tuple[Operand, ...]"
    attributes: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)


Operand: TypeAlias = Use | Filled | Reshaped | Integers | Computed


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """One operator in place of `nodes`; it produces the outputs of the last one. `reads`: its
    operands, most of them uses of those nodes. `attributes`: integers, floats, strings. `since`:
    the opset of the operator, if it is newer than the nodes.
    """

    op: str
    nodes: tuple[int, ...]
    reads: tuple[Operand, ...]
    attributes: Mapping[str, int | float | str] = field(default_factory=dict)
    since: int = 0
