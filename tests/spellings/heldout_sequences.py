"""The held-out batch, part one: recurrences and positions. Not to be read: see heldout.py."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import INT64
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

ROWS = 4


def _slice(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _layer(w: Writer, x: str, rows: int, columns: int, gain: float = 1.0) -> str:
    return w.op("MatMul", x, w.initializer(w.weights(rows, columns, scale=gain / rows**0.5)))


# --- sequences -------------------------------------------------------------------------------------------------------


def mamba(w: Writer, steps: int) -> Sequence[str]:
    """A selective scan: step sizes by softplus, slow channels among quick ones."""
    x = w.normal(steps, 4)
    rates = w.constant(-np.exp(np.linspace(-3, 0, 4)))

    def step(s: list[str], item: str) -> Sequence[str]:
        dt = w.times(w.op("Softplus", w.plus(item, -4.5)), 1.0)
        return [w.add(w.mul(w.exp(w.mul(dt, rates)), s[0]), w.mul(dt, w.plus(item, 1)))]

    return recur(w, x, steps, [np.zeros(4)], step)


def retention(w: Writer, steps: int) -> Sequence[str]:
    """RetNet: a state of outer products, which decays by head."""
    x = w.normal(steps, 8)
    decays = w.constant(1 - 2.0 ** -np.arange(9, 13)[:, None])

    def step(s: list[str], item: str) -> Sequence[str]:
        key, value = _slice(w, item, 0, 4, 0), _slice(w, item, 4, 8, 0)
        outer = w.op("MatMul", w.unsqueeze(w.op("Sigmoid", key), 1), w.unsqueeze(w.op("Sigmoid", value), 0))
        return [w.add(w.mul(s[0], decays), outer)]

    return recur(w, x, steps, [np.zeros((4, 4))], step)


def linear_attention(w: Writer, length: int) -> Sequence[str]:
    """Causal linear attention: cumulative keys and values, and their quotient."""
    q, k, v = (w.op("Elu", w.normal(length, 4, name=name)) for name in "qkv")
    key = w.plus(k, 1)
    total = w.op("CumSum", w.mul(key, v), w.initializer(np.int64(0)))
    size = w.op("CumSum", key, w.initializer(np.int64(0)))
    return [w.div(w.mul(w.plus(q, 1), total), w.plus(w.mul(w.plus(q, 1), size), 1e-6))]


def kalman(w: Writer, steps: int) -> Sequence[str]:
    """A scalar Kalman filter of slow drift: its gain becomes small, its estimate moves little."""
    x = w.plus(w.normal(steps, 4), 5)

    def step(s: list[str], item: str) -> Sequence[str]:
        variance = w.plus(s[1], 1e-6)
        gain = w.div(variance, w.plus(variance, 1))
        return [w.add(s[0], w.mul(gain, w.sub(item, s[0]))), w.mul(w.one_minus(gain), variance)]

    return recur(w, x, steps, [np.zeros(4), np.ones(4)], step)


def sinkhorn(w: Writer) -> Sequence[str]:
    """Optimal transport in the plain domain: exponentials of costs over a small temperature."""
    cost = w.square(w.op("Tanh", w.normal(6, 6)))
    kernel = w.exp(w.times(cost, -12.0))
    one = w.op("ConstantOfShape", w.integers(6, 1))
    start = w.plus(one, 1)

    def step(s: list[str]) -> Sequence[str]:
        v = w.div(w.constant(1 / 6), w.op("MatMul", w.op("Transpose", kernel, perm=[1, 0]), s[0]))
        return [w.div(w.constant(1 / 6), w.op("MatMul", kernel, v))]

    (u,) = repeat(w, 10, [start], step)
    return [w.times(w.mul(u, kernel), 1.0)]


def power_iteration(w: Writer) -> Sequence[str]:
    """Spectral norm: a vector normalized again and again, with an epsilon of 1e-12."""
    matrix = w.initializer(w.weights(16, 16, scale=60))
    vector = w.normal(16, 1)

    def step(s: list[str]) -> Sequence[str]:
        y = w.op("MatMul", matrix, s[0])
        return [w.div(y, w.plus(w.op("Sqrt", w.reduce("ReduceSum", w.square(y), 0)), 1e-12))]

    (u,) = repeat(w, 4, [w.op("Tanh", vector)], step)
    return [w.op("MatMul", w.op("Transpose", u, perm=[1, 0]), w.op("MatMul", matrix, u))]


def momentum(w: Writer, steps: int) -> Sequence[str]:
    """Adam's two moments, and the step they make."""
    x = w.times(w.normal(steps, 4), 0.01)

    def step(s: list[str], item: str) -> Sequence[str]:
        first = w.add(w.times(s[0], 0.9), w.times(item, 0.1))
        second = w.add(w.times(s[1], 0.999), w.times(w.square(item), 0.001))
        return [first, second]

    first, second = recur(w, x, steps, [np.zeros(4), np.zeros(4)], step)
    return [w.div(first, w.plus(w.sqrt(second), 1e-8))]


# --- positions -------------------------------------------------------------------------------------------------------


def _places(w: Writer, length: int, name: str = "x") -> str:
    return w.as_float(
        w.op("Range", w.initializer(np.int64(0)), w.initializer(np.int64(length)), w.initializer(np.int64(1)))
    )


def alibi(w: Writer, length: int) -> Sequence[str]:
    """Slopes by head times positions of keys, as Bloom builds it from the mask, for the last queries."""
    mask = w.mask(1, length)
    places = w.op(
        "Mul", w.op("Sub", w.op("CumSum", mask, w.initializer(np.int64(1))), w.initializer(np.int64(1))), mask
    )
    slopes = w.constant(2.0 ** -np.arange(1, 5)[:, None])
    bias = w.mul(slopes, w.as_float(places))
    return [w.op("Softmax", w.add(w.normal(4, length), bias), axis=1)]


def rotary_half(w: Writer, length: int) -> Sequence[str]:
    """Rotary with rotate_half, frequencies from float powers."""
    places = w.unsqueeze(_places(w, length), 1)
    powers = w.times(w.op("Range", w.scalar(0), w.scalar(16), w.scalar(2)), 1 / 16)
    rates = w.op("Reciprocal", w.op("Pow", w.constant(10000.0), powers))
    angles = w.op("MatMul", places, w.unsqueeze(rates, 0))
    both = w.op("Concat", angles, angles, axis=1)
    x = w.normal(length, 16)
    turned = w.op("Concat", w.op("Neg", _slice(w, x, 8, 16)), _slice(w, x, 0, 8), axis=1)
    return [w.add(w.mul(x, w.op("Cos", both)), w.mul(turned, w.op("Sin", both)))]


def bucketed_bias(w: Writer, length: int) -> Sequence[str]:
    """T5: buckets by the logarithm of a distance, and a table of biases."""
    places = w.op("Range", w.initializer(np.int64(0)), w.initializer(np.int64(length)), w.initializer(np.int64(1)))
    d = w.op("Sub", w.initializer(np.int64(length)), places)
    log = w.log(w.times(w.as_float(d), 1 / 16))
    bucket = w.op("Cast", w.plus(w.times(log, 16 / np.log(128 / 16)), 16), to=INT64)
    small = w.op("Less", d, w.initializer(np.int64(16)))
    chosen = w.op("Where", small, d, w.op("Min", bucket, w.initializer(np.int64(31))) if w.opset >= 12 else d)
    bias = w.op("Gather", w.initializer(w.weights(32)), w.op("Mod", chosen, w.initializer(np.int64(32))), axis=0)
    return [w.op("Softmax", w.add(w.normal(2, length), bias), axis=1)]


def swin_positions(w: Writer) -> Sequence[str]:
    """Swin v2: log-spaced relative coordinates through a small network, 16 sigmoid."""
    grid = np.stack(np.meshgrid(np.arange(-7, 8), np.arange(-7, 8)), -1).reshape(-1, 2) * 8 / 7
    table = w.constant(grid)
    log = w.op("Mul", w.op("Sign", table), w.times(w.log(w.plus(w.op("Abs", table), 1)), 1 / np.log(8)))
    bias = _layer(w, w.op("Relu", _layer(w, log, 2, 32)), 32, 4)
    bias = w.times(w.op("Sigmoid", bias), 16)
    return [w.op("Softmax", w.add(w.normal(225, 4), bias), axis=1)]


def boxes(w: Writer, side: int) -> Sequence[str]:
    """YOLO: cell plus offset times stride, width by exponent, and corners as shares of the picture."""
    x = w.normal(side, 4)
    centre = w.times(w.add(w.times(w.op("Sigmoid", _slice(w, x, 0, 2)), 2), w.unsqueeze(_places(w, side), 1)), 8)
    size = w.times(w.square(w.times(w.op("Sigmoid", _slice(w, x, 2, 4)), 2)), 10)
    low, high = w.sub(centre, w.times(size, 0.5)), w.add(centre, w.times(size, 0.5))
    return [w.sub(high, low), w.times(low, 1 / (8 * side))]


def overlap(w: Writer, offset: float) -> Sequence[str]:
    """Intersection over union of boxes far from the origin."""
    corner = w.plus(w.times(w.normal(ROWS, 2), 2), offset)
    size = w.plus(w.times(w.op("Sigmoid", w.normal(ROWS, 2, name="size")), 4), 1)
    other = w.plus(corner, 0.5)
    low, high = w.op("Max", corner, other), w.op("Min", w.add(corner, size), w.add(other, size))
    shared = w.op("Relu", w.sub(high, low))
    area = w.op("Mul", _slice(w, shared, 0, 1), _slice(w, shared, 1, 2))
    whole = w.op("Mul", _slice(w, size, 0, 1), _slice(w, size, 1, 2))
    return [w.div(area, w.plus(w.sub(w.times(whole, 2), area), 1e-7))]


IDIOMS = (
    Idiom("heldout", "selective scan", mamba, ({"steps": 50}, {"steps": 2000}), count=2),
    Idiom("heldout", "retention", retention, ({"steps": 2000},), count=3),
    Idiom("heldout", "linear attention", linear_attention, ({"length": 64}, {"length": 8000}), count=2),
    Idiom("heldout", "Kalman filter", kalman, ({"steps": 2000},), count=3),
    Idiom("heldout", "Sinkhorn", sinkhorn, count=4),
    Idiom("heldout", "power iteration", power_iteration, count=4),
    Idiom("heldout", "moments", momentum, ({"steps": 1500},), count=3),
    Idiom("heldout", "ALiBi", alibi, ({"length": 64}, {"length": 3000}), count=2),
    Idiom("heldout", "rotate half", rotary_half, ({"length": 64}, {"length": 3000}), count=2),
    Idiom("heldout", "bucketed bias", bucketed_bias, ({"length": 3000},), count=3),
    Idiom("heldout", "Swin positions", swin_positions, count=3),
    Idiom("heldout", "box decoding", boxes, ({"side": 80},), count=4),
    Idiom("heldout", "overlap", overlap, ({"offset": 0.0}, {"offset": 600.0}), count=3),
)
