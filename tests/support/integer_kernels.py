"""Integer kernels as runtimes compute them, bit for bit: INT32 accumulation and requantization to
eight bits.

An ONNX file has Quantize and Dequantize around a float operator, whose result would be rounded in
FP32; a runtime that fuses them accumulates integers and rounds once. The two differ by at most one
step. Source: ONNX QLinearMatMul-21, QLinearConv-10, MatMulInteger-10, ConvInteger-10 and
DynamicQuantizeLinear-11, with its reference evaluator (1.23), and ONNX Runtime's kernels (1.31,
MLAS, on x86; without VNNI pairs of products of U8 and S8 saturate at INT16, which is not modelled
here).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.machine import find_machine
from mezzo.formats.dtypes import DType, integer_span
from mezzo.plugins.discovery import target

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_SUMS = target("onnxruntime-cpu").pair_sum
ADDS_PAIRS = _SUMS is not None and _SUMS.saturates_on(find_machine())
_STORAGE = {DType.UINT8: np.uint8, DType.INT8: np.int8}


class Style(enum.Enum):
    """REFERENCE: sums times the factor in FP64, plus the zero point, rounded. ONNXRUNTIME: the
    product in FP32, rounded, plus the zero point. They differ at ties and for sums beyond FP32's
    precision.
    """

    REFERENCE = "reference"
    ONNXRUNTIME = "onnxruntime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Parameters of a convolution's sliding window, one entry per spatial axis; `pads`: all leading
    ones, then all trailing.
    """

    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    groups: int = 1


def matmul_sums(a: Array, b: Array, a_zero: npt.ArrayLike = 0, b_zero: npt.ArrayLike = 0) -> Ints:
    """INT32 accumulators of an integer MatMul, wrapping on overflow. Zero points broadcast."""
    return _wrapped(np.matmul(_less(a, a_zero), _less(b, b_zero)))


def conv_sums(x: Array, w: Array, window: Window, x_zero: int = 0, w_zero: npt.ArrayLike = 0) -> Ints:
    """INT32 accumulators of a convolution: x is [N, C, ...], w [M, C / groups, ...]; padding equals
    the zero point. `w_zero`: one number, or one per output channel.
    """
    axes = x.ndim - 2
    zeros = np.asarray(w_zero).reshape(-1, *[1] * (axes + 1))
    moved, kernel = _less(x, x_zero), _less(w, zeros)
    sides = [(window.pads[axis], window.pads[axes + axis]) for axis in range(axes)]
    padded = np.pad(moved, [(0, 0), (0, 0), *sides])
    spans = [(size - 1) * step + 1 for size, step in zip(w.shape[2:], window.dilations, strict=True)]
    places = np.lib.stride_tricks.sliding_window_view(padded, spans, tuple(range(2, axes + 2)))
    steps = tuple(slice(None, None, step) for step in window.strides)
    taps = tuple(slice(None, None, step) for step in window.dilations)
    windows = places[(slice(None), slice(None), *steps, *taps)]
    channels, filters = x.shape[1] // window.groups, w.shape[0] // window.groups
    parts = [
        np.tensordot(
            windows[:, group * channels : (group + 1) * channels],
            kernel[group * filters : (group + 1) * filters],
            axes=([1, *range(axes + 2, 2 * axes + 2)], list(range(1, axes + 2))),
        )
        for group in range(window.groups)
    ]
    return _wrapped(np.moveaxis(np.concatenate(parts, axis=-1), -1, 1))


def _less(integers: Array, zero: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Integers minus their zero point, as FP64, whose matmuls are exact here, and fast."""
    shifted: npt.NDArray[np.float64] = integers.astype(np.float64) - np.asarray(zero, np.float64)
    return shifted


def _wrapped(sums: npt.NDArray[np.float64]) -> Ints:
    return sums.astype(np.int64).astype(np.int32)


def factor(x_scale: npt.ArrayLike, w_scale: npt.ArrayLike, y_scale: npt.ArrayLike) -> Floats:
    """The factor from accumulators to output steps, in FP32 and in the kernels' order."""
    x, w, y = (np.asarray(scale, np.float32) for scale in (x_scale, w_scale, y_scale))
    return np.asarray(x * w / y, np.float32)


def requantize(sums: Array, factors: npt.ArrayLike, dtype: DType, zero: int, style: Style) -> Array:
    """Convert INT32 sums to output integers, rounded half to even and saturated."""
    span = integer_span(dtype)
    assert span is not None, "results are integers"
    low, high = span
    by = np.asarray(factors, np.float32)
    match style:
        case Style.REFERENCE:
            exact = sums.astype(np.float64) * by.astype(np.float64) + zero
            rounded: Array = np.clip(np.rint(exact), low, high).astype(_STORAGE[dtype])
            return rounded
        case Style.ONNXRUNTIME:
            with np.errstate(over="ignore"):
                steps = sums.astype(np.float32) * by
            clipped = np.rint(np.clip(steps, np.float32(low - zero), np.float32(high - zero)))
            integers: Array = (clipped.astype(np.int32) + zero).astype(_STORAGE[dtype])
            return integers


def dynamic_product(x: Floats, w: Array, w_scales: npt.ArrayLike, style: Style) -> Floats:
    """A dynamically quantized matmul: U8 quantized input, symmetric integer weights, INT32 sums
    times both scales. `w_scales`: one number, or one per output column.
    """
    integers, scale, zero = dynamic_quantize(x, style)
    factors = np.asarray(scale * np.asarray(w_scales, np.float32), np.float32)
    return np.asarray(matmul_sums(integers, w, zero).astype(np.float32) * factors, np.float32)


def dynamic_quantize(x: Floats, style: Style) -> tuple[Array, np.float32, int]:
    """Quantize finite numbers to U8 by their range; returns integers, scale, zero point."""
    top, bottom = np.float32(max(0.0, x.max(initial=0.0))), np.float32(min(0.0, x.min(initial=0.0)))
    width = top - bottom
    if width == 0:
        # The reference divides by 255 even the 1 that replaces an empty range.
        scale = np.float32(1) if style is Style.ONNXRUNTIME else np.float32(1) / np.float32(255)
    else:
        scale = np.float32(width / np.float32(255))
    zero = int(np.rint(np.clip(-bottom / scale, 0, 255)))
    integers = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return integers, scale, zero
