"""What a target runs on quantized operands, and how a file has to say so: rows of a target.

Whatever is quantized stays typed in the base: an operator reads dequantized operands, and a runtime that finds
Dequantize before it, and maybe Quantize behind it, runs all of it on integers.
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from mezzo.formats.dtypes import STORED_AS, DType
from mezzo.tables.rows import EVERY_VERSION, holds

# What followers that are composites are written in, as `mezzo.analysis.fusion.composites` finds them.
_TANH_PARTS = frozenset({"Add", "Div", "Mul", "Pow", "Tanh"})
COMPOSITES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "gelu-erf": frozenset({"Add", "Div", "Erf", "Mul"}),
        "gelu-tanh": _TANH_PARTS,
        "silu": frozenset({"Mul", "Sigmoid"}),
    }
)

# Operators that a file can write out so that they find ranges as they run, and the weights that each reads.
DYNAMIC_WEIGHTS: Mapping[str, int] = MappingProxyType({"Gemm": 1, "LSTM": 2, "MatMul": 1})


class OutputMode(enum.Enum):
    """What a quantized kernel hands on. EITHER: integers or floats, at no price. INTEGERS: Quantize has to stand right
    behind it, or it runs in floats. FLOATS: floats alone; a Quantize behind it is a pass of its own. READ: what it
    reads, as it only moves or chooses among numbers: its result has its operands' parameters, and a Quantize with the
    same ones stands behind it. PASSED: the same without that Quantize, which would be a pass of its own: who reads its
    result quantized finds the Dequantize before it.
    """

    EITHER = "either"
    INTEGERS = "integers"
    FLOATS = "floats"
    READ = "read"
    PASSED = "passed"


class Bias(enum.Enum):
    """How the constant has to be written that a product adds up with, be it an operand of its own or what an Add right
    behind it adds. FLOAT: as it is. INT32: at the scale of the operands' scales multiplied, with Dequantize behind it;
    as a float, the product runs in floats where it hands on floats.
    """

    FLOAT = "float"
    INT32 = "i32"


class Storage(NamedTuple):
    """How numbers are stored: the type, and whether zero is stored as zero."""

    dtype: DType
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One operand that a kernel reads quantized. `dtype`: what stores it; `is_symmetric`: zero is stored as zero, so
    that U8 holds what is nowhere below zero. `also`: other ways to store it, for who reads it elsewhere too; in any
    other way the kernel runs in floats, or answers wrong.

    `is_weight`: it has to be a constant. `axis`: the axis with a scale of its own for each slice, counted from the back
    where below 0; None where the whole tensor has one. `rank`: the axes that it has to have, if a number of them.
    `and_rest`: every operand behind it is read like it, with the same parameters where the kernel hands on what it
    reads. `not_from`: operators of whose results, moved or as they are, the kernel takes the first way to store alone.
    `is_binding`: where a Dequantize stands before it the runtime reads integers, whatever is planned, and answers wrong
    if they are stored in another way: what it reads, as it is or past what keeps its steps, is stored so for all who
    read it or not at all.
    """

    position: int
    dtype: DType = DType.UINT8
    is_symmetric: bool = False
    is_weight: bool = False
    axis: int | None = None
    also: tuple[Storage, ...] = ()
    rank: int | None = None
    and_rest: bool = False
    not_from: frozenset[str] = frozenset()
    is_binding: bool = False

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Every way to store it, the one to prefer first."""
        return (Storage(self.dtype, self.is_symmetric), *self.also)

    def takes(self, dtype: DType, is_symmetric: bool) -> bool:
        """Whether the kernel reads what is stored so: zero at zero does where any zero point does."""
        return self.rank_of(dtype, is_symmetric) is not None

    def rank_of(self, dtype: DType, is_symmetric: bool) -> int | None:
        """How many ways to store it are preferred to this one; None where the kernel reads nothing stored so."""
        fits = (dtype is one.dtype and (is_symmetric or not one.is_symmetric) for one in self.storages)
        return next((rank for rank, does in enumerate(fits) if does), None)

    def bound_by(self, others: Iterable["Operand"]) -> "Operand | None":
        """The operand, read only as others take it, too; None where there is no such way."""
        ways = [*self.storages]
        for other in others:
            at_zero = (way if other.takes(*way) else way._replace(is_symmetric=True) for way in ways)
            ways = [way for way in at_zero if other.takes(*way)]
        if not ways:
            return None
        return replace(self, dtype=ways[0].dtype, is_symmetric=ways[0].is_symmetric, also=tuple(ways[1:]))


def weight(position: int, axis: int | None = None, rank: int | None = None) -> Operand:
    """A constant in S8 with zero at zero, as every runtime here takes weights."""
    return Operand(position=position, dtype=DType.INT8, is_symmetric=True, is_weight=True, axis=axis, rank=rank)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedKernel:
    """An operator that a target runs on operands quantized to a format.

    `operands` that are not named stay floats; where none is, it reads floats alone, and Quantize behind it costs
    nothing. `followers` are operators, and composites such as "gelu-erf", that it takes in, one behind the other, as
    long as nobody else reads what lies between and what else they read is constant, one number or one per channel:
    Quantize then stands behind the last. `is_cut`: of followers such as Relu nothing is left but Quantize, whose
    smallest and largest number they have to keep. `not_before` are operators that make the runtime
    answer wrong where they read what the kernel makes: there, no such kernel. `is_bare_alone`: so it does where several
    read what a product without a bias makes, moved and scaled or as it is. `attributes` must all match,
    by value or by one of a frozenset. `needs` are features of a machine, any of which it takes to be faster so.

    `is_dynamic`: it finds the range of the data that it reads as it runs, and needs the parameters of its weights
    alone. It reads floats and hands on floats; in a file it is DynamicQuantizeLinear and a product of integers, or
    DynamicQuantizeLSTM.
    """

    dialect: str = "onnx"
    op: str
    operands: tuple[Operand, ...]
    hands: OutputMode
    source: str
    since: str
    followers: frozenset[str] = frozenset()
    is_cut: bool = False
    not_before: frozenset[str] = frozenset()
    is_bare_alone: bool = False
    bias: Bias = Bias.FLOAT
    versions: tuple[int, int] = EVERY_VERSION
    attributes: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    is_dynamic: bool = False
    format: DType = DType.QUANTIZED8

    def __post_init__(self) -> None:
        assert not self.is_dynamic or self.hands is OutputMode.FLOATS, "what finds ranges as it runs hands on floats"
        assert not self.is_dynamic or self.op in DYNAMIC_WEIGHTS, "the front end writes no other so"
        stored = {one.dtype for operand in self.operands for one in operand.storages}
        assert stored <= {*STORED_AS[self.format]}, "operands are stored as the format's numbers are"

    def fits(self, dialect: str, op: str, version: int, attributes: Mapping[str, object]) -> bool:
        """Whether the row is about an operator, as far as its attributes tell."""
        is_its_own = (dialect, op) == (self.dialect, self.op)
        return is_its_own and holds(self.versions, self.attributes, version, attributes)
