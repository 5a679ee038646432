"""Harmless models of the operators that hurt elsewhere: whoever keeps their heavy operators in FP32 cries wolf."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import BOOL, FLOAT
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

ROWS, WIDTH = 4, 64
HEAVY = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Attention", "LSTM", "GRU", "RNN"})


def _linear(w: Writer, x: str, rows: int = WIDTH, columns: int = WIDTH, gain: float = 1.0) -> str:
    """A layer as it is initialized."""
    y = w.op("MatMul", x, w.initializer(w.weights(rows, columns, scale=gain / rows**0.5)))
    return w.op("Add", y, w.initializer(w.weights(columns, scale=0.02)))


def _hidden(w: Writer) -> str:
    return _linear(w, w.normal(ROWS, WIDTH))


def _head(w: Writer, x: str, rows: int = WIDTH) -> list[str]:
    return [_linear(w, x, rows, 8)]


def perceptron(w: Writer) -> Sequence[str]:
    return _head(w, w.op("Relu", _hidden(w)))


def gelu_by_erf(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.mul(w.times(x, 0.5), w.plus(w.op("Erf", w.times(x, 0.70710678)), 1)))


def gelu_by_tanh(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    cube = w.op("Mul", w.square(x), x)
    inner = w.times(w.add(x, w.times(cube, 0.044715)), 0.79788456)
    return _head(w, w.mul(w.times(x, 0.5), w.plus(w.op("Tanh", inner), 1)))


def gelu_by_sigmoid(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.mul(x, w.op("Sigmoid", w.times(x, 1.702))))


def silu(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.mul(x, w.sigmoid(x)))


def gated(w: Writer) -> Sequence[str]:
    x = w.normal(ROWS, WIDTH)
    return _head(w, w.mul(w.op("Sigmoid", _linear(w, x)), _linear(w, x)))


def mish(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.mul(x, w.op("Tanh", w.op("Softplus", x))))


def hard_swish(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.mul(x, w.times(w.clip(w.plus(x, 3), 0, 6), 1 / 6)))


def clipped(w: Writer) -> Sequence[str]:
    return _head(w, w.clip(_hidden(w), 0, 6))


def quick_maximum(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.op("Max", x, w.times(x, 0.01)))


def normalized(w: Writer) -> Sequence[str]:
    ones, zeros = w.initializer(np.ones(WIDTH, np.float32)), w.initializer(np.zeros(WIDTH, np.float32))
    return _head(w, w.op("LayerNormalization", _hidden(w), ones, zeros, axis=-1, epsilon=1e-5))


def small_norm(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return _head(w, w.over_root(x, w.plus(w.mean_squares(x, WIDTH), 1e-5)))


def small_layer_norm(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    d = w.sub(x, w.mean(x, WIDTH))
    return _head(w, w.over_root(d, w.plus(w.mean_squares(d, WIDTH), 1e-5)))


def batch_norm(w: Writer) -> Sequence[str]:
    parts = (np.ones(WIDTH), np.zeros(WIDTH), w.weights(WIDTH, scale=0.3), np.full(WIDTH, 1.1))
    values = [w.initializer(np.asarray(part, np.float32)) for part in parts]
    return _head(w, w.op("Relu", w.op("BatchNormalization", _hidden(w), *values)))


def _attention(w: Writer, mask: str | None = None) -> list[str]:
    x = w.normal(16, WIDTH)
    q, k, v = (_linear(w, x) for _ in range(3))
    scores = w.times(w.op("MatMul", q, w.op("Transpose", k, perm=[1, 0])), WIDTH**-0.5)
    if mask is not None:
        scores = w.op("Add", scores, mask)
    return _head(w, w.op("MatMul", w.op("Softmax", scores, axis=1), v))


def attention(w: Writer) -> Sequence[str]:
    return _attention(w)


def attention_scaled_before(w: Writer) -> Sequence[str]:
    x = w.normal(16, WIDTH)
    q, k, v = w.times(_linear(w, x), WIDTH**-0.25), w.times(_linear(w, x), WIDTH**-0.25), _linear(w, x)
    return _head(w, w.op("MatMul", w.op("Softmax", w.op("MatMul", q, w.op("Transpose", k, perm=[1, 0])), axis=1), v))


def attention_masked_by_infinity(w: Writer) -> Sequence[str]:
    keep = w.initializer(np.tril(np.ones((16, 16), bool)))
    return _attention(w, w.op("Where", keep, w.scalar(0), w.scalar(-np.inf)))


def attention_masked_by_constant(w: Writer) -> Sequence[str]:
    return _attention(w, w.initializer(np.triu(np.full((16, 16), -1e4, np.float32), 1)))


def attention_masked_by_lowest(w: Writer) -> Sequence[str]:
    keep = w.initializer(np.tril(np.ones((16, 16), bool)))
    return _attention(w, w.op("Where", keep, w.scalar(0), w.scalar(-65504)))


def attention_masked_by_product(w: Writer) -> Sequence[str]:
    m = w.as_float(w.mask(1, 16))
    return _attention(w, w.times(w.one_minus(m), -10000.0))


def softmax_classifier(w: Writer) -> Sequence[str]:
    return [w.op("Softmax", _head(w, _hidden(w))[0], axis=1)]


def log_softmax_classifier(w: Writer) -> Sequence[str]:
    return [w.op("LogSoftmax", _head(w, _hidden(w))[0], axis=1)]


def softmax_by_hand(w: Writer) -> Sequence[str]:
    x = _head(w, _hidden(w))[0]
    e = w.exp(w.op("Sub", x, w.reduce("ReduceMax", x, -1)))
    return [w.div(e, w.sum(e, 8))]


def embeddings(w: Writer) -> Sequence[str]:
    table = w.initializer(w.weights(100, WIDTH))
    return _head(w, w.op("Gather", table, w.ids(100, 6), axis=0))


def embeddings_as_initialized(w: Writer) -> Sequence[str]:
    table = w.initializer(w.weights(100, WIDTH, scale=0.02))
    words = w.op("Gather", table, w.ids(100, 6), axis=0)
    return _head(w, w.op("Relu", w.op("Add", words, w.initializer(w.weights(6, WIDTH, scale=0.02)))))


def weights_as_initialized(w: Writer) -> Sequence[str]:
    """Standard deviation 0.02: some numbers lie near 0, and nothing is lost with them."""
    x = w.normal(ROWS, 768)
    return [
        w.op("MatMul", w.op("Relu", _linear(w, x, 768, 256, gain=0.5)), w.initializer(w.weights(256, 8, scale=0.02)))
    ]


def pruned(w: Writer) -> Sequence[str]:
    """Most weights are 0 or next to it, the others as ever."""
    matrix = w.weights(WIDTH, WIDTH, scale=0.3) * (w.numbers.random((WIDTH, WIDTH)) < 0.2)
    tiny = np.where(matrix == 0, np.float32(1e-9), matrix).astype(np.float32)
    return _head(w, w.op("Relu", w.op("MatMul", w.normal(ROWS, WIDTH), w.initializer(tiny))))


def convolutions(w: Writer) -> Sequence[str]:
    x = w.normal(2, 8, 10, 10)
    y = w.op("Relu", w.op("Conv", x, w.initializer(w.weights(16, 8, 3, 3, scale=0.12)), w.initializer(w.weights(16))))
    y = w.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = w.op("Conv", y, w.initializer(w.weights(16, 16, 3, 3, scale=0.08)))
    return _head(w, w.op("Flatten", w.op("GlobalAveragePool", y), axis=1), 16)


def normalized_convolutions(w: Writer) -> Sequence[str]:
    x = w.normal(2, 8, 8, 8)
    y = w.op("Conv", x, w.initializer(w.weights(16, 8, 3, 3, scale=0.12)))
    parts = (w.weights(16, scale=0.1, offset=1), w.weights(16), w.weights(16, scale=0.2), np.full(16, 0.9))
    y = w.op("BatchNormalization", y, *(w.initializer(np.asarray(part, np.float32)) for part in parts))
    return [w.op("Conv", w.op("Relu", y), w.initializer(w.weights(4, 16, 3, 3, scale=0.08)))]


def depthwise(w: Writer) -> Sequence[str]:
    y = w.op("Conv", w.normal(2, 16, 8, 8), w.initializer(w.weights(16, 1, 3, 3, scale=0.3)), group=16)
    return [w.op("Conv", w.clip(y, 0, 6), w.initializer(w.weights(8, 16, 1, 1, scale=0.25)))]


def upsampled(w: Writer) -> Sequence[str]:
    kernel = w.initializer(w.weights(8, 4, 2, 2, scale=0.3))
    return [w.op("Tanh", w.op("ConvTranspose", w.normal(2, 8, 6, 6), kernel, strides=[2, 2]))]


def residual(w: Writer) -> Sequence[str]:
    x = w.normal(ROWS, WIDTH)
    for _ in range(4):
        x = w.op("Add", x, w.times(w.op("Tanh", _linear(w, x)), 0.3))
    return _head(w, x)


def squeeze_excite(w: Writer) -> Sequence[str]:
    y = w.op("Conv", w.normal(2, 8, 6, 6), w.initializer(w.weights(8, 8, 3, 3, scale=0.12)))
    s = w.op("Conv", w.op("GlobalAveragePool", y), w.initializer(w.weights(8, 8, 1, 1, scale=0.35)))
    return [w.op("Conv", w.mul(y, w.op("Sigmoid", s)), w.initializer(w.weights(4, 8, 1, 1, scale=0.35)))]


def small_sum(w: Writer) -> Sequence[str]:
    return [w.sum(w.op("Relu", _hidden(w)), WIDTH)]


def small_mean(w: Writer) -> Sequence[str]:
    return _head(w, w.mul(_hidden(w), w.mean(w.op("Abs", w.normal(ROWS, WIDTH, name="z")), WIDTH)))


def short_loop(w: Writer) -> Sequence[str]:
    """Four layers that share weights."""
    matrix = w.initializer(w.weights(WIDTH, WIDTH, scale=WIDTH**-0.5))
    (state,) = repeat(w, 4, [w.normal(ROWS, WIDTH)], lambda s: [w.op("Tanh", w.op("MatMul", s[0], matrix))])
    return _head(w, state)


def forgetting(w: Writer) -> Sequence[str]:
    """A recurrence that forgets at once, however long it runs."""
    matrix = w.initializer(w.weights(8, 8, scale=0.15))
    x = w.normal(100, 8)
    start = np.zeros((1, 8))

    def step(s: list[str], item: str) -> Sequence[str]:
        return [w.op("Tanh", w.op("Add", w.op("MatMul", s[0], matrix), w.op("Reshape", item, w.integers(1, 8))))]

    return recur(w, x, 100, [start], step)


def long_short_term(w: Writer) -> Sequence[str]:
    x = w.normal(40, 2, 8)
    weights = w.initializer(w.weights(1, 32, 8, scale=0.35)), w.initializer(w.weights(1, 32, 8, scale=0.3))
    return _head(w, w.squeeze(w.ops("LSTM", [x, *weights], 2, hidden_size=8)[1], 0), 8)


def gated_recurrent(w: Writer) -> Sequence[str]:
    x = w.normal(40, 2, 8)
    weights = w.initializer(w.weights(1, 24, 8, scale=0.35)), w.initializer(w.weights(1, 24, 8, scale=0.3))
    return _head(w, w.squeeze(w.ops("GRU", [x, *weights], 2, hidden_size=8)[1], 0), 8)


def branch(w: Writer) -> Sequence[str]:
    x, goes = _hidden(w), w.input("flag", BOOL, (), lambda _: np.array(True))
    then = w.subgraph("then", [], lambda: [w.op("Relu", x)], [FLOAT])
    other = w.subgraph("else", [], lambda: [w.op("Tanh", x)], [FLOAT])
    return _head(w, w.op("If", goes, then_branch=then, else_branch=other))


def pixels(w: Writer) -> Sequence[str]:
    """0..255 to 0..1 to about one: an offset as large as the spread."""
    x = w.times(w.uniform(0, 255, 2, 3 * 36), 1 / 255)
    y = w.op("Reshape", w.div(w.sub(x, w.constant(0.45)), w.constant(0.225)), w.integers(2, 3, 6, 6))
    return [w.op("Conv", y, w.initializer(w.weights(8, 3, 3, 3, scale=0.2)))]


def guarded_division(w: Writer) -> Sequence[str]:
    x = w.op("Abs", _hidden(w))
    return _head(w, w.div(x, w.plus(w.reduce("ReduceMax", x, -1), 1e-3)))


def gathered(w: Writer) -> Sequence[str]:
    """Integers that stay small, and stay integers."""
    best = w.op("ArgMax", _head(w, _hidden(w))[0], axis=1, keepdims=0)
    return _head(w, w.op("Gather", w.initializer(w.weights(8, WIDTH)), best, axis=0))


def few_positions(w: Writer) -> Sequence[str]:
    places = w.as_float(w.op("Range", *(w.initializer(np.int64(n)) for n in (0, 16, 1))))
    angles = w.op("Mul", w.unsqueeze(places, 1), w.constant(10.0 ** -np.arange(4)))
    return _head(w, w.op("Concat", w.op("Sin", angles), w.op("Cos", angles), axis=1), 8)


def experts(w: Writer) -> Sequence[str]:
    x = w.normal(ROWS, WIDTH)
    gates = w.op("Softmax", _linear(w, x, WIDTH, 2), axis=1)
    first, second = (w.op("Slice", gates, w.integers(n), w.integers(n + 1), w.integers(1)) for n in (0, 1))
    return _head(w, w.add(w.mul(_linear(w, x), first), w.mul(_linear(w, x), second)))


def padded(w: Writer) -> Sequence[str]:
    kept = w.as_float(w.op("Less", w.constant(-0.5), w.normal(ROWS, WIDTH, name="z")))
    return _head(w, w.mul(_hidden(w), kept))


def outer_sum(w: Writer) -> Sequence[str]:
    x = _hidden(w)
    return [w.op("MatMul", w.op("Transpose", x, perm=[1, 0]), w.op("Softmax", x, axis=1))]


def interpolated(w: Writer) -> Sequence[str]:
    a, g = _hidden(w), w.sigmoid(w.normal(ROWS, WIDTH, name="z"))
    b = w.op("Tanh", a)
    return _head(w, w.add(w.mul(g, a), w.mul(w.one_minus(g), b)))


def temperature(w: Writer) -> Sequence[str]:
    return [w.op("Softmax", w.times(_head(w, _hidden(w))[0], 1 / 0.7), axis=1)]


_OPSETS = {"normalized": 17}
_MODELS = (
    perceptron, gelu_by_erf, gelu_by_tanh, gelu_by_sigmoid, silu, gated, mish, hard_swish, clipped, quick_maximum,
    normalized, small_norm, small_layer_norm, batch_norm, attention, attention_scaled_before,
    attention_masked_by_infinity, attention_masked_by_constant, attention_masked_by_lowest,
    attention_masked_by_product, softmax_classifier, log_softmax_classifier, softmax_by_hand, embeddings,
    embeddings_as_initialized, weights_as_initialized, pruned, convolutions, normalized_convolutions, depthwise,
    upsampled, residual, squeeze_excite, small_sum, small_mean, short_loop, forgetting, long_short_term,
    gated_recurrent, branch, pixels, guarded_division, gathered, few_positions, experts, padded, outer_sum,
    interpolated, temperature,
)  # fmt: skip

IDIOMS = tuple(
    Idiom("controls", write.__name__.replace("_", " "), write, opset=_OPSETS.get(write.__name__, 11), count=2)
    for write in _MODELS
)
