"""Parameters of quantized weights, from their largest magnitude."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.parameters import parameters_between

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


def weight_parameters(
    weights: npt.NDArray[Any], grid: Grid, axis: int | None = None
) -> Quantization:
    """The parameters of a grid for all weights of a tensor, or of each slice along an axis.

    A slice of zeros gets the largest scale of the others, so that its bias has an adequate scale.
    """
    return _parameters(*_ends(_by_slice(weights, axis)), grid, axis)


def _parameters(low: Doubles, high: Doubles, grid: Grid, axis: int | None) -> Quantization:
    """The parameters of slices with these lower and upper ends."""
    parameters = parameters_between(low, high, grid, axis)
    is_zero = (low == 0) & (high == 0)
    if is_zero.all() or not is_zero.any():
        return parameters
    scales = np.array(parameters.scales)
    scales[is_zero] = scales[~is_zero].max()
    return replace(parameters, scales=tuple(scales.tolist()))


def _by_slice(weights: npt.NDArray[Any], axis: int | None) -> Floats:
    """Weights as FP32, [slices, all else]."""
    floats = np.asarray(weights, np.float32)
    if axis is None:
        return floats.reshape(1, -1)
    return np.ascontiguousarray(np.moveaxis(floats, axis, 0).reshape(floats.shape[axis], -1))


def _ends(rows: Floats) -> tuple[Doubles, Doubles]:
    """The smallest and largest element of each slice, zero included."""
    low, high = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    return low.astype(np.float64), high.astype(np.float64)
