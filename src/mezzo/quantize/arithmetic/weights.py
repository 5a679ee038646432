"""Parameters of quantized weights, from their largest magnitude."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid
from mezzo.formats.neighbouring_pairs import largest_pairs
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.parameters import parameters_between
from mezzo.tables.quantized_kernels import Operand

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


def weight_parameters(
    weights: npt.NDArray[Any], grid: Grid, axis: int | None = None, in_pairs: bool = False
) -> Quantization:
    """The parameters of a grid for all weights of a tensor, or of each slice along an axis.

    `in_pairs`: two neighbours of one sign add up to less than the largest integer plus 2, if each
    is rounded to either neighbour. A slice of zeros gets the largest scale of the others, so that
    its bias has an adequate scale.
    """
    slices = _slices(weights, axis)
    if in_pairs:
        largest = largest_pairs(slices)
        return _parameters(-largest, largest, grid, axis)
    return _parameters(*_ends(slices.reshape(len(slices), -1)), grid, axis)


def weight_grid(operand: Operand) -> Grid:
    """The grid of a weight, without an integer whose negative does not exist."""
    return Grid(dtype=operand.dtype, is_symmetric=operand.is_symmetric, is_narrow=True)


def _parameters(low: Doubles, high: Doubles, grid: Grid, axis: int | None) -> Quantization:
    """The parameters of slices with these lower and upper ends."""
    parameters = parameters_between(low, high, grid, axis)
    is_zero = (low == 0) & (high == 0)
    if is_zero.all() or not is_zero.any():
        return parameters
    scales = np.array(parameters.scales)
    scales[is_zero] = scales[~is_zero].max()
    return replace(parameters, scales=tuple(scales.tolist()))


def _slices(weights: npt.NDArray[Any], axis: int | None) -> Floats:
    """Weights as FP32, the slices along the first axis."""
    floats = np.asarray(weights, np.float32)
    return floats[None] if axis is None else np.ascontiguousarray(np.moveaxis(floats, axis, 0))


def _ends(rows: Floats) -> tuple[Doubles, Doubles]:
    """The smallest and largest element of each slice, zero included."""
    low, high = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    return low.astype(np.float64), high.astype(np.float64)
