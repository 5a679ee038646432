"""Weights as integers: their parameters, by the largest of them, and the integers themselves."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.arithmetic import quantize
from mezzo.quantize.arithmetic.parameters import parameters_between

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]


def weight_parameters(weights: npt.NDArray[Any], grid: Grid, axis: int | None = None) -> Quantization:
    """The parameters by which a grid holds all weights, of the whole tensor or of each slice along an axis.

    A slice of zeros gets the largest scale of the others: its bias is held as theirs are.
    """
    return _parameters(*_ends(_by_slice(weights, axis)), grid, axis)


def quantize_weights(weights: npt.NDArray[Any], how: Quantization, grid: Grid) -> npt.NDArray[Any]:
    """The integers of weights. Those of a narrow grid leave the smallest out, which QuantizeLinear would use."""
    integers = quantize(weights, how)
    held: npt.NDArray[Any] = np.maximum(integers, integers.dtype.type(grid.span[0]))
    return held


def _parameters(low: Doubles, high: Doubles, grid: Grid, axis: int | None) -> Quantization:
    """The parameters of slices between those ends."""
    made = parameters_between(low, high, grid, axis)
    is_zero = (low == 0) & (high == 0)
    if is_zero.all() or not is_zero.any():
        return made
    scales = np.array(made.scales)
    scales[is_zero] = scales[~is_zero].max()
    return replace(made, scales=tuple(scales.tolist()))


def _by_slice(weights: npt.NDArray[Any], axis: int | None) -> Floats:
    """Weights as FP32, [slices, all else]."""
    floats = np.asarray(weights, np.float32)
    if axis is None:
        return floats.reshape(1, -1)
    return np.ascontiguousarray(np.moveaxis(floats, axis, 0).reshape(floats.shape[axis], -1))


def _ends(rows: Floats) -> tuple[Doubles, Doubles]:
    """The smallest and largest number of each slice and zero."""
    low, high = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    return low.astype(np.float64), high.astype(np.float64)
