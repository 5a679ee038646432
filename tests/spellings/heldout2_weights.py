"""The second held-out batch, part four: integers and weights, as exporters and hand-written graphs do."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import FLOAT, INT64
from spellings.phrases import Writer

ROWS = 4


def _i64(w: Writer, value: int) -> str:
    return w.initializer(np.int64(value))


def _positions(w: Writer, length: int) -> str:
    """0, 1, 2, ... as whole numbers."""
    return w.op("Range", _i64(w, 0), _i64(w, length), _i64(w, 1))


def _part(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


# --- integers --------------------------------------------------------------------------------------------------------


def dynamic_linear(w: Writer, size: int) -> Sequence[str]:
    """What quantize_dynamic writes."""
    x = w.normal(ROWS, size)
    q, scale, zero = w.ops("DynamicQuantizeLinear", [x], 3)
    weight = w.initializer(w.numbers.integers(-127, 128, (size, 16)).astype(np.int8))
    total = w.op("Cast", w.op("MatMulInteger", q, weight, zero, w.initializer(np.int8(0))), to=FLOAT)
    return [
        w.op("Add", w.op("Mul", total, w.op("Mul", scale, w.constant(4e-4))), w.initializer(w.weights(16, scale=0.1)))
    ]


def dynamic_conv(w: Writer, channels: int) -> Sequence[str]:
    x = w.normal(1, channels, 6, 6)
    q, scale, zero = w.ops("DynamicQuantizeLinear", [x], 3)
    kernel = w.initializer(w.numbers.integers(-127, 128, (4, channels, 3, 3)).astype(np.int8))
    total = w.op("Cast", w.op("ConvInteger", q, kernel, zero, pads=[1, 1, 1, 1]), to=FLOAT)
    return [w.op("Mul", total, w.op("Mul", scale, w.constant(np.full((1, 1, 1, 1), 3e-4))))]


def wide_bias(w: Writer) -> Sequence[str]:
    """A layer whose bias is 32-bit integers times the product of two scales."""
    y = w.op("MatMul", w.normal(ROWS, 32), w.initializer(w.weights(32, 16, scale=0.2)))
    bias = w.initializer(w.numbers.integers(-90000, 90000, 16).astype(np.int32))
    return [w.op("Add", y, w.op("DequantizeLinear", bias, w.scalar(1.5e-5)))]


def alibi_outer(w: Writer, length: int) -> Sequence[str]:
    """Slopes times positions by an outer product, added to scores of the last queries."""
    places = w.op("Cast", _positions(w, length), to=FLOAT)
    bias = w.op("Einsum", w.constant(2.0 ** -np.arange(1.0, 5.0)), places, equation="h,j->hj")
    return [w.op("Softmax", w.op("Add", w.normal(4, length), bias), axis=1)]


def rope_einsum(w: Writer, length: int) -> Sequence[str]:
    places = w.op("Cast", _positions(w, length), to=FLOAT)
    rates = w.constant(1.0 / 10000 ** (np.arange(0, 16, 2) / 16))
    angles = w.op("Einsum", places, rates, equation="i,j->ij")
    x = w.normal(length, 16)
    even, odd = _part(w, x, 0, 8), _part(w, x, 8, 16)
    cos, sin = w.op("Cos", angles), w.op("Sin", angles)
    first = w.op("Sub", w.op("Mul", even, cos), w.op("Mul", odd, sin))
    return [w.op("Concat", first, w.op("Add", w.op("Mul", odd, cos), w.op("Mul", even, sin)), axis=1)]


def rope_ids(w: Writer, high: int) -> Sequence[str]:
    """Positions as the model's own input, times frequencies by a product of matrices."""
    ids = w.ids(high, 1, 24, name="position_ids")
    rates = w.constant((1.0 / 10000 ** (np.arange(0, 16, 2) / 16))[None, :, None])
    angles = w.op("MatMul", rates, w.op("Cast", w.unsqueeze(ids, 1), to=FLOAT))
    both = w.op("Transpose", angles, perm=[0, 2, 1])
    return [w.op("Mul", w.normal(1, 24, 8), w.op("Cos", both)), w.op("Sin", both)]


def timestep(w: Writer) -> Sequence[str]:
    """A diffusion model's embedding of its time step."""
    t = w.ids(1000, ROWS, name="timestep")
    rates = w.op("Exp", w.constant(-np.log(10000) * np.arange(16) / 16))
    angles = w.op("Mul", w.unsqueeze(w.op("Cast", t, to=FLOAT), 1), w.unsqueeze(rates, 0))
    both = w.op("Concat", w.op("Cos", angles), w.op("Sin", angles), axis=-1)
    return [w.op("MatMul", both, w.initializer(w.weights(32, 8, scale=0.2)))]


def pixels(w: Writer, side: int) -> Sequence[str]:
    """A mean over all pixels, whose number is read off the shape."""
    x = w.plus(w.normal(2, 1, side, side), 1)
    shape = w.op("Shape", x)
    height, width = (w.op("Gather", shape, _i64(w, axis), axis=0) for axis in (2, 3))
    count = w.op("Cast", w.op("Mul", height, width), to=FLOAT)
    total = w.op("ReduceSum", w.op("Reshape", x, w.integers(2, -1)), w.integers(1), keepdims=1)
    return [w.op("Div", total, count)]


def present(w: Writer, length: int) -> Sequence[str]:
    """How many entries are set, by NonZero and Shape; a sum over them."""
    mask = w.mask(1, length)
    places = w.op("Shape", w.op("NonZero", mask))
    count = w.op("Cast", w.op("Gather", places, _i64(w, 1), axis=0), to=FLOAT)
    x = w.op("Mul", w.op("Sigmoid", w.normal(1, length)), w.op("Cast", mask, to=FLOAT))
    return [w.op("Div", w.op("ReduceSum", x, w.integers(1), keepdims=1), count), w.times(count, 1 / length)]


def resampled(w: Writer, length: int) -> Sequence[str]:
    """Linear interpolation by hand: where a sample falls, and the share of its right neighbour."""
    places = w.op("Cast", _positions(w, length), to=FLOAT)
    source = w.op("Sub", w.op("Mul", w.op("Add", places, w.constant(0.5)), w.constant(0.37)), w.constant(0.5))
    share = w.op("Sub", source, w.op("Floor", source))
    return [w.op("Mul", w.normal(2, length), share)]


def decayed(w: Writer, length: int) -> Sequence[str]:
    """Attention that decays with the distance of positions."""
    rows = w.op("Cast", w.unsqueeze(_positions(w, length), 0), to=FLOAT)
    distance = w.op("Abs", w.op("Sub", rows, w.op("Cast", w.unsqueeze(w.ids(length, 2), 1), to=FLOAT)))
    weights = w.op("Exp", w.op("Neg", w.op("Div", distance, w.constant(16))))
    return [w.op("MatMul", weights, w.normal(length, 8))]


def keypoints(w: Writer, side: int) -> Sequence[str]:
    """Coordinates of the largest of a heat map, from its flat index."""
    heat = w.normal(ROWS, side * side)
    index = w.op("Cast", w.op("ArgMax", heat, axis=1, keepdims=1), to=FLOAT)
    y = w.op("Floor", w.op("Div", index, w.constant(side)))
    return [w.op("Concat", w.op("Sub", index, w.op("Mul", y, w.constant(side))), y, axis=1)]


def offsets(w: Writer, count: int) -> Sequence[str]:
    """How far tokens are into their segments: positions less cumulative lengths."""
    lengths = w.input("lengths", INT64, (count,), lambda r: r.integers(10, 60, count))
    ends = w.op("Cast", w.op("CumSum", lengths, _i64(w, 0)), to=FLOAT)
    starts = w.op("Sub", ends, w.op("Cast", lengths, to=FLOAT))
    middle = w.op("Add", starts, w.op("Mul", w.op("Cast", lengths, to=FLOAT), w.constant(0.3)))
    return [w.op("Div", w.op("Sub", ends, middle), w.constant(60))]


# --- weights ---------------------------------------------------------------------------------------------------------


def low_rank(w: Writer, scale: float) -> Sequence[str]:
    """Two thin matrices, and what makes up for their scale."""
    down, up = w.initializer(w.weights(64, 4, scale=scale / 8)), w.initializer(w.weights(4, 32, scale=scale / 2))
    return [w.op("Mul", w.op("MatMul", w.op("MatMul", w.normal(ROWS, 64), down), up), w.constant(1 / scale**2))]


def folded_channels(w: Writer, spread: float) -> Sequence[str]:
    """Channels of very different scale, each of which BatchNormalization brings back."""
    sizes = (10.0 ** -w.numbers.uniform(0, spread, 8)).astype(np.float32)
    kernel = w.initializer((w.weights(8, 4, 3, 3, scale=1 / 6) * sizes[:, None, None, None]).astype(np.float32))
    y = w.op("Conv", w.normal(1, 4, 8, 8), kernel)
    parts = [np.ones(8, np.float32), np.zeros(8, np.float32), np.zeros(8, np.float32), sizes**2]
    return [w.op("BatchNormalization", y, *map(w.initializer, parts), epsilon=1e-18)]


def pruned(w: Writer, scale: float) -> Sequence[str]:
    """Nine weights in ten are zero, the others small."""
    matrix = w.weights(128, 32, scale=scale) * (w.numbers.random((128, 32)) < 0.1)
    return [
        w.op(
            "Mul",
            w.op("MatMul", w.normal(ROWS, 128), w.initializer(matrix.astype(np.float32))),
            w.constant(0.3 / scale),
        )
    ]


def tiny_embedding(w: Writer) -> Sequence[str]:
    """Small vectors into a LayerNormalization with a small epsilon."""
    rows = w.op("Gather", w.initializer(w.weights(100, 64, scale=2e-6)), w.ids(100, ROWS), axis=0)
    parts = [w.initializer(np.ones(64, np.float32)), w.initializer(np.zeros(64, np.float32))]
    return [w.op("LayerNormalization", rows, *parts, axis=-1, epsilon=1e-14)]


def tiny_steps(w: Writer) -> Sequence[str]:
    """Quantized weights with a small step, and what makes up for it."""
    weight = w.initializer(w.numbers.integers(-127, 128, (64, 16)).astype(np.int8))
    made = w.op("DequantizeLinear", weight, w.scalar(3e-9), w.initializer(np.int8(0)))
    return [w.op("Mul", w.op("MatMul", w.normal(ROWS, 64), made), w.constant(1e6))]


def spectral(w: Writer) -> Sequence[str]:
    """A matrix over its largest singular value, from stored vectors."""
    matrix = w.weights(32, 16, scale=1e-6)
    left, _, right = np.linalg.svd(matrix)
    u, v = w.initializer(left[:, :1].T.astype(np.float32)), w.initializer(right[:1].T.astype(np.float32))
    stored = w.initializer(matrix)
    sigma = w.op("MatMul", w.op("MatMul", u, stored), v)
    return [w.op("MatMul", w.normal(ROWS, 32), w.op("Div", stored, sigma))]


def log_weights(w: Writer) -> Sequence[str]:
    """Weights kept as logarithms."""
    matrix = w.op("Exp", w.initializer(w.weights(32, 16, scale=0.7, offset=-17)))
    return [w.op("MatMul", w.op("Sigmoid", w.normal(ROWS, 32)), w.op("Mul", matrix, w.constant(np.exp(15))))]


LENGTHS = ({"length": 64}, {"length": 3000})
IDIOMS = (
    Idiom("heldout2", "dynamic linear", dynamic_linear, ({"size": 768}, {"size": 3072}), count=1),
    Idiom("heldout2", "dynamic convolution", dynamic_conv, ({"channels": 256},), count=1),
    Idiom("heldout2", "wide bias", wide_bias, count=1),
    Idiom("heldout2", "ALiBi by outer product", alibi_outer, LENGTHS, count=1, opset=12),
    Idiom("heldout2", "rotary by Einsum", rope_einsum, LENGTHS, count=1, opset=12),
    Idiom("heldout2", "rotary of ids", rope_ids, ({"high": 100}, {"high": 8000}), count=1),
    Idiom("heldout2", "time step", timestep, count=2),
    Idiom("heldout2", "pixels", pixels, ({"side": 300},), count=1, opset=13),
    Idiom("heldout2", "present", present, ({"length": 5000},), count=1, opset=13),
    Idiom("heldout2", "resampled", resampled, ({"length": 3000},), count=1),
    Idiom("heldout2", "decayed", decayed, ({"length": 3000},), count=1),
    Idiom("heldout2", "key points", keypoints, ({"side": 96},), count=1),
    Idiom("heldout2", "offsets", offsets, ({"count": 200},), count=1),
    Idiom("heldout2", "low rank", low_rank, ({"scale": 1e-2}, {"scale": 1e-4}), count=1),
    Idiom("heldout2", "folded channels", folded_channels, ({"spread": 4.0}, {"spread": 8.0}), count=1),
    Idiom("heldout2", "pruned", pruned, ({"scale": 1e-4}, {"scale": 1e-7}), count=1),
    Idiom("heldout2", "tiny embedding", tiny_embedding, count=1, opset=17),
    Idiom("heldout2", "tiny steps", tiny_steps, count=1, opset=13),
    Idiom("heldout2", "spectral norm", spectral, count=1),
    Idiom("heldout2", "weights as logarithms", log_weights, count=1),
)
