"""What a target runs on quantized operands, and how a file has to say so: rows of a target.

Whatever is quantized stays typed in the base: an operator reads dequantized operands, and a runtime that finds
Dequantize before it, and maybe Quantize behind it, runs all of it on integers.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from mezzo.core.rows import EVERY_VERSION, holds
from mezzo.dtypes import DType


class Hands(enum.Enum):
    """What a quantized kernel hands on. EITHER: integers or floats, at no price. INTEGERS: Quantize has to stand right
    behind it, or it runs in floats. FLOATS: floats alone; a Quantize behind it is a pass of its own. READ: what it
    reads, as it only moves or chooses among numbers: its result has its operands' parameters.
    """

    EITHER = "either"
    INTEGERS = "integers"
    FLOATS = "floats"
    READ = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One operand that a kernel reads quantized. `dtype`: what stores it; `is_symmetric`: zero is stored as zero.

    `is_weight`: it has to be a constant. `axis`: the axis with a scale of its own for each slice, counted from the back
    where below 0; None where the whole tensor has one.
    """

    position: int
    dtype: DType = DType.UINT8
    is_symmetric: bool = False
    is_weight: bool = False
    axis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedKernel:
    """An operator that a target runs on quantized operands.

    Other operands stay floats, as biases do. `followers` are operators that it takes in, one behind the other, as long
    as nobody else reads what lies between and what else they read is constant: Quantize then stands behind the last.
    `attributes` must all match, by value or by one of a frozenset. `needs` are features of a machine, any of which it
    takes to be faster so.
    """

    dialect: str = "onnx"
    op: str
    operands: tuple[Operand, ...]
    hands: Hands
    source: str
    since: str
    followers: frozenset[str] = frozenset()
    versions: tuple[int, int] = EVERY_VERSION
    attributes: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    def fits(self, dialect: str, op: str, version: int, attributes: Mapping[str, object]) -> bool:
        """Whether the row is about an operator, as far as its attributes tell."""
        is_its_own = (dialect, op) == (self.dialect, self.op)
        return is_its_own and holds(self.versions, self.attributes, version, attributes)
