"""Weights rounded to the neighbour that suits their product, which is not always the nearest.

What rounding one weight does to a product, the next ones are chosen to undo, as far as their data goes along with its
(error feedback over the Cholesky factor of the inverse of the second moments). Each weight becomes one of its two
neighbours alone: so a bit says which, and no weight leaves its step.

Source: Frantar et al., "GPTQ", 2022; Nagel et al., "Up or Down? Adaptive Rounding", 2020, for the two neighbours.
"""

import numpy as np

from mezzo.contracts.calibrator import Grid
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.arithmetic import laid
from mezzo.quantize.arithmetic.products import Doubles, Floats, Moments, Product

# Of the mean square of what is read: so much noise is taken to be in it, so that few samples are not fitted too well.
_DAMPING = 0.01
_LEAST = float(np.finfo(np.float32).tiny)
# Numbers handled at once: what is computed of them stays in a processor's cache.
_PIECE = 1 << 17
# Weights are rounded in runs of so many, and what a run leaves over is handed on at once.
_RUN = 64
# Matrices of up to so many rows are inverted as they are.
_SMALL = 64
# Parts of a scale that are tried: of 8 bits the best is seldom below 0.8.
_PARTS = tuple(1 - number / 50 for number in range(21))


def weighted_scales(weights: Floats, how: Quantization, grid: Grid, product: Product, moments: Moments) -> Quantization:
    """The parameters whose rounding has the least squared error, each weight's by the mean square of what it is
    multiplied with; some of the largest may be clipped. No slice's error is above that of the parameters given.
    """
    squares = _diagonal(moments, product.columns(weights).shape[1])[:, :, None]
    importance = product.weights(np.broadcast_to(squares, product.columns(weights).shape), weights.shape)
    scales = np.array(how.scales, np.float32)
    parts = np.ones(len(scales))
    rows, counted = (_by_slice(numbers, how.axis) for numbers in (weights, importance))
    step = max(1, _PIECE // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        parts[piece] = _best_parts(rows[piece], scales[piece], counted[piece], grid)
    chosen = np.maximum((parts * scales).astype(np.float32), _LEAST)
    return Quantization(dtype=how.dtype, scales=tuple(map(float, chosen)), zero_points=how.zero_points, axis=how.axis)


def _by_slice(numbers: Floats, axis: int | None) -> Floats:
    """Numbers as [slices along an axis, all else]; one slice where there is none."""
    return numbers.reshape(1, -1) if axis is None else np.moveaxis(numbers, axis, 0).reshape(numbers.shape[axis], -1)


def _best_parts(weights: Floats, scales: Floats, importance: Floats, grid: Grid) -> Doubles:
    """The part of its scale with which each row of weights errs least."""
    best, parts = np.full(len(scales), np.inf), np.ones(len(scales))
    for part in _PARTS:
        tried = (np.float32(part) * scales)[:, None]
        error = np.divide(weights, tried)
        np.clip(np.rint(error, out=error), *grid.span, out=error)
        error *= tried
        error -= weights
        error *= error
        error *= importance
        found = error.sum(axis=1, dtype=np.float64)
        is_better = found < best
        best[is_better], parts[is_better] = found[is_better], part
    return parts


def turned_weights(weights: Floats, how: Quantization, grid: Grid, product: Product, moments: Moments) -> bytes:
    """Which weights are rounded to the other side, as `Quantization.turned` has it."""
    steps = weights / laid(np.array(how.scales, np.float32), weights.ndim, how.axis)
    columns = product.columns(steps).astype(np.float64)
    exact = laid(np.array(how.scales, np.float64), weights.ndim, how.axis)
    scales = product.columns(np.broadcast_to(exact, weights.shape))
    assert moments.sums is not None, "rows were seen"
    size = moments.sums.shape[-1]
    low, high = grid.span
    integers = np.empty_like(columns)
    for group, blocks in enumerate(moments.sums):
        for at, sums in enumerate(blocks):
            part = slice(at * size, min((at + 1) * size, columns.shape[1]))
            held = part.stop - part.start
            square = sums[:held, :held].astype(np.float64) / moments.count
            integers[group, part] = _rounded(columns[group, part], scales[group, part], square, low, high)
    chosen = product.weights(integers, weights.shape)
    is_turned = chosen != np.clip(np.rint(steps), low, high)
    return np.packbits(is_turned.reshape(-1)).tobytes() if is_turned.any() else b""


def _rounded(steps: Doubles, scales: Doubles, square: Doubles, low: int, high: int) -> Doubles:
    """Integers for steps [summed, made], one of the two neighbours of each."""
    order = np.argsort(-np.diag(square), kind="stable")  # what counts most is rounded while all can still undo it
    feedback = _feedback(square[np.ix_(order, order)])
    left, scales = (steps * scales)[order], scales[order]
    below = np.floor(steps[order])
    found = np.empty_like(left)
    for start in range(0, len(left), _RUN):
        end = min(start + _RUN, len(left))
        errors = np.empty((end - start, left.shape[1]))
        for at in range(start, end):
            wanted = np.rint(left[at] / scales[at])
            found[at] = np.clip(np.clip(wanted, below[at], below[at] + 1), low, high)
            errors[at - start] = (left[at] - found[at] * scales[at]) / feedback[at, at]
            left[at + 1 : end] -= np.outer(feedback[at, at + 1 : end], errors[at - start])
        left[end:] -= feedback[start:end, end:].T @ errors
    integers = np.empty_like(found)
    integers[order] = found
    return integers


def _feedback(square: Doubles) -> Doubles:
    """The upper Cholesky factor of the inverse of second moments, with some noise added to each."""
    size = len(square)
    noise = max(_DAMPING * float(np.trace(square)) / size, _LEAST)
    # Read from its end, the lower factor of a matrix is the upper one of the matrix itself, and the inverse of that is
    # the factor of the inverse: a third of the work of inverting first.
    lower = np.linalg.cholesky((square / noise + np.eye(size))[::-1, ::-1])
    return _inverse_of_upper(np.asarray(lower[::-1, ::-1], np.float64))


def _inverse_of_upper(factor: Doubles) -> Doubles:
    """The inverse of a matrix with zeros below its diagonal, by halves: nearly all of it is products."""
    size = len(factor)
    if size <= _SMALL:
        return np.asarray(np.linalg.inv(factor), np.float64)
    half = size // 2
    first, last = _inverse_of_upper(factor[:half, :half]), _inverse_of_upper(factor[half:, half:])
    found = np.zeros_like(factor)
    found[:half, :half], found[half:, half:] = first, last
    found[:half, half:] = -(first @ factor[:half, half:]) @ last
    return found


def _diagonal(moments: Moments, summed: int) -> Doubles:
    """Mean squares of what is summed, [groups, summed]."""
    assert moments.sums is not None, "rows were seen"
    found = np.diagonal(moments.sums, axis1=2, axis2=3).reshape(len(moments.sums), -1)[:, :summed]
    return found.astype(np.float64) / moments.count
