"""Element types, and the range and precision of each floating-point format."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


class DType(enum.Enum):
    """Element type of a value, named as in ONNX except for quantized formats. The enum's value is
    the short name in dumps.
    """

    FLOAT64 = "f64"
    FLOAT32 = "f32"
    FLOAT16 = "f16"
    BFLOAT16 = "bf16"
    FLOAT8E4M3FN = "f8e4m3fn"
    FLOAT8E4M3FNUZ = "f8e4m3fnuz"
    FLOAT8E5M2 = "f8e5m2"
    FLOAT8E5M2FNUZ = "f8e5m2fnuz"
    FLOAT8E8M0 = "f8e8m0"
    FLOAT6E2M3 = "f6e2m3"
    FLOAT6E3M2 = "f6e3m2"
    FLOAT4E2M1 = "f4e2m1"
    INT64 = "i64"
    INT32 = "i32"
    INT16 = "i16"
    INT8 = "i8"
    INT4 = "i4"
    INT2 = "i2"
    UINT64 = "u64"
    UINT32 = "u32"
    UINT16 = "u16"
    UINT8 = "u8"
    UINT4 = "u4"
    UINT2 = "u2"
    BOOL = "bool"
    STRING = "str"
    QUANTIZED8 = (  # 8-bit integers with a scale; `Quantization.dtype` says whether INT8 or UINT8
        "int8"
    )
    QUANTIZED_E4M3 = "fp8"  # FP8 with a scale
    QUANTIZED_E5M2 = "fp8-e5m2"
    COMPLEX64 = "c64"
    COMPLEX128 = "c128"

    # Enum's own hash hashes the name on every call; identity is ten times faster.
    __hash__ = object.__hash__

    def __str__(self) -> str:
        return self.value


# Between the ranges of FP16 (6.5e4) and BF16 (3e38, as FP32).
_WIDE_RANGE = 1e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """Range and precision of a floating-point format. `eps` is the gap after 1.0. `words` are its
    names, the first the one that options use.
    """

    dtype: DType
    size_bytes: int
    max_finite: float
    smallest_normal: float
    smallest_subnormal: float
    eps: float
    words: tuple[str, ...] = ()

    @property
    def largest_exact_integer(self) -> int:
        """Largest n such that every integer of magnitude up to n is exact. f16: 2048."""
        return int(2 / self.eps)

    @property
    def overflow_from(self) -> float:
        """Smallest magnitude that rounds to nearest even as infinity. f16: 65520.0."""
        return self.max_finite * (1 + self.eps / 2 / (2 - self.eps))

    @property
    def is_wide(self) -> bool:
        """Whether the range is about that of FP32, as BF16's is."""
        return self.max_finite >= _WIDE_RANGE


# Source: IEEE 754-2019 (f64, f32, f16); bf16 is f32 truncated to 16 bits.
FORMATS: dict[DType, Format] = {
    DType.FLOAT64: Format(
        dtype=DType.FLOAT64,
        size_bytes=8,
        max_finite=1.7976931348623157e308,
        smallest_normal=2.0**-1022,
        smallest_subnormal=2.0**-1074,
        eps=2.0**-52,
        words=("fp64", "float64", "double", "f64", "binary64"),
    ),
    DType.FLOAT32: Format(
        dtype=DType.FLOAT32,
        size_bytes=4,
        max_finite=3.4028234663852886e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-149,
        eps=2.0**-23,
        words=("fp32", "float32", "float", "single", "f32", "binary32", "full"),
    ),
    DType.FLOAT16: Format(
        dtype=DType.FLOAT16,
        size_bytes=2,
        max_finite=65504.0,
        smallest_normal=2.0**-14,
        smallest_subnormal=2.0**-24,
        eps=2.0**-10,
        words=("fp16", "float16", "half", "f16", "binary16"),
    ),
    DType.BFLOAT16: Format(
        dtype=DType.BFLOAT16,
        size_bytes=2,
        max_finite=3.3895313892515355e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-133,
        eps=2.0**-7,
        words=("bf16", "bfloat16", "bfloat", "brainfloat16", "brain16"),
    ),
    # The scale is an FP32 number, so the range is FP32's; a step is 1/256 of the tensor's range.
    DType.QUANTIZED8: Format(
        dtype=DType.QUANTIZED8,
        size_bytes=1,
        max_finite=3.4028234663852886e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-149,
        eps=2.0**-7,
        words=("int8", "i8", "u8", "uint8", "s8", "qint8", "quint8", "q8", "w8a8"),
    ),
    # Of weights in blocks of four bits: a step is an eighth of the block's range.
    DType.INT4: Format(
        dtype=DType.INT4,
        size_bytes=1,
        max_finite=3.4028234663852886e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-149,
        eps=2.0**-3,
    ),
    # Range as above; the largest step is 1/14 (E4M3) and 1/7 (E5M2) of the largest number.
    DType.QUANTIZED_E4M3: Format(
        dtype=DType.QUANTIZED_E4M3,
        size_bytes=1,
        max_finite=3.4028234663852886e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-149,
        eps=2.0**-4,
        words=(
            *(
                "fp8",
                "float8",
                "f8",
                "e4m3",
                "e4m3fn",
                "fp8e4m3",
                "fp8e4m3fn",
                "float8e4m3",
                "float8e4m3fn",
                "f8e4m3",
            ),
            "f8e4m3fn",
        ),
    ),
    DType.QUANTIZED_E5M2: Format(
        dtype=DType.QUANTIZED_E5M2,
        size_bytes=1,
        max_finite=3.4028234663852886e38,
        smallest_normal=2.0**-126,
        smallest_subnormal=2.0**-149,
        eps=2.0**-3,
        words=("fp8-e5m2", "e5m2", "float8e5m2", "f8e5m2", "bf8"),
    ),
}

# Quantized formats and their storage types, preferred first. Signed storage is symmetric: its zero
# point is 0. Conversion needs scales, which come from calibration data.
STORED_AS: Mapping[DType, tuple[DType, ...]] = MappingProxyType(
    {
        DType.QUANTIZED8: (DType.UINT8, DType.INT8),
        DType.QUANTIZED_E4M3: (DType.FLOAT8E4M3FN,),
        DType.QUANTIZED_E5M2: (DType.FLOAT8E5M2,),
    }
)
QUANTIZED: frozenset[DType] = frozenset(STORED_AS)
# Storage types and their quantized formats; INT32 stores biases of INT8 matmuls and convolutions.
STORES: Mapping[DType, DType] = MappingProxyType(
    {stored: dtype for dtype, several in STORED_AS.items() for stored in several}
    | {DType.INT32: DType.QUANTIZED8}
)

HIGH = DType.FLOAT32
LOW_DTYPES: dict[str, DType] = {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}
# Formats that a model can be converted to, by their names in options.
LEVEL_DTYPES: dict[str, DType] = {
    **LOW_DTYPES,
    "int8": DType.QUANTIZED8,
    "fp8": DType.QUANTIZED_E4M3,
    "fp8-e5m2": DType.QUANTIZED_E5M2,
}
# Default formats of policy and target rows that name none. Fixed, unlike LOW_DTYPES: the author of
# a row has to opt in to formats that mezzo adds later.
HALF_FORMATS: frozenset[DType] = frozenset({DType.FLOAT16, DType.BFLOAT16})
FLOATING = frozenset({DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})


def narrow_formats() -> frozenset[DType]:
    """Formats with a range far smaller than FP32's, to which overflow rules apply."""
    return frozenset(dtype for dtype, row in FORMATS.items() if not row.is_wide)


_BITS = {
    DType.FLOAT64: 64, DType.INT64: 64, DType.UINT64: 64, DType.COMPLEX64: 64,
    DType.COMPLEX128: 128, DType.FLOAT32: 32, DType.INT32: 32, DType.UINT32: 32, DType.FLOAT16: 16,
    DType.BFLOAT16: 16, DType.INT16: 16, DType.UINT16: 16, DType.INT4: 4, DType.UINT4: 4,
    DType.FLOAT4E2M1: 4, DType.INT2: 2, DType.UINT2: 2, DType.FLOAT6E2M3: 6, DType.FLOAT6E3M2: 6,
}  # fmt: skip


# Whether each integer type is signed.
_SIGNED = {
    DType.INT64: True, DType.INT32: True, DType.INT16: True, DType.INT8: True, DType.INT4: True,
    DType.INT2: True, DType.UINT64: False, DType.UINT32: False, DType.UINT16: False,
    DType.UINT8: False, DType.UINT4: False, DType.UINT2: False,
}  # fmt: skip


def integer_span(dtype: DType) -> tuple[int, int] | None:
    """Smallest and largest integer of an integer type; None for other types."""
    is_signed = _SIGNED.get(dtype)
    if is_signed is None:
        return None
    bits = size_bits(dtype)
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)


# Largest finite numbers of the FP8 storage types. Source: OCP FP8 1.0.
_LARGEST = {DType.FLOAT8E4M3FN: 448, DType.FLOAT8E5M2: 57344}


def storage_span(dtype: DType) -> tuple[int, int]:
    """Smallest and largest finite number of a storage type of a quantized format."""
    return integer_span(dtype) or (-_LARGEST[dtype], _LARGEST[dtype])


def size_bits(dtype: DType) -> int:
    """Bits per element in memory. Strings count as 64, a pointer."""
    return 64 if dtype is DType.STRING else _BITS.get(dtype, 8)
