"""Quantized kernels of a target, and how a file must express them: rows of a target.

Quantized nodes stay float-typed (QDQ format): an operator reads dequantized operands, and a runtime
that finds DequantizeLinear before it, and maybe QuantizeLinear after it, runs the whole in INT8 or
FP8.
"""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from mezzo.formats.dtypes import STORED_AS, DType, storage_span
from mezzo.tables.rows import EVERY_VERSION, holds

# Operators of each composite follower, as `mezzo.analysis.fusion.composites` matches them.
_TANH_PARTS = frozenset({"Add", "Div", "Mul", "Pow", "Tanh"})
COMPOSITES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "gelu-erf": frozenset({"Add", "Div", "Erf", "Mul"}),
        "gelu-tanh": _TANH_PARTS,
        "silu": frozenset({"Mul", "Sigmoid"}),
    }
)

# Operators of each dialect that can be written with dynamic quantization, and the number of their
# weights.
DYNAMIC_WEIGHTS: Mapping[str, Mapping[str, int]] = MappingProxyType(
    {"aten": {"addmm": 1, "linear": 1, "mm": 1}, "onnx": {"Gemm": 1, "LSTM": 2, "MatMul": 1}}
)


class OutputMode(enum.Enum):
    """Output type of a quantized kernel. EITHER: integers or floats, for free. INTEGERS: needs
    QuantizeLinear right after it, or it runs in floats. FLOATS: floats only; QuantizeLinear after
    it is a separate pass. READ: that of its operands, as it only moves or selects elements: the
    result has the operands' parameters and needs QuantizeLinear with them. PASSED: the same without
    that QuantizeLinear, which would be a separate pass: quantized uses of its result take the form
    before its DequantizeLinear.
    """

    EITHER = "either"
    INTEGERS = "integers"
    FLOATS = "floats"
    READ = "read"
    PASSED = "passed"


class Bias(enum.Enum):
    """Form of a matmul's or convolution's bias, whether an operand or the operand of an Add after
    it. FLOAT: unchanged. INT32: at the product of the operands' scales, with DequantizeLinear after
    it; a kernel with float output and a float bias runs in floats.
    """

    FLOAT = "float"
    INT32 = "i32"


class Storage(NamedTuple):
    """How quantized elements are stored: the type, and whether the zero point is 0."""

    dtype: DType
    is_symmetric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One quantized operand of a kernel. `dtype`: storage type; `is_symmetric`: zero is stored as
    zero, so U8 holds non-negative values only. `also`: other accepted storage, for values with
    other uses; with any other the kernel runs in floats, or computes wrong results.

    `is_weight`: must be a constant. `in_pairs`: products of two neighbouring weights are added in
    INT16, which must not saturate. `axis`: of per-channel scales, counted from the back if
    negative; None for per-tensor. `rank`: required rank, if any. `and_rest`: all later operands are
    treated alike, with the same parameters if the kernel only moves data. `not_from`: operators
    from whose results, moved or not, only the first storage is accepted. `is_binding`: after any
    DequantizeLinear the runtime uses integers, planned or not, and computes wrong results with
    other storage: the value is stored so for all uses or not quantized at all.
    """

    position: int
    dtype: DType = DType.UINT8
    is_symmetric: bool = False
    is_weight: bool = False
    in_pairs: bool = False
    axis: int | None = None
    also: tuple[Storage, ...] = ()
    rank: int | None = None
    and_rest: bool = False
    not_from: frozenset[str] = frozenset()
    is_binding: bool = False

    @property
    def storages(self) -> tuple[Storage, ...]:
        """Every accepted storage, the preferred one first."""
        return (Storage(self.dtype, self.is_symmetric), *self.also)

    def takes(self, dtype: DType, is_symmetric: bool) -> bool:
        """Whether the kernel accepts this storage. A zero point of 0 is accepted where any is."""
        return self.rank_of(dtype, is_symmetric) is not None

    def rank_of(self, dtype: DType, is_symmetric: bool) -> int | None:
        """Number of accepted storages preferred to this one; None if it is not accepted."""
        accepted = (
            dtype is storage.dtype and (is_symmetric or not storage.is_symmetric)
            for storage in self.storages
        )
        return next((rank for rank, is_accepted in enumerate(accepted) if is_accepted), None)

    def bound_by(self, others: Iterable["Operand"]) -> "Operand | None":
        """The operand restricted to storage that the others accept too; None if there is none."""
        accepted = [*self.storages]
        for other in others:
            candidates = (
                storage if other.takes(*storage) else storage._replace(is_symmetric=True)
                for storage in accepted
            )
            accepted = [storage for storage in candidates if other.takes(*storage)]
        if not accepted:
            return None
        return replace(
            self,
            dtype=accepted[0].dtype,
            is_symmetric=accepted[0].is_symmetric,
            also=tuple(accepted[1:]),
        )


def storage_of(
    dtype: DType, operands: Iterable[Operand], is_never_negative: bool
) -> tuple[DType, bool]:
    """The storage type, and whether symmetric, that suits most readers and their preferences."""
    requirements = [*operands]

    def worth(way: tuple[DType, bool]) -> tuple[int, int]:
        dtype, is_symmetric = way
        ranks = [
            operand.rank_of(dtype, is_symmetric or is_never_negative) for operand in requirements
        ]
        accepted = [rank for rank in ranks if rank is not None]
        return len(accepted), -sum(accepted)

    return max(((stored, storage_span(stored)[0] < 0) for stored in STORED_AS[dtype]), key=worth)


def sums_values(operands: Sequence[Operand]) -> bool:
    """Whether there are several operands, none of them a weight: one may stay a float."""
    return len(operands) > 1 and not any(operand.is_weight for operand in operands)


def weight(position: int, axis: int | None = None, rank: int | None = None) -> Operand:
    """A constant in S8 with zero point 0, as all runtimes here accept weights."""
    return Operand(
        position=position, dtype=DType.INT8, is_symmetric=True, is_weight=True, axis=axis, rank=rank
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizedKernel:
    """An operator that a target runs on operands quantized to a format.

    `operands` not listed stay floats; without any, the kernel reads floats only, and QuantizeLinear
    after it is free. `followers`: operators, and composites such as "gelu-erf", that it fuses in a
    chain, if the values between have no other use and the followers' other operands are scalar or
    per-channel constants: QuantizeLinear then follows the last. `through`: transposes of a matrix
    that may lie between a weight and the kernel. `is_cut`: followers such as Relu are replaced by
    QuantizeLinear, whose range must express their bounds. `not_before`: operators after which the
    runtime computes wrong results if they use the output: no such kernel there. `is_bare_alone`:
    the same where a product without a bias has several uses, directly or moved and scaled.
    `last_is_float`: the operand that is computed last stays a float, as the product that makes it
    adds the others to its sums. `attributes` must all match, by value or by one of a frozenset.
    `needs`: features of a machine, any of which makes it faster.

    `is_dynamic`: dynamic quantization; only the weights need parameters. Inputs and outputs are
    floats; a file has DynamicQuantizeLinear and an integer matmul, or DynamicQuantizeLSTM, a
    PyTorch program quantize operators whose scale is a tensor.
    """

    dialect: str = "onnx"
    op: str
    operands: tuple[Operand, ...]
    hands: OutputMode
    source: str
    since: str
    followers: frozenset[str] = frozenset()
    through: frozenset[str] = frozenset()
    is_cut: bool = False
    not_before: frozenset[str] = frozenset()
    is_bare_alone: bool = False
    last_is_float: bool = False
    bias: Bias = Bias.FLOAT
    versions: tuple[int, int] = EVERY_VERSION
    attributes: Mapping[str, object] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    is_dynamic: bool = False
    format: DType = DType.QUANTIZED8

    def __post_init__(self) -> None:
        assert not self.is_dynamic or self.hands is OutputMode.FLOATS, (
            "what finds ranges as it runs hands on floats"
        )
        assert not self.is_dynamic or self.op in DYNAMIC_WEIGHTS[self.dialect], (
            "the front end writes no other so"
        )
        assert not self.last_is_float or sums_values(self.operands), "the others are read quantized"
        stored = {storage.dtype for operand in self.operands for storage in operand.storages}
        assert stored <= {*STORED_AS[self.format]}, (
            "operands are stored as the format's numbers are"
        )

    @property
    def only_moves(self) -> bool:
        """Whether it only moves or selects elements, so that its result has its operands' form."""
        return self.hands in (OutputMode.READ, OutputMode.PASSED)

    def fits(self, dialect: str, op: str, version: int, attributes: Mapping[str, object]) -> bool:
        """Whether the row matches an operator, by version and attributes."""
        is_its_own = (dialect, op) == (self.dialect, self.op)
        return is_its_own and holds(self.versions, self.attributes, version, attributes)
