"""Element types and formats, held to what onnx, NumPy and ml_dtypes say of them."""

import math

import ml_dtypes
import numpy as np
import onnx
import pytest

from mezzo.formats.dtypes import FLOATING, FORMATS, HIGH, LOW_DTYPES, QUANTIZED, DType, Format, size_bits

_ONNX = {DType.FLOAT64: onnx.TensorProto.DOUBLE, DType.FLOAT32: onnx.TensorProto.FLOAT}
_NUMPY = {
    dtype: onnx.helper.tensor_dtype_to_np_dtype(_ONNX.get(dtype) or onnx.TensorProto.DataType.Value(dtype.name))
    for dtype in FORMATS.keys() - QUANTIZED - {DType.INT4}
}
# Scaled formats have the range of their scales.
each_format = pytest.mark.parametrize("held", [held for held in FORMATS.values() if held.dtype in _NUMPY], ids=str)


def test_every_dtype_is_spelled_as_onnx_spells_it_and_has_a_short_name() -> None:
    sized = {"FLOAT": "FLOAT32", "DOUBLE": "FLOAT64"}  # the two whose size ONNX does not spell
    spelled = {sized.get(name, name) for name in onnx.TensorProto.DataType.keys()}  # noqa: SIM118  an enum of protobuf
    # What is quantized is a form of FP32 in plans, and no element type of any file.
    assert {dtype.name for dtype in DType} - {dtype.name for dtype in QUANTIZED} == spelled - {"UNDEFINED"}
    short = (
        "f64 f32 f16 bf16 f8e4m3fn f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f6e2m3 f6e3m2 f4e2m1 i64 i32 i16 i8 i4 i2 u64 "
        "u32 u16 u8 u4 u2 bool str int8 fp8 fp8-e5m2 c64 c128"
    )
    assert " ".join(map(str, DType)) == short


@pytest.mark.parametrize("dtype", DType)
def test_size_is_what_the_short_name_says(dtype: DType) -> None:
    digits = "".join(c for c in str(dtype).partition("e")[0] if c.isdigit())
    assert size_bits(dtype) == {DType.BOOL: 8, DType.STRING: 64}.get(dtype) or size_bits(dtype) == int(digits)


@each_format
def test_format_holds_what_its_library_says(held: Format) -> None:
    told = ml_dtypes.finfo(_NUMPY[held.dtype])
    assert (held.dtype, held.size_bytes) == (held.dtype, _NUMPY[held.dtype].itemsize)
    assert held.max_finite == float(told.max)
    assert held.eps == float(told.eps)
    assert held.smallest_normal == float(told.smallest_normal)
    assert held.smallest_subnormal == float(told.smallest_subnormal)
    assert all(FORMATS[dtype].dtype is dtype for dtype in FORMATS)


@each_format
def test_integers_are_exact_up_to_the_largest_that_is(held: Format) -> None:
    largest, kind = held.largest_exact_integer, _NUMPY[held.dtype].type
    assert isinstance(largest, int)
    assert int(kind(largest)) == largest and int(kind(largest - 1)) == largest - 1
    assert int(kind(largest + 1)) != largest + 1


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16])
def test_overflow_begins_where_rounding_gives_infinity(dtype: DType) -> None:
    held, first = FORMATS[dtype], np.float32(FORMATS[dtype].overflow_from)
    below = np.nextafter(first, np.float32(0.0))
    with np.errstate(over="ignore"):
        rounded = np.array([first, below]).astype(_NUMPY[dtype]).astype(np.float64)
    assert float(first) == held.overflow_from
    assert rounded.tolist() == [math.inf, held.max_finite]


def test_what_mezzo_converts_between() -> None:
    assert HIGH is DType.FLOAT32
    assert LOW_DTYPES.items() >= {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}.items()
    assert set(FORMATS) >= {DType.FLOAT64, HIGH, *LOW_DTYPES.values()} and set(FORMATS) >= FLOATING
