"""Weights judged by their distribution: what a low format loses of it must not depend on the matrix's size."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

SHAPES = ({"rows": 32, "columns": 16}, {"rows": 512, "columns": 48})
TINY = tuple({"scale": s, **shape} for s in (1e-6, 1e-7) for shape in SHAPES)


def _product(w: Writer, x: str, matrix: np.ndarray) -> str:
    """x @ matrix as one of the operators that say so."""
    einsum = ("Einsum ij,jk->ik",) if w.opset >= 12 else ()
    constant = w.constant if matrix.size <= 4096 else w.initializer
    match w.choose("MatMul", "Gemm", "Gemm transB", "Conv 1x1 of channels", *einsum):
        case "Gemm":
            return w.op("Gemm", x, constant(matrix))
        case "Gemm transB":
            return w.op("Gemm", x, constant(matrix.T.copy()), transB=1)
        case "Conv 1x1 of channels":
            kernel = w.initializer(matrix.T[:, :, None].copy())
            return w.squeeze(w.op("Conv", w.unsqueeze(x, 2), kernel), 2)
        case "Einsum ij,jk->ik":
            return w.op("Einsum", x, constant(matrix), equation="ij,jk->ik")
        case _:
            return w.op("MatMul", w.noise(x), constant(matrix))


def _restored(w: Writer, y: str, factor: float) -> str:
    match w.choose("times a constant", "twice times a root", "BatchNormalization"):
        case "twice times a root":
            return w.times(w.times(y, factor**0.5), factor**0.5)
        case _:
            return w.times(y, factor)


def tiny_matrix(w: Writer, scale: float, rows: int, columns: int) -> Sequence[str]:
    """A matrix of 1e-6, and its inverse scale afterwards."""
    y = _product(w, w.normal(3, rows), w.weights(rows, columns, scale=scale))
    return [_restored(w, y, 1 / (scale * rows**0.5))]


def tiny_then_normalized(w: Writer, scale: float, rows: int, columns: int) -> Sequence[str]:
    y = _product(w, w.normal(3, rows), w.weights(rows, columns, scale=scale))
    peak = w.reduce("ReduceMax", w.op("Abs", y), -1)
    return [w.div(y, peak)]


def one_large_entry(w: Writer, scale: float, rows: int, columns: int) -> Sequence[str]:
    """One entry of 1 among tiny ones: every column but its own is of tiny ones alone."""
    matrix = w.weights(rows, columns, scale=scale)
    matrix[0, 0] = 1
    y = _product(w, w.normal(3, rows), matrix)
    return [w.mul(y, w.constant(np.where(np.arange(columns) == 0, 1, 1 / (scale * rows**0.5))))]


def channel_scales(w: Writer, rows: int, columns: int) -> Sequence[str]:
    """Columns between 1e-8 and 1, made alike by what follows."""
    scales = np.logspace(-8, 0, columns).astype(np.float32)
    y = _product(w, w.normal(3, rows), w.weights(rows, columns) * scales)
    return [w.op("Tanh", w.mul(y, w.constant(1 / (scales * rows**0.5))))]


def dead_channels(w: Writer, rows: int, columns: int) -> Sequence[str]:
    """Large in, tiny out, as channels of rescaled ReLU networks are."""
    scales = np.logspace(0, 7, rows).astype(np.float32)
    hidden = _product(w, w.normal(3, columns), w.weights(columns, rows) / scales)
    return [_product(w, w.op("Relu", hidden), w.weights(rows, 8, scale=0.1) * scales[:, None])]


def tiny_embeddings(w: Writer, scale: float, rows: int, columns: int) -> Sequence[str]:
    table = w.initializer(w.weights(rows, columns, scale=scale))
    vectors = w.op("Gather", table, w.ids(rows, 3), axis=0)
    return [w.times(vectors, 1 / scale)]


def tiny_bias(w: Writer, scale: float, rows: int, columns: int) -> Sequence[str]:
    """A bias beside products as small as it is."""
    x = w.times(w.normal(3, rows), scale)
    y = w.add(
        _product(w, x, w.weights(rows, columns) / np.float32(rows**0.5)), w.constant(w.weights(columns, scale=scale))
    )
    return [w.times(y, 1 / scale)]


def huge_matrix(w: Writer, rows: int, columns: int) -> Sequence[str]:
    """Weights within range whose sums are not."""
    y = _product(w, w.normal(3, rows), w.weights(rows, columns, scale=30000))
    return [w.op("Tanh", w.times(y, 1 / (30000 * rows**0.5)))]


def sparse_small(w: Writer, rows: int, columns: int) -> Sequence[str]:
    """Nine in ten are 0, the rest of 1e-7: the largest number says little, and so do the zeros."""
    matrix = w.weights(rows, columns, scale=1e-7) * (w.numbers.random((rows, columns)) < 0.1)
    matrix[0] = 3e-7
    y = _product(w, w.normal(3, rows), matrix.astype(np.float32))
    return [w.times(y, 1e6)]


def difference_of_weights(w: Writer, rows: int, columns: int) -> Sequence[str]:
    """Large weights that are nearly alike in all columns, where only differences count."""
    shared = w.weights(rows, 1, scale=10)
    y = _product(w, w.normal(3, rows), shared + w.weights(rows, columns, scale=0.02))
    return [w.sub(y, w.mean(y, columns))]


IDIOMS = (
    Idiom("weights", "tiny matrix", tiny_matrix, TINY, count=4),
    Idiom("weights", "tiny, normalized", tiny_then_normalized, TINY, count=3),
    Idiom("weights", "one large entry", one_large_entry, TINY, count=3),
    Idiom("weights", "scales by channel", channel_scales, SHAPES, count=4),
    Idiom("weights", "rescaled channels", dead_channels, SHAPES, count=4),
    Idiom("weights", "tiny embeddings", tiny_embeddings, TINY, count=3),
    Idiom("weights", "tiny bias", tiny_bias, TINY, count=3),
    Idiom("weights", "sums past the range", huge_matrix, SHAPES, count=4),
    Idiom("weights", "sparse and small", sparse_small, SHAPES, count=4),
    Idiom("weights", "differences of weights", difference_of_weights, SHAPES, count=4),
)
