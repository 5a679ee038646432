"""Weights as integers: their parameters, by the largest of them or by the least error, and the integers themselves."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.core.calibrator import Grid, Range
from mezzo.core.quantization import Quantization
from mezzo.quant.arithmetic import nearest, quantize
from mezzo.quant.parameters import parameters_for

Doubles = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]

# Parts of the largest weight up to which a range is tried. Of 8 bits the best is seldom below 0.8, of 4 about 0.6.
_PARTS = tuple(1 - number / 50 for number in range(1, 31))
# So many weights are tried at once: they stay in a core's own cache.
_AT_ONCE = 1 << 15


def weight_parameters(weights: npt.NDArray[Any], grid: Grid, axis: int | None = None) -> Quantization:
    """The parameters by which a grid holds all weights, of the whole tensor or of each slice along an axis.

    A slice of zeros gets the largest scale of the others: its bias is held as theirs are.
    """
    return _parameters(*_ends(_by_slice(weights, axis)), grid, axis)


def weight_parameters_by_mse(weights: npt.NDArray[Any], grid: Grid, axis: int | None = None) -> Quantization:
    """The parameters by which a grid holds weights with the least squared error, where the largest may be clipped.

    No slice's error is above that by `weight_parameters`, which slices of zeros have.
    """
    rows = _by_slice(weights, axis)
    low, high = _ends(rows)
    best, parts = _squared_errors(rows, _parameters(low, high, grid, axis), grid), np.ones(len(rows))
    for part in _PARTS:
        errors = _squared_errors(rows, _parameters(part * low, part * high, grid, axis), grid)
        is_better = errors < best
        best[is_better], parts[is_better] = errors[is_better], part
    return _parameters(parts * low, parts * high, grid, axis)


def quantize_weights(weights: npt.NDArray[Any], how: Quantization, grid: Grid) -> npt.NDArray[Any]:
    """The integers of weights. Those of a narrow grid leave the smallest out, which QuantizeLinear would use."""
    integers = quantize(weights, how)
    held: npt.NDArray[Any] = np.maximum(integers, integers.dtype.type(grid.span[0]))
    return held


def _parameters(low: Doubles, high: Doubles, grid: Grid, axis: int | None) -> Quantization:
    """The parameters of slices between those ends."""
    made = parameters_for([Range(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True)], grid, axis)
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


def _squared_errors(rows: Floats, how: Quantization, grid: Grid) -> Doubles:
    """The sum of squared errors of each slice."""
    scales = np.array(how.scales, np.float32)[:, None]
    low, high = (np.float32(end) - np.array(how.zero_points, np.float32)[:, None] for end in grid.span)
    found = np.zeros(len(rows))
    width = max(1, min(rows.shape[1], _AT_ONCE))
    height = max(1, _AT_ONCE // width)
    for top in range(0, len(rows), height):
        block = slice(top, top + height)
        for start in range(0, rows.shape[1], width):
            part = rows[block, start : start + width]
            held = nearest(part / scales[block], grid.dtype)
            np.minimum(np.maximum(held, low[block], out=held), high[block], out=held)
            held *= scales[block]
            held -= part
            found[block] += np.einsum("ij,ij->i", held, held, dtype=np.float64)
    return found
