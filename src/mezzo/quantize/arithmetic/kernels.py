"""Integer kernels as runtimes compute them, bit for bit: INT32 sums of products, and their way back to eight bits.

A file says Quantize and Dequantize around an operator; a runtime that fuses them sums integers and rounds once, where
the file, taken by its letter, rounds in FP32. Both are within a step of each other. Source: QLinearMatMul-21,
QLinearConv-10, MatMulInteger-10, ConvInteger-10 and DynamicQuantizeLinear-11 of ONNX, with its reference evaluator
(1.23), and ONNX Runtime's kernels (1.31, MLAS, on x86 with VNNI; without, U8 times S8 may saturate at INT16 on the
way, which nothing here does).
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType, integer_span

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]

_STORAGE = {DType.UINT8: np.uint8, DType.INT8: np.int8}


class Style(enum.Enum):
    """Whose rounding. REFERENCE: sums times the factor in FP64, the zero point added, then rounded. ONNXRUNTIME: the
    product in FP32, rounded, then the zero point added. They differ at ties, and where FP32 does not hold the sum.
    """

    REFERENCE = "reference"
    ONNXRUNTIME = "onnxruntime"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """How a convolution's kernel moves: one entry per spatial axis; of pads those before all, then those behind."""

    strides: Sequence[int]
    pads: Sequence[int]
    dilations: Sequence[int]
    groups: int = 1


def matmul_sums(a: Array, b: Array, a_zero: npt.ArrayLike = 0, b_zero: npt.ArrayLike = 0) -> Ints:
    """Sums of products of integers less their zero points, which wrap around as INT32 does. Shapes are MatMul's;
    zero points broadcast against their operands.
    """
    return _wrapped(np.matmul(_less(a, a_zero), _less(b, b_zero)))


def conv_sums(x: Array, w: Array, window: Window, x_zero: int = 0, w_zero: npt.ArrayLike = 0) -> Ints:
    """The same of a convolution: x is [N, C, ...], w [M, C / groups, ...], what is padded counts as the zero point.

    `w_zero` is one number, or one for each of the M.
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
    seen = places[(slice(None), slice(None), *steps, *taps)]
    channels, filters = x.shape[1] // window.groups, w.shape[0] // window.groups
    parts = [
        np.tensordot(
            seen[:, group * channels : (group + 1) * channels],
            kernel[group * filters : (group + 1) * filters],
            axes=([1, *range(axes + 2, 2 * axes + 2)], list(range(1, axes + 2))),
        )
        for group in range(window.groups)
    ]
    return _wrapped(np.moveaxis(np.concatenate(parts, axis=-1), -1, 1))


def _less(integers: Array, zero: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Integers less their zero point, as FP64: its products sum up exactly, and fast."""
    found: npt.NDArray[np.float64] = integers.astype(np.float64) - np.asarray(zero, np.float64)
    return found


def _wrapped(sums: npt.NDArray[np.float64]) -> Ints:
    return sums.astype(np.int64).astype(np.int32)


def factor(x_scale: npt.ArrayLike, w_scale: npt.ArrayLike, y_scale: npt.ArrayLike) -> Floats:
    """What takes sums to steps of the result, in FP32 and in the order in which kernels multiply."""
    x, w, y = (np.asarray(scale, np.float32) for scale in (x_scale, w_scale, y_scale))
    return np.asarray(x * w / y, np.float32)


def requantize(sums: Array, factors: npt.ArrayLike, dtype: DType, zero: int, style: Style) -> Array:
    """INT32 sums as integers of a result, rounded to nearest even and saturated. `factors` broadcast against them."""
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
            held = np.rint(np.clip(steps, np.float32(low - zero), np.float32(high - zero)))
            moved: Array = (held.astype(np.int32) + zero).astype(_STORAGE[dtype])
            return moved


def dynamic_product(x: Floats, w: Array, w_scales: npt.ArrayLike, style: Style) -> Floats:
    """What a product makes of floats by their own range, and of integers around zero: INT32 sums times both scales.

    `w_scales` is one number, or one for each number of a row of the result.
    """
    integers, scale, zero = dynamic_quantize(x, style)
    factors = np.asarray(scale * np.asarray(w_scales, np.float32), np.float32)
    return np.asarray(matmul_sums(integers, w, zero).astype(np.float32) * factors, np.float32)


def dynamic_quantize(x: Floats, style: Style) -> tuple[Array, np.float32, int]:
    """U8 integers of finite numbers by their own range, which takes in zero; with the scale and the zero point."""
    top, bottom = np.float32(max(0.0, x.max(initial=0.0))), np.float32(min(0.0, x.min(initial=0.0)))
    width = top - bottom
    if width == 0:
        # The reference divides even what it puts in place of an empty range.
        scale = np.float32(1) if style is Style.ONNXRUNTIME else np.float32(1) / np.float32(255)
    else:
        scale = np.float32(width / np.float32(255))
    zero = int(np.rint(np.clip(-bottom / scale, 0, 255)))
    integers = np.clip(np.rint(x / scale) + zero, 0, 255).astype(np.uint8)
    return integers, scale, zero
