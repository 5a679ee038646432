"""Integers that become floats: accumulators of quantized products, lengths, positions, counts."""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from spellings.cases import Idiom
from spellings.draft import INT64
from spellings.phrases import Writer

DEPTHS = ({"depth": 64}, {"depth": 768}, {"depth": 3072})
LENGTHS = ({"length": 40}, {"length": 600}, {"length": 5000})
LONG = ({"length": 600}, {"length": 5000})


def quantized_product(w: Writer, depth: int) -> Sequence[str]:
    """What dynamic quantization writes: a product of integers, cast and scaled."""
    x, scale, zero = w.ops("DynamicQuantizeLinear", [w.normal(3, depth)], 3)
    matrix = w.initializer(np.clip(np.round(w.weights(depth, 8, scale=40)), -127, 127).astype(np.int8))
    weight_zero = w.initializer(np.int8(0))
    total = w.as_float(w.op("MatMulInteger", x, matrix, zero, weight_zero))
    match w.choose("one scale", "scale by scale"):
        case "scale by scale":
            y = w.mul(w.mul(total, scale), w.constant(0.02))
        case _:
            y = w.mul(total, w.mul(scale, w.constant(0.02)))
    return [w.add(y, w.constant(w.weights(8)))]


def quantized_convolution(w: Writer, depth: int) -> Sequence[str]:
    pixels = w.op("Reshape", w.normal(2, depth * 4), w.integers(2, depth, 2, 2))
    x, scale, zero = w.ops("DynamicQuantizeLinear", [pixels], 3)
    kernel = w.initializer(w.numbers.integers(1, 255, (4, depth, 2, 2)).astype(np.uint8))
    total = w.op("ConvInteger", x, kernel, zero, w.initializer(np.uint8(128)))
    return [w.mul(w.as_float(total), w.mul(scale, w.constant(0.01)))]


def static_product(w: Writer, depth: int) -> Sequence[str]:
    """Integers scaled by constants: the caller quantized already, in [0, 255]."""
    x = w.input("x", TensorProto.UINT8, (3, depth), lambda r: r.integers(0, 256, (3, depth)).astype(np.uint8))
    matrix = w.initializer(np.clip(np.round(w.weights(depth, 8, scale=40)), -127, 127).astype(np.int8))
    total = w.op("MatMulInteger", x, matrix, w.initializer(np.uint8(128)))
    return [w.times(w.as_float(total), 1e-4 / np.sqrt(depth))]


def _positions(w: Writer, length: int) -> str:
    """0, 1, 2, ... as integers [length], in one of the ways models make them."""
    x = w.input("tokens", INT64, (1, length), lambda r: r.integers(1, 100, (1, length)))
    size = w.op("Gather", w.op("Shape", x), w.initializer(np.int64(1)))
    zero, one = w.initializer(np.int64(0)), w.initializer(np.int64(1))
    match w.choose("Range", "constant", "CumSum of ones", "NonZero", "Size", "Where of Range"):
        case "constant":
            return w.initializer(np.arange(length))
        case "CumSum of ones":
            ones = w.op("ConstantOfShape", w.op("Shape", x), value=_one())
            return w.squeeze(w.op("Sub", w.op("CumSum", ones, one), one), 0)
        case "NonZero":
            return w.op("Gather", w.op("NonZero", x), one)
        case "Size":
            return w.op("Range", zero, w.op("Size", x), one)
        case "Where of Range":
            count = w.op("Range", zero, size, one)
            return w.op("Where", w.op("Less", count, size), count, zero)
        case _:
            return w.op("Range", zero, size, one)


def _one() -> TensorProto:
    return TensorProto(data_type=INT64, dims=[1], int64_data=[1])


def _float_positions(w: Writer, length: int) -> str:
    """The same numbers as floats [length]: cast, or counted in floats from the start."""
    match w.choose("Cast", "Range of floats", "CumSum of float ones"):
        case "Range of floats":
            w.input("tokens", INT64, (1, length), lambda r: r.integers(1, 100, (1, length)))
            size = w.as_float(w.op("Gather", w.op("Shape", "tokens"), w.initializer(np.int64(1))))
            return w.op("Range", w.scalar(0), size, w.scalar(1))
        case "CumSum of float ones":
            ones = w.initializer(np.ones(length, np.float32))
            return w.op("Sub", w.op("CumSum", ones, w.initializer(np.int64(0))), w.constant(1))
        case _:
            return w.as_float(_positions(w, length))


def _angles(w: Writer, positions: str, half: int) -> str:
    """positions x frequencies [length, half]: a product in any spelling."""
    rates = (10000.0 ** (-np.arange(half) / half)).astype(np.float32)
    column = w.unsqueeze(positions, 1)
    einsum = ("Einsum i,j->ij",) if w.opset >= 12 else ()
    match w.choose("Mul", "MatMul", "Div", *einsum):
        case "MatMul":
            return w.op("MatMul", column, w.constant(rates[None]))
        case "Div":
            return w.op("Div", column, w.constant(1 / rates))
        case "Einsum i,j->ij":
            return w.op("Einsum", positions, w.constant(rates), equation="i,j->ij")
        case _:
            return w.mul(column, w.constant(rates))


def rotary(w: Writer, length: int) -> Sequence[str]:
    angles = _angles(w, _float_positions(w, length), 8)
    a, b = w.normal(length, 8, name="a"), w.normal(length, 8, name="b")
    cos, sin = w.op("Cos", angles), w.op("Sin", angles)
    return [w.sub(w.mul(a, cos), w.mul(b, sin)), w.add(w.mul(a, sin), w.mul(b, cos))]


def sinusoids(w: Writer, length: int) -> Sequence[str]:
    angles = _angles(w, _float_positions(w, length), 8)
    return [w.add(w.op("Concat", w.op("Sin", angles), w.op("Cos", angles), axis=1), w.normal(length, 16))]


def timesteps(w: Writer, length: int) -> Sequence[str]:
    """Of a diffusion model: integers up to `length`, through sines."""
    t = w.ids(length, 12, name="t")
    angles = _angles(w, w.as_float(t), 16)
    return [w.op("Concat", w.op("Cos", angles), w.op("Sin", angles), axis=1)]


def linear_bias(w: Writer, length: int) -> Sequence[str]:
    """ALiBi: how far a key is from the last query, times a slope; only near keys matter."""
    positions = _float_positions(w, length)
    last = w.constant(float(length - 1))
    bias = w.times(w.sub(positions, last), 0.5)
    return [w.op("Softmax", w.add(w.normal(2, length), bias), axis=1)]


def relative_distance(w: Writer, length: int) -> Sequence[str]:
    """log of distances, as in relative position buckets."""
    positions = _float_positions(w, length)
    few = w.op("Slice", positions, w.integers(length - 5), w.integers(length), w.integers(0))
    d = w.op("Abs", w.sub(w.unsqueeze(few, 1), w.unsqueeze(few, 0)))
    return [w.log(w.plus(d, 1))]


def inverse_root_of_length(w: Writer, length: int) -> Sequence[str]:
    x = w.normal(2, length)
    size = w.as_float(w.op("Gather", w.op("Shape", x), w.initializer(np.int64(1))))
    return [w.over_root(w.sum(w.square(x), length), size)]


def mean_by_count(w: Writer, length: int) -> Sequence[str]:
    """Mean over what a mask leaves."""
    m = w.as_float(w.mask(2, length))
    x = w.plus(w.normal(2, length), 1)
    total, count = w.sum(w.mul(x, m), length), w.sum(m, length)
    return [w.div(total, w.clip(count, 1, None))]


def positions_from_mask(w: Writer, length: int) -> Sequence[str]:
    """Positions that a mask counts, as angles."""
    ones = w.mask(1, length)
    places = w.op("Mul", w.op("CumSum", ones, w.initializer(np.int64(1))), ones)
    return [w.op("Sin", _angles(w, w.squeeze(w.as_float(places), 0), 4))]


def share_of_length(w: Writer, length: int) -> Sequence[str]:
    """Where the largest lie, as shares of the length; near the end the differences count."""
    x = w.normal(2, length)
    _, places = w.ops("TopK", [x, w.integers(4)], 2, axis=1)
    p = w.as_float(places)
    first = w.op("Slice", p, w.integers(0), w.integers(1), w.integers(1))
    return [w.op("Sin", w.sub(p, first))]


def log_of_count(w: Writer, length: int) -> Sequence[str]:
    x = w.normal(2, length)
    size = w.as_float(w.op("Size", x))
    return [w.add(w.times(w.log(size), 0.1), w.mean(x, length))]


def ids_as_floats(w: Writer, length: int) -> Sequence[str]:
    """Neighbours in a table told apart by a difference of their numbers."""
    ids = w.ids(length, 3, 5)
    f = w.as_float(ids)
    g = w.plus(f, 1)
    return [w.op("Cos", w.sub(g, w.times(f, 0.999)))]


def picture_grid(w: Writer, length: int) -> Sequence[str]:
    """Centres of boxes, (position + 0.5) * stride, turned into offsets from a neighbour."""
    centres = w.times(w.plus(_float_positions(w, length), 0.5), 8)
    offset = w.op("Tanh", w.normal(length))
    place = w.add(centres, offset)
    return [w.sub(place, centres)]


IDIOMS = (
    Idiom("integers", "dynamic MatMulInteger", quantized_product, DEPTHS, count=4),
    Idiom("integers", "dynamic ConvInteger", quantized_convolution, ({"depth": 16}, {"depth": 192}), count=3),
    Idiom("integers", "static MatMulInteger", static_product, DEPTHS, count=2),
    Idiom("integers", "rotary positions", rotary, LONG, count=5),
    Idiom("integers", "sinusoids", sinusoids, LENGTHS, count=3),
    Idiom("integers", "timesteps", timesteps, ({"length": 1000},), count=9),
    Idiom("integers", "linear bias", linear_bias, LENGTHS, count=3),
    Idiom("integers", "relative distance", relative_distance, LENGTHS, count=4),
    Idiom("integers", "1 / sqrt(length)", inverse_root_of_length, LENGTHS, count=2),
    Idiom("integers", "mean by count", mean_by_count, LENGTHS, count=3),
    Idiom("integers", "positions from a mask", positions_from_mask, LONG, count=4),
    Idiom("integers", "places of the largest", share_of_length, LONG, count=3),
    Idiom("integers", "log of a count", log_of_count, ({"length": 40}, {"length": 40000}), count=3),
    Idiom("integers", "ids as floats", ids_as_floats, ({"length": 250}, {"length": 30000}), count=3),
    Idiom("integers", "picture grid", picture_grid, LONG, count=5),
)  # fmt: skip
