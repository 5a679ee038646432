"""Quantize and Dequantize as ONNX defines them, bit for bit.

Source: ONNX QuantizeLinear-25 and DequantizeLinear-25: x / scale in FP32, rounded half to even, plus the zero point,
saturated. Of NaN, and of what INT32 cannot hold, the standard says nothing that its reference keeps everywhere: here
they saturate too, and NaN becomes the smallest integer, as ONNX Runtime does it (1.31 on x86). Where floats store what
is quantized, infinity saturates, and NaN stays.
"""

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType, integer_span, storage_span
from mezzo.formats.quantization import Quantization

Floats = npt.NDArray[np.float32]
Array = npt.NDArray[Any]

# Formats of fewer bits than a byte are held in one.
STORAGE = {
    DType.UINT8: np.uint8, DType.INT8: np.int8, DType.UINT16: np.uint16, DType.INT16: np.int16,
    DType.INT32: np.int32, DType.UINT4: np.uint8, DType.INT4: np.int8, DType.UINT2: np.uint8, DType.INT2: np.int8,
    DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn, DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
}  # fmt: skip
# FP32 holds integers up to here, so what is clipped in it is clipped right.
_WIDEST_FLOAT = 1 << 24


def nearest(steps: Array, dtype: DType) -> Array:
    """The numbers of a storage that are nearest to some, ties to even; integers beyond those that it holds."""
    if integer_span(dtype) is not None:
        return np.rint(steps)
    low, high = storage_span(dtype)
    held: Array = np.clip(steps, low, high).astype(STORAGE[dtype]).astype(steps.dtype)
    return held


def quantize(numbers: npt.ArrayLike, how: Quantization) -> Array:
    """What stands for FP32 numbers, the other neighbour of those that the parameters say so of."""
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
        held = np.clip(steps, low - zero_points, high - zero_points)
    held = np.where(np.isnan(held), low - zero_points, held)
    return (held.astype(np.int64) + zero_points.astype(np.int64)).astype(STORAGE[how.dtype])


def _to_others(steps: Floats, turned: bytes) -> Array:
    """What leads from the nearest whole number to the other next to each step, where that is to stand for it."""
    bits = np.unpackbits(np.frombuffer(turned, np.uint8))[: steps.size].reshape(steps.shape)
    found: Array = np.where(bits, np.where(steps >= np.rint(steps), 1, -1), 0)
    return found


def dequantize(stored: npt.ArrayLike, how: Quantization) -> Floats:
    """FP32 numbers for what stands for them."""
    held = np.asarray(stored)
    scales, zero_points = _parameters(how, held.ndim)
    with np.errstate(over="ignore", under="ignore"):
        found: Floats = (held.astype(np.float64) - zero_points).astype(np.float32) * scales
    return found


def round_trip(numbers: npt.ArrayLike, how: Quantization) -> Floats:
    """What is left of FP32 numbers once they were quantized and dequantized: of integers that FP32 holds, in FP32."""
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
        steps += 0.0  # integers know no negative zero
        found: Floats = steps * scales
    return found


def _parameters(how: Quantization, dimensions: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Scales and zero points, shaped to go with a tensor."""
    scales, zero_points = np.array(how.scales, np.float32), np.array(how.zero_points, np.int64)
    return laid(scales, dimensions, how.axis), laid(zero_points, dimensions, how.axis)


def laid(numbers: Array, dimensions: int, axis: int | None) -> Array:
    """One number for all of a tensor, where `axis` is None, or one for each slice along it, to broadcast against it."""
    shape = [1] * dimensions
    if axis is not None:
        shape[axis] = len(numbers)
    return numbers.reshape(shape)
