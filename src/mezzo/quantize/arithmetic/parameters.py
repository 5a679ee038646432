"""Scales and zero points of ranges, and of biases that are added to INT32 accumulators."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid, Range
from mezzo.formats.dtypes import FORMATS, HIGH, DType, integer_span
from mezzo.formats.quantization import Quantization

Doubles = npt.NDArray[np.float64]

# Scales stay normal numbers: some machines flush subnormals to zero, and divide by it.
_LEAST, _LARGEST = FORMATS[HIGH].smallest_normal, FORMATS[HIGH].max_finite
# Ranges are clipped to this, so that dequantized numbers, up to a step beyond, stay finite.
_WIDEST = _LARGEST / 2
# Half the INT32 range; the other half is for the accumulated products. Source: MXNet's guard,
# INT_MAX / 2.
_MOST_BIAS = ((1 << 31) - 1) // 2


def parameters_for(
    ranges: Range | Sequence[Range], grid: Grid, axis: int | None = None
) -> Quantization:
    """The scale and zero point with which a grid covers a range, or those of each slice along an
    axis. Zero is represented exactly.

    A nonnegative range gets the smallest integer as its zero point, unless the grid is symmetric.
    The range [0, 0] gets a scale of 1.
    """
    slices = (ranges,) if isinstance(ranges, Range) else ranges
    return parameters_between(
        np.array([each.low for each in slices]),
        np.array([each.high for each in slices]),
        grid,
        axis,
    )


def parameters_between(
    lows: Doubles, highs: Doubles, grid: Grid, axis: int | None = None
) -> Quantization:
    """`parameters_for` with arrays of lower and upper ends, an entry per slice."""
    low, high = grid.span
    lows, highs = (
        np.maximum(np.minimum(lows, 0.0), -_WIDEST),
        np.minimum(np.maximum(highs, 0.0), _WIDEST),
    )
    if grid.is_symmetric:
        # Both sides must fit, and there is one more integer below zero than above.
        scales = _scales(np.maximum(highs / (high - grid.middle), -lows / (grid.middle - low)))
        zero_points = np.full(len(lows), grid.middle)
    else:
        scales = _scales((highs - lows) / grid.steps)
        # Half to even.
        zero_points = np.clip(low - np.rint(lows / scales), low, high).astype(np.int64)
    return Quantization(
        dtype=grid.dtype,
        scales=tuple(scales.tolist()),
        zero_points=tuple(zero_points.tolist()),
        axis=axis,
    )


def bias_parameters(data: Quantization, weights: Quantization, axis: int = 0) -> Quantization:
    """The parameters of an INT32 bias: the scale of its input times the weights', zero point 0.
    `axis`: the bias's axis of output channels.
    """
    assert data.axis is None, "data has one scale"
    scales = tuple(
        _as_fp32(np.float32(data.scales[0]) * np.float32(scale)) for scale in weights.scales
    )
    zero_points = (0,) * len(scales)
    return Quantization(
        dtype=DType.INT32,
        scales=scales,
        zero_points=zero_points,
        axis=None if weights.axis is None else axis,
    )


def guarded_weights(
    weights: Quantization, bias: npt.NDArray[Any], data: Quantization
) -> Quantization | None:
    """The weights' parameters, with scales raised where the bias would otherwise take more than
    half the INT32 range, or have a subnormal scale; None if no FP32 scale suffices. `bias` has an
    entry per slice of the weights.
    """
    sizes = np.abs(np.asarray(bias, np.float64)).reshape(-1)
    if weights.axis is None:
        sizes = sizes.max(initial=0.0, keepdims=True)
    assert len(sizes) == len(weights.scales), "a bias has an entry for each slice of the weights"
    least_scales = np.maximum(sizes / _MOST_BIAS, _LEAST) / data.scales[0]
    scales = [
        max(*ends)
        for ends in zip(weights.scales, map(_fp32_from, least_scales.tolist()), strict=True)
    ]
    if max(scales) * max(data.scales[0], 1.0) > _LARGEST:
        return None
    return replace(weights, scales=tuple(scales))


def is_guarded(bias: npt.NDArray[Any], how: Quantization) -> bool:
    """Whether a bias, at the accumulators' scale, takes at most half the INT32 range."""
    return bool((np.abs(np.asarray(bias, np.float64)) <= _MOST_BIAS * np.array(how.scales)).all())


def quantize_bias(bias: npt.NDArray[Any], how: Quantization) -> npt.NDArray[np.int32]:
    """The INT32 integers of a bias, rounded from FP64, as QuantizeLinear has no INT32."""
    steps = np.rint(np.asarray(bias, np.float64) / np.array(how.scales))
    low, high = integer_span(DType.INT32) or (0, 0)
    integers: npt.NDArray[np.int32] = np.clip(steps, low, high).astype(np.int32)
    return integers


def _scales(exact: Doubles) -> Doubles:
    """Scales rounded to normal FP32 numbers, in FP64; 1 for an empty range."""
    scales: Doubles = np.where(
        exact > 0, np.float32(np.maximum(exact, _LEAST)), np.float32(1)
    ).astype(np.float64)
    return scales


def _fp32_from(least: float) -> float:
    """The smallest FP32 number that is at least `least`; infinite above the largest."""
    with np.errstate(over="ignore"):
        rounded = np.float32(least)
    return float(rounded if float(rounded) >= least else np.nextafter(rounded, np.float32(np.inf)))


def _as_fp32(scale: np.float32) -> float:
    """An FP32 number as an equal Python float."""
    return float(scale)
