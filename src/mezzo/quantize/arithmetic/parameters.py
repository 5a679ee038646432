"""Scales and zero points: of ranges, and of biases that are added to sums of products."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid, Range
from mezzo.formats.dtypes import FORMATS, HIGH, DType, integer_span
from mezzo.formats.quantization import Quantization

Doubles = npt.NDArray[np.float64]

# Scales are kept normal: some machines take smaller numbers to be zero, and divide by it.
_LEAST, _LARGEST = FORMATS[HIGH].smallest_normal, FORMATS[HIGH].max_finite
# Ranges end here: what is dequantized, a step further at most, is finite.
_WIDEST = _LARGEST / 2
# Half of what an INT32 sum holds; the other half is for the products. Source: MXNet's guard, INT_MAX / 2.
_MOST_BIAS = ((1 << 31) - 1) // 2


def parameters_for(ranges: Range | Sequence[Range], grid: Grid, axis: int | None = None) -> Quantization:
    """The parameters by which a grid covers a range, or each slice's along an axis. Zero is held exactly.

    What is never below zero gets the smallest integer as its zero point, unless the grid is symmetric. A range of zero
    alone gets a scale of 1.
    """
    held = (ranges,) if isinstance(ranges, Range) else ranges
    return parameters_between(np.array([each.low for each in held]), np.array([each.high for each in held]), grid, axis)


def parameters_between(lows: Doubles, highs: Doubles, grid: Grid, axis: int | None = None) -> Quantization:
    """The same of ranges from lows to highs, an entry per slice."""
    low, high = grid.span
    lows, highs = np.maximum(np.minimum(lows, 0.0), -_WIDEST), np.minimum(np.maximum(highs, 0.0), _WIDEST)
    if grid.is_symmetric:
        # Both sides have to fit; of 256 integers there is one more below zero.
        scales = _scales(np.maximum(highs / (high - grid.middle), -lows / (grid.middle - low)))
        zero_points = np.full(len(lows), grid.middle)
    else:
        scales = _scales((highs - lows) / grid.steps)
        zero_points = np.clip(low - np.rint(lows / scales), low, high).astype(np.int64)  # half to even
    return Quantization(
        dtype=grid.dtype, scales=tuple(scales.tolist()), zero_points=tuple(zero_points.tolist()), axis=axis
    )


def bias_parameters(data: Quantization, weights: Quantization, axis: int = 0) -> Quantization:
    """The parameters of a bias that is added to INT32 sums of products: data's scale times the weights', zero at 0.
    `axis`: that of the bias which has an entry per slice of the weights.
    """
    assert data.axis is None, "data has one scale"
    scales = tuple(_as_fp32(np.float32(data.scales[0]) * np.float32(scale)) for scale in weights.scales)
    zero_points = (0,) * len(scales)
    return Quantization(
        dtype=DType.INT32, scales=scales, zero_points=zero_points, axis=None if weights.axis is None else axis
    )


def guarded_weights(weights: Quantization, bias: npt.NDArray[Any], data: Quantization) -> Quantization | None:
    """The weights' parameters, with scales raised where a bias would else take more than half of an INT32 sum, or its
    scale would not be a normal number; None where no FP32 numbers are such scales. `bias` has an entry per slice of the
    weights.
    """
    sizes = np.abs(np.asarray(bias, np.float64)).reshape(-1)
    if weights.axis is None:
        sizes = sizes.max(initial=0.0, keepdims=True)
    assert len(sizes) == len(weights.scales), "a bias has an entry for each slice of the weights"
    wanted = np.maximum(sizes / _MOST_BIAS, _LEAST) / data.scales[0]
    scales = [max(*ends) for ends in zip(weights.scales, map(_fp32_from, wanted.tolist()), strict=True)]
    if max(scales) * max(data.scales[0], 1.0) > _LARGEST:
        return None
    return replace(weights, scales=tuple(scales))


def is_guarded(bias: npt.NDArray[Any], how: Quantization) -> bool:
    """Whether a bias that is held at the scale of sums takes no more than half of an INT32 one."""
    return bool((np.abs(np.asarray(bias, np.float64)) <= _MOST_BIAS * np.array(how.scales)).all())


def quantize_bias(bias: npt.NDArray[Any], how: Quantization) -> npt.NDArray[np.int32]:
    """The integers of a bias, rounded from FP64: QuantizeLinear has no INT32."""
    steps = np.rint(np.asarray(bias, np.float64) / np.array(how.scales))
    low, high = integer_span(DType.INT32) or (0, 0)
    held: npt.NDArray[np.int32] = np.clip(steps, low, high).astype(np.int32)
    return held


def _scales(wanted: Doubles) -> Doubles:
    """FP32 numbers, held in FP64, that are normal; 1 where nothing is to be held."""
    scales: Doubles = np.where(wanted > 0, np.float32(np.maximum(wanted, _LEAST)), np.float32(1)).astype(np.float64)
    return scales


def _fp32_from(least: float) -> float:
    """The smallest FP32 number that is no smaller; infinite past the largest."""
    with np.errstate(over="ignore"):
        found = np.float32(least)
    return float(found if float(found) >= least else np.nextafter(found, np.float32(np.inf)))


def _as_fp32(scale: np.float32) -> float:
    """An FP32 number as Python has it: as a Python float it is the same number."""
    return float(scale)
