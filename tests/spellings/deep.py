"""Harmless models of many layers: what a law gives or takes too much of at each grows with the depth.

Weights are of the size that training starts from, so that values are as large at the last layer as at the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

ROWS, WIDTH, SIDE = 4, 48, 3
_EPSILON = 1e-5


@dataclass
class Stream:
    """A value of the model, and what it holds for data of unit scale: columns are features or channels."""

    name: str
    held: np.ndarray

    @property
    def width(self) -> int:
        return int(self.held.shape[1])


Layer = Callable[[Writer, Stream], Stream]


def _repeat(w: Writer, layer: Layer, times: int, *, is_picture: bool = False) -> Sequence[str]:
    shape = (ROWS, WIDTH, SIDE, SIDE) if is_picture else (ROWS, WIDTH)
    x = Stream(w.normal(*shape), np.random.default_rng(7).standard_normal((512, WIDTH)))
    for _ in range(times):
        x = layer(w, x)
    if is_picture:
        x = Stream(w.op("Flatten", w.op("GlobalAveragePool", x.name)), x.held)
    return [_product(w, x, 8).name]


def _product(w: Writer, x: Stream, width: int = WIDTH, gain: float = 1.0) -> Stream:
    matrix = w.weights(x.width, width, scale=gain / x.width**0.5)
    return Stream(w.op("MatMul", x.name, w.initializer(matrix)), x.held @ matrix)


def _convolved(w: Writer, x: Stream, width: int = WIDTH, gain: float = 1.0) -> Stream:
    """A convolution of one by one: a product over channels."""
    matrix = w.weights(x.width, width, scale=gain / x.width**0.5)
    return Stream(w.op("Conv", x.name, w.initializer(matrix.T[:, :, None, None])), x.held @ matrix)


def _normalized(w: Writer, x: Stream, scales: np.ndarray, shifts: np.ndarray) -> Stream:
    """A batch normalization with the statistics that training leaves: those of what it sees."""
    mean, variance = x.held.mean(0), x.held.var(0)
    operands = [w.initializer(part.astype(np.float32)) for part in (scales, shifts, mean, variance)]
    held = (x.held - mean) / np.sqrt(variance + _EPSILON) * scales + shifts
    return Stream(w.op("BatchNormalization", x.name, *operands, epsilon=_EPSILON), held)


def _scales(w: Writer, width: int) -> np.ndarray:
    return w.numbers.uniform(0.5, 1.5, width).astype(np.float32)


def _relu(w: Writer, x: Stream) -> Stream:
    return Stream(w.op("Relu", x.name), np.maximum(x.held, 0))


def _add(w: Writer, a: Stream, b: Stream) -> Stream:
    return Stream(w.op("Add", a.name, b.name), a.held + b.held)


def rectified(w: Writer) -> Sequence[str]:
    return _repeat(w, lambda w, x: _relu(w, _product(w, x, gain=2**0.5)), 40)


def leaky(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=(2 / 1.04) ** 0.5)
        return Stream(w.op("LeakyRelu", y.name, alpha=0.2), np.where(y.held > 0, y.held, 0.2 * y.held))

    return _repeat(w, layer, 40)


def bounded(w: Writer) -> Sequence[str]:
    """ReLU6, as an operator or by bounds."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=2**0.5)
        return Stream(w.clip(y.name, 0.0, 6.0), np.clip(y.held, 0, 6))

    return _repeat(w, layer, 40)


def larger_than_zero(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=2**0.5)
        return Stream(w.op("Max", y.name, w.constant(0)), np.maximum(y.held, 0))

    return _repeat(w, layer, 40)


def learnt_slopes(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=(2 / 1.0625) ** 0.5)
        slopes = w.initializer(np.full(WIDTH, 0.25, np.float32))
        return Stream(w.op("PRelu", y.name, slopes), np.where(y.held > 0, y.held, 0.25 * y.held))

    return _repeat(w, layer, 40)


def exponential(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=1.0 / float(np.sqrt((x.held**2).mean())))
        return Stream(w.op("Elu", y.name), np.where(y.held > 0, y.held, np.expm1(np.minimum(y.held, 0))))

    return _repeat(w, layer, 32)


def masked(w: Writer) -> Sequence[str]:
    """ReLU by a comparison."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=2**0.5)
        above = w.op("Less", w.constant(0), y.name)
        return Stream(w.op("Mul", y.name, w.as_float(above)), np.maximum(y.held, 0))

    return _repeat(w, layer, 32)


def hard_swish(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=1.2 / float(np.sqrt((x.held**2).mean())))
        gate = w.clip(w.plus(y.name, 3), 0.0, 6.0)
        passed = w.times(w.op("Mul", y.name, gate), 1 / 6)
        return Stream(passed, y.held * np.clip(y.held + 3, 0, 6) / 6)

    return _repeat(w, layer, 8)


def rectified_pictures(w: Writer) -> Sequence[str]:
    """Convolutions and pools as VGG has them."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _relu(w, _convolved(w, x, gain=2**0.5))
        pooled = w.op("MaxPool", y.name, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        return Stream(w.times(w.add(y.name, pooled), 0.5), y.held)

    return _repeat(w, layer, 16, is_picture=True)


def silenced(w: Writer) -> Sequence[str]:
    """SiLU, whose weights are made so much larger that nothing fades."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=1.0 / float(np.sqrt((x.held**2).mean())) if x.held.any() else 1.0)
        return Stream(w.op("Mul", y.name, w.op("Sigmoid", y.name)), y.held / (1 + np.exp(-y.held)))

    return _repeat(w, layer, 12)


def tangents(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _product(w, x, gain=1.3)
        return Stream(w.op("Tanh", y.name), np.tanh(y.held))

    return _repeat(w, layer, 24)


def normalized_rectified(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _convolved(w, x, gain=2**0.5)
        return _relu(w, _normalized(w, y, _scales(w, WIDTH), w.weights(WIDTH, scale=0.2)))

    return _repeat(w, layer, 10, is_picture=True)


def scaled_apart(w: Writer) -> Sequence[str]:
    """A batch normalization whose scale and shift are operators of their own, as Caffe has it."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _convolved(w, x, gain=2**0.5)
        y = _normalized(w, y, np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32))
        scales, shifts = _scales(w, WIDTH), w.weights(WIDTH, scale=0.2)
        scaled = w.op("Mul", y.name, w.initializer(scales[:, None, None]))
        return _relu(w, Stream(w.op("Add", scaled, w.initializer(shifts[:, None, None])), y.held * scales + shifts))

    return _repeat(w, layer, 10, is_picture=True)


def residual(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _relu(w, _normalized(w, _convolved(w, x), _scales(w, WIDTH), w.weights(WIDTH, scale=0.2)))
        y = _normalized(w, _convolved(w, y), _scales(w, WIDTH), w.weights(WIDTH, scale=0.2))
        return _relu(w, _add(w, x, y))

    return _repeat(w, layer, 16, is_picture=True)


def dense(w: Writer) -> Sequence[str]:
    """Every layer reads what all before it made."""

    def layer(w: Writer, x: Stream) -> Stream:
        y = _relu(w, _normalized(w, x, _scales(w, x.width), w.weights(x.width, scale=0.2)))
        y = _convolved(w, y, 12, gain=2**0.5)
        return Stream(w.op("Concat", x.name, y.name, axis=1), np.concatenate([x.held, y.held], 1))

    return _repeat(w, layer, 24, is_picture=True)


def _layer_norm(w: Writer, x: Stream) -> Stream:
    ones, zeros = w.initializer(np.ones(WIDTH, np.float32)), w.initializer(np.zeros(WIDTH, np.float32))
    held = (x.held - x.held.mean(1, keepdims=True)) / np.sqrt(x.held.var(1, keepdims=True) + _EPSILON)
    return Stream(w.op("LayerNormalization", x.name, ones, zeros, axis=-1, epsilon=_EPSILON), held)


def _mixed(w: Writer, x: Stream) -> Stream:
    y = _relu(w, _product(w, x, gain=2**0.5))
    return _product(w, y, gain=2**-0.5)


def normed_before(w: Writer) -> Sequence[str]:
    return _repeat(w, lambda w, x: _add(w, x, _mixed(w, _layer_norm(w, x))), 16)


def normed_after(w: Writer) -> Sequence[str]:
    return _repeat(w, lambda w, x: _layer_norm(w, _add(w, x, _mixed(w, x))), 16)


def gated(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _layer_norm(w, x)
        value, gate = _product(w, y), _product(w, y)
        open_ = w.op("Sigmoid", gate.name)
        passed = Stream(w.op("Mul", value.name, open_), value.held / (1 + np.exp(-gate.held)))
        return _add(w, x, _product(w, passed))

    return _repeat(w, layer, 16)


def attending(w: Writer) -> Sequence[str]:
    def layer(w: Writer, x: Stream) -> Stream:
        y = _layer_norm(w, x)
        query, key, value = (_product(w, y) for _ in range(3))
        scores = w.times(w.op("MatMul", query.name, w.op("Transpose", key.name, perm=[1, 0])), WIDTH**-0.5)
        read = w.op("MatMul", w.op("Softmax", scores, axis=-1), value.name)
        x = _add(w, x, _product(w, Stream(read, value.held * ROWS**-0.5)))
        return _add(w, x, _mixed(w, _layer_norm(w, x)))

    return _repeat(w, layer, 8)


_OPSETS = {"normed_before": 17, "normed_after": 17, "gated": 17, "attending": 17}
_MODELS = (
    rectified, leaky, bounded, larger_than_zero, learnt_slopes, exponential, masked, hard_swish, rectified_pictures,
    silenced, tangents, normalized_rectified, scaled_apart, residual, dense, normed_before, normed_after, gated,
    attending,
)  # fmt: skip

IDIOMS = tuple(
    Idiom("controls", f"deep {write.__name__.replace('_', ' ')}", write, opset=_OPSETS.get(write.__name__, 11), count=1)
    for write in _MODELS
)
