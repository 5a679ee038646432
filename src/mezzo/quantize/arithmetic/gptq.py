"""GPTQ rounding of weights: each to the neighbour that keeps its layer's output, not always the
nearest.

Later weights compensate the rounding error of earlier ones, as far as their inputs correlate (error
feedback by the Cholesky factor of the inverse second-moment matrix, GPTQ's Hessian). With scales
that are given, each weight becomes one of its two neighbouring integers: one bit says which, and no
weight moves by more than a step. In blocks, scales and zero points follow the compensation.

Source: Frantar et al., "GPTQ", 2022; Nagel et al., "Up or Down? Adaptive Rounding", 2020, for the
two neighbours.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from mezzo.contracts.calibrator import Grid
from mezzo.contracts.rounding import Rounding
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import storage_span
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.arithmetic import laid
from mezzo.quantize.arithmetic.products import Doubles, Floats, InputMoments, Product

Integers = npt.NDArray[np.int32]
Matrix = TypeVar("Matrix", Floats, Doubles)

# Damping: noise added to the inputs, as a fraction of their mean square, so that few samples are
# not overfitted.
_DAMPING = 0.01
_LEAST = float(np.finfo(np.float32).tiny)
# Elements per block, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 17
# Weights are rounded in blocks of this many rows, and later rows updated once per block.
_RUN = 64
# Outputs that are rounded together in blocks: their intermediate arrays fit into a cache.
_OUTPUTS = 1024
# Matrices up to this size are factored and inverted directly.
_SMALL = 32
# Candidate scales, as fractions of the given one: for 8 bits the best is seldom below 0.8.
_PARTS = tuple(1 - number / 50 for number in range(21))


def weighted_scales(
    weights: Floats, how: Quantization, grid: Grid, product: Product, moments: InputMoments
) -> Quantization:
    """Scales with the least squared rounding error, each weight's error weighted by the mean square
    of its input; the largest weights may be clipped. No slice has a larger error than with the
    given scales.
    """
    squares = _diagonal(moments, product.columns(weights).shape[1])[:, :, None]
    importance = product.weights(
        np.broadcast_to(squares, product.columns(weights).shape), weights.shape
    )
    scales = np.array(how.scales, np.float32)
    parts = np.ones(len(scales))
    rows, counted = (_by_slice(numbers, how.axis) for numbers in (weights, importance))
    step = max(1, _PIECE // max(rows.shape[1], 1))
    for start in range(0, len(rows), step):
        piece = slice(start, start + step)
        parts[piece] = _best_parts(rows[piece], scales[piece], counted[piece], grid)
    chosen = np.maximum((parts * scales).astype(np.float32), _LEAST)
    return Quantization(
        dtype=how.dtype,
        scales=tuple(map(float, chosen)),
        zero_points=how.zero_points,
        axis=how.axis,
    )


def _by_slice(numbers: Floats, axis: int | None) -> Floats:
    """Numbers as [slices along an axis, all else]; one slice without an axis."""
    return (
        numbers.reshape(1, -1)
        if axis is None
        else np.moveaxis(numbers, axis, 0).reshape(numbers.shape[axis], -1)
    )


def _best_parts(weights: Floats, scales: Floats, importance: Floats, grid: Grid) -> Doubles:
    """For each row of weights, the fraction of its scale with the least weighted squared error."""
    best, parts = np.full(len(scales), np.inf), np.ones(len(scales))
    for part in _PARTS:
        scaled = (np.float32(part) * scales)[:, None]
        error = np.divide(weights, scaled)
        np.clip(np.rint(error, out=error), *grid.span, out=error)
        error *= scaled
        error -= weights
        error *= error
        error *= importance
        totals = error.sum(axis=1, dtype=np.float64)
        is_better = totals < best
        best[is_better], parts[is_better] = totals[is_better], part
    return parts


def turned_weights(
    weights: Floats, how: Quantization, grid: Grid, product: Product, moments: InputMoments
) -> bytes:
    """GPTQ rounding: the weights to round to the other neighbour, as bits for
    `Quantization.turned`.
    """
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
            length = part.stop - part.start
            square = sums[:length, :length].astype(np.float64) / moments.count
            integers[group, part] = _rounded(
                columns[group, part], scales[group, part], square, low, high
            )
    chosen = product.weights(integers, weights.shape)
    is_turned = chosen != np.clip(np.rint(steps), low, high)
    return np.packbits(is_turned.reshape(-1)).tobytes() if is_turned.any() else b""


def _rounded(steps: Doubles, scales: Doubles, square: Doubles, low: int, high: int) -> Doubles:
    """Integers for steps [inputs, outputs], each one of its two neighbours."""
    # Inputs with the largest moments are rounded first, while all others can still compensate.
    order = np.argsort(-np.diag(square), kind="stable")
    scales, below = scales[order], np.floor(steps[order])
    rounded = np.empty_like(below)

    def to_neighbour(at: int, remaining: Doubles) -> Doubles:
        nearest = np.rint(remaining[at] / scales[at])
        rounded[at] = np.clip(np.clip(nearest, below[at], below[at] + 1), low, high)
        return np.asarray(rounded[at] * scales[at])

    _round_rows(steps[order] * scales, _feedback(square[np.ix_(order, order)]), _RUN, to_neighbour)
    integers = np.empty_like(rounded)
    integers[order] = rounded
    return integers


class RoundedMatrix(NamedTuple):
    """Integers of shape [inputs, outputs]; scales and zero points of shape [blocks, outputs], as
    DequantizeLinear with `block_size` reads them along axis 0.
    """

    integers: Integers
    scales: Floats
    zero_points: Integers


def round_blocks(
    weights: Floats, feedback: Floats, storage: BlockStorage, base: Rounding
) -> RoundedMatrix:
    """GPTQ rounding of weights [inputs, outputs] in blocks along the inputs. `base` chooses each
    block's scale and zero point, from the weights after the compensation of all earlier blocks.
    Outputs do not depend on each other.

    `feedback`: `error_feedback` of the inputs' second moments, [inputs, inputs].
    """
    inputs, outputs = weights.shape
    result = RoundedMatrix(
        np.empty(weights.shape, np.int32),
        np.empty((-(-inputs // storage.block), outputs), np.float32),
        np.empty((-(-inputs // storage.block), outputs), np.int32),
    )

    def round_some(start: int) -> None:
        columns = slice(start, start + _OUTPUTS)
        rounded = _round_outputs(weights[:, columns], feedback, storage, base)
        for whole, part in zip(result, rounded, strict=True):
            whole[:, columns] = part

    if outputs <= _OUTPUTS:
        return _round_outputs(weights, feedback, storage, base)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(round_some, range(0, outputs, _OUTPUTS)))
    return result


def _round_outputs(
    weights: Floats, feedback: Floats, storage: BlockStorage, base: Rounding
) -> RoundedMatrix:
    inputs, outputs = weights.shape
    block, (low, high) = storage.block, storage_span(storage.dtype)
    scales = np.empty((-(-inputs // block), outputs), np.float32)
    zeros, integers = np.empty(scales.shape, np.int32), np.empty(weights.shape, np.int32)
    # Of the block at hand: its scales, zero points and bounds of the levels.
    scale = zero = least = most = np.empty(0, np.float32)

    def to_grid(at: int, remaining: Floats) -> Floats:
        nonlocal scale, zero, least, most
        number = at // block
        if at % block == 0:
            padded = np.zeros((outputs, block), np.float32)
            padded[:, : inputs - at] = remaining[at : at + block].T
            _, scales[number], zeros[number] = base.round(padded, storage)
            scale, zero = scales[number], zeros[number].astype(np.float32)
            least, most = low - zero, high - zero
        levels = np.rint(remaining[at] / scale)
        np.minimum(np.maximum(levels, least, out=levels), most, out=levels)
        integers[at] = levels + zero
        return np.asarray(levels * scale)

    # A block whose grid is chosen has no row outside the run with updates still to come.
    run = _RUN if block % _RUN == 0 else block * max(1, _RUN // block)
    _round_rows(np.array(weights, np.float32, order="C"), feedback, run, to_grid)
    return RoundedMatrix(integers, scales, zeros)


def error_feedback(square: Doubles) -> Floats:
    """How much of each input's rounding error all later inputs take over, of second moments
    [inputs, inputs] in `round_blocks`.
    """
    return _feedback(square).astype(np.float32)


def _round_rows(
    remaining: Matrix, feedback: Matrix, run: int, rounded: Callable[[int, Matrix], Matrix]
) -> None:
    """Round the rows of weights [inputs, outputs] in order; later rows, which are overwritten,
    compensate the error of each as `feedback` says. `rounded` returns one row's dequantized
    weights; rows after the end of its run of `run` rows are updated with the run.
    """
    for start in range(0, len(remaining), run):
        end = min(start + run, len(remaining))
        errors = np.empty((end - start, remaining.shape[1]), remaining.dtype)
        for at in range(start, end):
            errors[at - start] = (remaining[at] - rounded(at, remaining)) / feedback[at, at]
            remaining[at + 1 : end] -= feedback[at, at + 1 : end, None] * errors[at - start]
        remaining[end:] -= feedback[start:end, end:].T @ errors


def _feedback(square: Doubles) -> Doubles:
    """The upper Cholesky factor of the inverse of the damped second-moment matrix."""
    size = len(square)
    noise = max(_DAMPING * float(np.trace(square)) / size, _LEAST)
    return _inverse_factor(square / noise + np.eye(size))


def _inverse_factor(square: Doubles) -> Doubles:
    """The upper Cholesky factor of the inverse of a positive definite matrix, by recursive halves.

    That is mostly matmuls, of which a few large ones run in parallel; LAPACK's threads wait for
    each other at every column block, which takes several times as long on a busy machine.
    """
    size = len(square)
    if size <= _SMALL:
        # The lower Cholesky factor of the matrix reversed in both axes, reversed again, is upper.
        lower = np.linalg.cholesky(square[::-1, ::-1])
        return np.asarray(np.linalg.inv(lower[::-1, ::-1]), np.float64)
    half = size // 2
    last = _inverse_factor(square[half:, half:])
    shared = square[:half, half:] @ last.T
    first = _inverse_factor(square[:half, :half] - shared @ shared.T)
    inverse = np.zeros_like(square)
    inverse[:half, :half], inverse[half:, half:] = first, last
    inverse[:half, half:] = -(first @ shared) @ last
    return inverse


def _diagonal(moments: InputMoments, summed: int) -> Doubles:
    """Mean squares of the inputs, [groups, inputs]."""
    assert moments.sums is not None, "rows were seen"
    diagonal = np.diagonal(moments.sums, axis1=2, axis2=3).reshape(len(moments.sums), -1)[
        :, :summed
    ]
    return diagonal.astype(np.float64) / moments.count
