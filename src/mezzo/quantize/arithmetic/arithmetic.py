"""Quantize and Dequantize as ONNX defines them, bit for bit.

Source: ONNX QuantizeLinear-25 and DequantizeLinear-25: x / scale in FP32, rounded half to even,
plus the zero point, saturated. NaN and values beyond INT32 are undefined there: here the latter
saturate, and NaN becomes the smallest integer, as in ONNX Runtime (1.31 on x86). In FP8 storage
infinity saturates and NaN stays.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType, integer_span, storage_span
from mezzo.formats.quantization import Quantization

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

# Formats of fewer than eight bits take one byte each.
STORAGE = {
    DType.UINT8: np.uint8, DType.INT8: np.int8, DType.UINT16: np.uint16, DType.INT16: np.int16,
    DType.INT32: np.int32, DType.UINT4: np.uint8, DType.INT4: np.int8, DType.UINT2: np.uint8,
    DType.INT2: np.int8, DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
}  # fmt: skip
# FP32 represents all integers up to here, so clipping in FP32 is exact.
_WIDEST_FLOAT = 1 << 24


def nearest(steps: Array, dtype: DType) -> Array:
    """Round to a storage type, ties to even. Floats saturate; integers are not clipped."""
    if integer_span(dtype) is not None:
        return np.rint(steps)
    low, high = storage_span(dtype)
    rounded: Array = np.clip(steps, low, high).astype(STORAGE[dtype]).astype(steps.dtype)
    return rounded


def quantize(numbers: npt.ArrayLike, how: Quantization) -> Array:
    """Quantize FP32 numbers. Elements in `how.turned` are rounded to the other neighbour."""
    floats = np.asarray(numbers, np.float32)
    scales, zero_points = _parameters(how, floats.ndim)
    low, high = how.span
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = floats / scales
        steps = nearest(exact, how.dtype)
        if integer_span(how.dtype) is None:
            return steps.astype(STORAGE[how.dtype])
        if max(-low, high) > _WIDEST_FLOAT:
            steps = steps.astype(np.float64)
        if how.turned:
            steps = steps + _to_others(exact, how.turned)
        clipped = np.clip(steps, low - zero_points, high - zero_points)
    clipped = np.where(np.isnan(clipped), low - zero_points, clipped)
    return (clipped.astype(np.int64) + zero_points.astype(np.int64)).astype(STORAGE[how.dtype])


def _to_others(steps: Floats, turned: bytes) -> Array:
    """The step (+1 or -1) to the other neighbour where `turned` has a bit; else 0."""
    bits = np.unpackbits(np.frombuffer(turned, np.uint8))[: steps.size].reshape(steps.shape)
    offsets: Array = np.where(bits, np.where(steps >= np.rint(steps), 1, -1), 0)
    return offsets


def dequantize(stored: npt.ArrayLike, how: Quantization) -> Floats:
    """Dequantize to FP32 numbers."""
    integers = np.asarray(stored)
    scales, zero_points = _parameters(how, integers.ndim)
    with np.errstate(over="ignore", under="ignore"):
        floats: Floats = (integers.astype(np.float64) - zero_points).astype(np.float32) * scales
    return floats


def round_trip(numbers: npt.ArrayLike, how: Quantization) -> Floats:
    """Quantize and dequantize FP32 numbers, in FP32 throughout where that is exact."""
    low, high = how.span
    if integer_span(how.dtype) is None or max(-low, high) > _WIDEST_FLOAT:
        return dequantize(quantize(numbers, how), how)
    floats = np.asarray(numbers, np.float32)
    scales, zero_points = _parameters(how, floats.ndim)
    least, most = ((end - zero_points).astype(np.float32) for end in (low, high))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        exact = np.asarray(floats / scales)
        steps = np.asarray(np.rint(exact))
        if how.turned:
            steps += _to_others(exact, how.turned)
        np.clip(steps, least, most, out=steps)
        if np.isnan(steps).any():
            steps = np.where(np.isnan(steps), least, steps)
        steps += 0.0  # integers have no negative zero
        restored: Floats = steps * scales
    return restored


def _parameters(how: Quantization, dimensions: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Scales and zero points, shaped to broadcast against a tensor of that rank."""
    scales, zero_points = np.array(how.scales, np.float32), np.array(how.zero_points, np.int64)
    return laid(scales, dimensions, how.axis), laid(zero_points, dimensions, how.axis)


def laid(numbers: Array, dimensions: int, axis: int | None) -> Array:
    """Reshape numbers, one per tensor or per slice along an axis, for broadcasting."""
    shape = [1] * dimensions
    if axis is not None:
        shape[axis] = len(numbers)
    return numbers.reshape(shape)
