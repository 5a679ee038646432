"""Large offsets taken off, differences of near equals, and sums over long axes."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

ROWS, WIDTH = 4, 32
OFFSETS = ({"offset": 30.0}, {"offset": 300.0}, {"offset": 3000.0})
LONG = ({"length": 4096}, {"length": 30000}, {"length": 100000})


def _standardized(w: Writer, x: str, mean: float, spread: float) -> str:
    """(x - mean) / spread of [ROWS, WIDTH], as arithmetic, one affine map or a normalization."""
    match w.choose("Sub, Div", "Sub, Mul", "Mul, Add", "BatchNormalization", "Conv", "Gemm"):
        case "Sub, Mul":
            return w.op("Mul", w.sub(x, w.constant(mean)), w.constant(1 / spread))
        case "Mul, Add":
            return w.op("Add", w.op("Mul", x, w.constant(1 / spread)), w.constant(-mean / spread))
        case "BatchNormalization":
            ones = np.ones(WIDTH, np.float32)
            parts = map(w.initializer, (ones, 0 * ones, ones * np.float32(mean), ones * np.float32(spread**2)))
            return w.op("BatchNormalization", x, *parts, epsilon=1e-5 * spread**2)
        case "Conv":
            kernel = w.initializer(np.array([[[1 / spread]]], np.float32))
            bias = w.initializer(np.array([-mean / spread], np.float32))
            return w.squeeze(w.op("Conv", w.unsqueeze(x, 1), kernel, bias), 1)
        case "Gemm":
            matrix = w.initializer((np.eye(WIDTH) / spread).astype(np.float32))
            return w.op("Gemm", x, matrix, w.initializer(np.full(WIDTH, -mean / spread, np.float32)))
        case _:
            return w.div(w.sub(x, w.constant(mean)), w.constant(spread))


def sensor(w: Writer, mean: float, spread: float) -> Sequence[str]:
    """Kelvin, Pascal, years: the prologue says where the data lies."""
    shape = (ROWS, WIDTH)
    x = w.input("x", 1, shape, lambda r: (mean + spread * r.standard_normal(shape)).astype(np.float32))
    return [w.op("Tanh", _standardized(w, x, mean, spread))]


def running_statistics(w: Writer, offset: float) -> Sequence[str]:
    """A layer whose outputs lie far from 0, and the normalization that learned so."""
    x = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 1.0, offset)
    return [_standardized(w, x, offset, 1.0)]


def there_and_back(w: Writer, offset: float) -> Sequence[str]:
    """(x + c) - c"""
    return [w.plus(w.plus(w.normal(ROWS, WIDTH), offset), -offset)]


def centred(w: Writer, offset: float) -> Sequence[str]:
    x = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 1.0, offset)
    return [w.sub(x, w.mean(x, WIDTH))]


def softmax_of_shifted(w: Writer, offset: float) -> Sequence[str]:
    x = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 2.0, offset)
    match w.choose("Softmax", "LogSoftmax", "by hand"):
        case "LogSoftmax":
            return [w.op("LogSoftmax", x, axis=1)]
        case "by hand":
            e = w.exp(w.sub(x, w.reduce("ReduceMax", x, -1)))
            return [w.div(e, w.sum(e, WIDTH))]
        case _:
            return [w.op("Softmax", x, axis=1)]


def near_a_root(w: Writer) -> Sequence[str]:
    """(x - 1)^3 expanded, for x near 1."""
    x = w.plus(w.times(w.op("Tanh", w.normal(ROWS, WIDTH)), 0.2), 1)
    cube, square = w.mul(w.square(x), x), w.square(x)
    y = w.plus(w.add(w.sub(cube, w.times(square, 3)), w.times(x, 3)), -1)
    return [w.times(y, 100)]


def neighbours(w: Writer, offset: float) -> Sequence[str]:
    """Differences of neighbouring positions."""
    x = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 1.0, offset)
    after = w.op("Slice", x, w.integers(1), w.integers(WIDTH), w.integers(1))
    before = w.op("Slice", x, w.integers(0), w.integers(WIDTH - 1), w.integers(1))
    return [w.sub(after, before)]


def box_size(w: Writer, offset: float) -> Sequence[str]:
    """Corners of boxes from centres and sizes, and their sizes again."""
    centre = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 1.0, offset)
    half = w.times(w.sigmoid(w.normal(ROWS, WIDTH, name="size")), 0.5)
    return [w.sub(w.add(centre, half), w.sub(centre, half))]


def finite_difference(w: Writer) -> Sequence[str]:
    """(f(x + h) - f(x)) / h"""
    x = w.normal(ROWS, WIDTH)
    return [w.times(w.sub(w.op("Tanh", w.plus(x, 1e-3)), w.op("Tanh", x)), 1000)]


def log_ratio(w: Writer) -> Sequence[str]:
    """exp of a difference of nearly equal log-probabilities, less 1."""
    p = w.scaled(w.normal(ROWS, WIDTH), WIDTH, 1.0, -20.0)
    q = w.add(p, w.times(w.op("Tanh", w.normal(ROWS, WIDTH, name="z")), 0.05))
    return [w.times(w.plus(w.exp(w.sub(p, q)), -1), 20)]


def long_sum(w: Writer, length: int) -> Sequence[str]:
    """Of positive numbers, as a mean afterwards."""
    x = w.plus(w.times(w.op("Tanh", w.normal(2, length)), 0.5), 4)
    return [w.times(w.sum(x, length), 1 / length)]


def long_pool(w: Writer, length: int) -> Sequence[str]:
    x = w.plus(w.normal(2, length), 3)
    match w.choose("GlobalAveragePool", "ReduceL1", "ReduceLogSumExp", "ReduceLogSum"):
        case "ReduceL1":
            return [w.times(w.reduce("ReduceL1", x, -1), 1 / length)]
        case "ReduceLogSumExp":
            return [w.reduce("ReduceLogSumExp", w.times(x, 2), -1)]
        case "ReduceLogSum":
            return [w.reduce("ReduceLogSum", w.sigmoid(x), -1)]
        case _:
            return [w.squeeze(w.op("GlobalAveragePool", w.unsqueeze(x, 1)), 1)]


def long_norm(w: Writer, length: int) -> Sequence[str]:
    x = w.plus(w.normal(2, length), 1)
    return [w.div(w.length(x, length), w.constant(float(length) ** 0.5))]


def sum_that_cancels(w: Writer, length: int) -> Sequence[str]:
    """The mean of numbers about 5, less 5."""
    x = w.plus(w.normal(2, length), 5)
    return [w.times(w.plus(w.mean(x, length), -5), length**0.5)]


SENSORS = ({"mean": 290.0, "spread": 5.0}, {"mean": 101325.0, "spread": 800.0}, {"mean": 2000.0, "spread": 12.0},
           {"mean": 1.7e9, "spread": 1e6}, {"mean": 120.0, "spread": 60.0})  # fmt: skip

IDIOMS = (
    Idiom("cancellation", "sensor", sensor, SENSORS, count=3),
    Idiom("cancellation", "running statistics", running_statistics, OFFSETS, count=5),
    Idiom("cancellation", "there and back", there_and_back, OFFSETS, count=3),
    Idiom("cancellation", "centred", centred, OFFSETS, count=4),
    Idiom("cancellation", "softmax of shifted", softmax_of_shifted, OFFSETS, count=4),
    Idiom("cancellation", "near a root", near_a_root, count=9),
    Idiom("cancellation", "neighbours", neighbours, OFFSETS, count=3),
    Idiom("cancellation", "box size", box_size, OFFSETS, count=3),
    Idiom("cancellation", "finite difference", finite_difference, count=7),
    Idiom("cancellation", "ratio of likelihoods", log_ratio, count=7),
    Idiom("cancellation", "long sum", long_sum, LONG, count=3),
    Idiom("cancellation", "long pool", long_pool, LONG, count=4),
    Idiom("cancellation", "long norm", long_norm, LONG[:2], count=4),
    Idiom("cancellation", "mean less a constant", sum_that_cancels, LONG[:2], count=4),
)
