"""Norms, variances, distances and their like, at a scale that the model itself makes."""

from collections.abc import Sequence
from itertools import product

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

SCALES, WIDTHS = (1, 30, 100), (64, 1024, 4096)
ROWS = 3
SIZES = tuple({"scale": s, "width": k} for s, k in product(SCALES, WIDTHS))
FEW = ({"scale": 1, "width": 64}, {"scale": 30, "width": 1024}, {"scale": 100, "width": 256})
NARROW = tuple({"scale": s, "width": 64} for s in SCALES)


def _rows(w: Writer, scale: float, width: int, name: str = "x", offset: float = 0.0) -> str:
    return w.scaled(w.normal(ROWS, width, name=name), width, scale, offset)


def _centred(w: Writer, x: str, width: int) -> str:
    return w.sub(x, w.mean(x, width))


def layer_norm(w: Writer, scale: float, width: int) -> Sequence[str]:
    d = _centred(w, _rows(w, scale, width), width)
    n = w.over_root(d, w.plus(w.mean_squares(d, width), 1e-5))
    return [w.add(w.mul(n, w.constant(w.weights(width, scale=0.2, offset=1))), w.constant(w.weights(width)))]


def rms_norm(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    n = w.over_root(x, w.plus(w.mean_squares(x, width), 1e-6))
    return [w.mul(w.constant(w.weights(width, scale=0.2, offset=1)), n)]


def l2_normalized(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    return [w.div(x, w.clip(w.length(x, width), 1e-6, None))]


def l2_by_eps(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    return [w.over_root(x, w.plus(w.sum_squares(x, width), 1e-10))]


def cosine(w: Writer, scale: float, width: int) -> Sequence[str]:
    a, b = _rows(w, scale, width), w.constant(w.weights(ROWS, width, offset=1))
    shared = w.add(a, w.times(b, scale))
    return [w.div(w.dot(shared, b, width), w.mul(w.length(shared, width), w.length(b, width)))]


def deviation(w: Writer, scale: float, width: int) -> Sequence[str]:
    return [w.sqrt(w.mean_squares(_centred(w, _rows(w, scale, width), width), width))]


def variance_by_squares(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    v = w.sub(w.mean_squares(x, width), w.square(w.mean(x, width)))
    return [w.sqrt(w.plus(v, 1e-5))]


def variance_of_shifted(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, 1, width, offset=scale)
    v = w.sub(w.mean_squares(x, width), w.square(w.mean(x, width)))
    return [w.sqrt(w.clip(v, 1e-6, None))]


def squared_distances(w: Writer, scale: float, width: int) -> Sequence[str]:
    """|a|^2 + |b|^2 - 2ab to points nearby."""
    x = _rows(w, 1, width, offset=scale / 10)
    points = w.weights(5, width, offset=scale / 10)
    a, b = w.sum_squares(x, width), w.constant((points**2).sum(1))
    d = w.sub(w.add(a, b), w.times(w.op("MatMul", x, w.constant(points.T)), 2))
    return [w.sqrt(w.clip(d, 0, None))]


def kernel(w: Writer, scale: float, width: int) -> Sequence[str]:
    """A radial basis: exp(-|x - c|^2 / (2 K s^2))"""
    x, centre = _rows(w, scale, width), w.constant(w.weights(width, scale=scale))
    d = w.sum_squares(w.sub(x, centre), width)
    return [w.exp(w.times(d, -0.5 / (width * scale * scale)))]


def mahalanobis(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    whitened = w.op("MatMul", x, w.initializer(w.rotation(width) * np.float32(1.0)))
    d = w.sum_squares(w.mul(whitened, w.constant(w.weights(width, scale=0.1, offset=1))), width)
    return [w.sqrt(w.times(d, 1 / (scale * scale)))]


def log_sum_exp(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = w.times(w.op("Tanh", _rows(w, 1, width)), min(scale, 30.0) / 2)
    return [w.log(w.sum(w.exp(x), width))]


def softplus(w: Writer, scale: float, width: int) -> Sequence[str]:
    return [w.log(w.plus(w.exp(_rows(w, min(scale, 20.0) / 2, width)), 1))]


def energy(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    return [w.log(w.plus(w.sum_squares(x, width), 1e-3))]


def frobenius(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, scale, width)
    flat = w.op("Reshape", x, w.integers(1, -1))
    return [w.div(x, w.length(flat, ROWS * width))]


def instance_norm(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = w.op("Reshape", _rows(w, scale, width), w.integers(ROWS, 4, -1))
    ones = w.initializer(np.ones(4, np.float32)), w.initializer(np.zeros(4, np.float32))
    return [w.op("InstanceNormalization", x, *ones, epsilon=1e-5)]


def group_norm(w: Writer, scale: float, width: int) -> Sequence[str]:
    """Groups as rows of a reshaped matrix."""
    x = w.op("Reshape", _rows(w, scale, width), w.integers(ROWS * 4, -1))
    size = width // 4
    d = _centred(w, x, size)
    n = w.over_root(d, w.plus(w.mean_squares(d, size), 1e-5))
    return [w.op("Reshape", n, w.integers(ROWS, -1))]


def kurtosis(w: Writer, scale: float, width: int) -> Sequence[str]:
    x = _rows(w, min(scale, 30.0), width)
    q = w.square(x)
    return [w.div(w.mean(w.square(q), width), w.square(w.mean(q, width)))]


def correlation(w: Writer, scale: float, width: int) -> Sequence[str]:
    a = _centred(w, _rows(w, scale, width), width)
    b = _centred(w, w.add(_rows(w, scale, width, "z"), a), width)
    return [w.div(w.mean(w.mul(a, b), width), w.sqrt(w.mul(w.mean_squares(a, width), w.mean_squares(b, width))))]


def attention_scores(w: Writer, scale: float, width: int) -> Sequence[str]:
    """softmax(q k / sqrt(d)) where q and k carry a gain that the scale takes off."""
    q, k = _rows(w, scale, width, "q"), _rows(w, scale, width, "k")
    scores = w.op("MatMul", q, w.op("Transpose", k))
    return [w.op("Softmax", w.times(scores, 1 / (scale * scale * np.sqrt(width))), axis=1)]


IDIOMS = (
    Idiom("norms", "layer norm", layer_norm, SIZES, count=3),
    Idiom("norms", "RMS norm", rms_norm, SIZES, count=3),
    Idiom("norms", "L2 normalized", l2_normalized, SIZES, count=2),
    Idiom("norms", "L2 with epsilon", l2_by_eps, FEW, count=4),
    Idiom("norms", "cosine similarity", cosine, SIZES, count=2),
    Idiom("norms", "standard deviation", deviation, SIZES, count=2),
    Idiom("norms", "variance by squares", variance_by_squares, FEW, count=4),
    Idiom("norms", "variance of shifted", variance_of_shifted, ({"scale": 3, "width": 64}, {"scale": 30, "width": 256}),
          count=6),
    Idiom("norms", "squared distances", squared_distances, NARROW, count=5),
    Idiom("norms", "radial basis", kernel, FEW, count=4),
    Idiom("norms", "Mahalanobis", mahalanobis, FEW, count=4),
    Idiom("norms", "log-sum-exp", log_sum_exp, NARROW, count=3),
    Idiom("norms", "softplus", softplus, NARROW, count=3),
    Idiom("norms", "energy", energy, FEW, count=4),
    Idiom("norms", "Frobenius", frobenius, FEW, count=4),
    Idiom("norms", "instance norm", instance_norm, FEW, count=2),
    Idiom("norms", "group norm", group_norm, FEW, count=4),
    Idiom("norms", "kurtosis", kurtosis, NARROW, count=4),
    Idiom("norms", "correlation", correlation, FEW, count=4),
    Idiom("norms", "scores", attention_scores, FEW, count=3),
)  # fmt: skip
