"""The third held-out batch, part three: integers that become floats, and weights by their distribution."""

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from spellings.cases import Idiom
from spellings.draft import FLOAT, INT64
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _i64(w: Writer, number: int) -> str:
    return w.initializer(np.int64(number))


def _arange(w: Writer, count: int) -> str:
    """Floats, from a Range of integers or of floats, or from what a tracer folded."""
    match w.choose("Cast of Range", "Range of floats", "folded"):
        case "Range of floats":
            return w.op("Range", w.scalar(0), w.scalar(count), w.scalar(1))
        case "folded":
            return w.initializer(np.arange(count, dtype=np.float32))
        case _:
            return w.op("Cast", w.op("Range", _i64(w, 0), _i64(w, count), _i64(w, 1)), to=FLOAT)


# --- integers --------------------------------------------------------------------------------------------------------


def fourier_matrix(w: Writer, size: int) -> Sequence[str]:
    n = _arange(w, size)
    phase = w.op("Mul", w.op("Mul", w.unsqueeze(n, 0), w.unsqueeze(n, 1)), w.scalar(2 * np.pi / size))
    return [w.op("MatMul", w.normal(ROWS, size), w.op("Cos", phase))]


def shader_hash(w: Writer) -> Sequence[str]:
    """fract(sin(id * 12.9898) * 100), the noise of shaders."""
    ids = w.op("Cast", w.ids(3000, ROWS, WIDTH), to=FLOAT)
    loud = w.op("Mul", w.op("Sin", w.op("Mul", ids, w.scalar(12.9898))), w.scalar(100))
    return [w.op("Sub", loud, w.op("Floor", loud))]


def time_of_day(w: Writer) -> Sequence[str]:
    stamps = w.input("stamps", INT64, (ROWS, WIDTH), lambda r: 1_700_000_000 + r.integers(0, 500_000, (ROWS, WIDTH)))
    seconds = w.op("Cast", w.op("Sub", stamps, _i64(w, 1_700_000_000)), to=FLOAT)
    return [w.op("Sin", w.op("Mul", seconds, w.scalar(2 * np.pi / 86400)))]


def soft_argmax(w: Writer, size: int) -> Sequence[str]:
    """The expected bin, from the middle."""
    p = w.op("Softmax", w.normal(ROWS, size), axis=1)
    bins = w.op("Reshape", _arange(w, size), w.integers(size, 1))
    return [w.op("Sub", w.op("MatMul", p, bins), w.scalar(size / 2))]


def fractions_of_resize(w: Writer, size: int) -> Sequence[str]:
    at = w.op("Sub", w.op("Mul", w.op("Add", _arange(w, size), w.scalar(0.5)), w.scalar(0.37)), w.scalar(0.5))
    share = w.op("Sub", at, w.op("Floor", at))
    return [w.op("Mul", w.op("Abs", w.normal(ROWS, size)), share)]


def area_of_picture(w: Writer) -> Sequence[str]:
    """A sum over a picture, divided by height * width, which Shape gives."""
    x = w.op("Relu", w.normal(1, 3, 480, 200))
    dims = w.op("Slice", w.op("Shape", x), w.integers(2), w.integers(4))
    area = w.op("Cast", w.op("ReduceProd", dims, keepdims=0), to=FLOAT)
    flat = w.op("Reshape", x, w.integers(1, 3, -1))
    return [w.op("Div", w.reduce("ReduceSum", flat, -1), area)]


def integer_product(w: Writer, depth: int) -> Sequence[str]:
    """MatMulInteger with zero points and an integer bias, as integer-only BERTs do."""
    x = w.normal(ROWS, depth)
    q, scale, zero = w.ops("DynamicQuantizeLinear", [x], 3)
    weight = w.numbers.integers(-90, 90, (depth, WIDTH)).astype(np.int8)
    product = w.op("MatMulInteger", q, w.initializer(weight), zero, w.initializer(np.int8(3)))
    biased = w.op("Add", product, w.initializer(w.numbers.integers(-9000, 9000, WIDTH).astype(np.int32)))
    return [w.op("Mul", w.op("Mul", w.op("Cast", biased, to=FLOAT), scale), w.scalar(0.002))]


def sum_of_quantized(w: Writer) -> Sequence[str]:
    """The row sums that zero points are corrected with."""
    q, scale, _ = w.ops("DynamicQuantizeLinear", [w.normal(ROWS, 2048)], 3)
    total = w.reduce("ReduceSum", w.op("Cast", q, to=TensorProto.INT32), -1)
    return [w.op("Mul", w.op("Cast", total, to=FLOAT), scale)]


def centroid(w: Writer) -> Sequence[str]:
    """A spectrum's centroid and bandwidth in hertz, as audio features are."""
    power = w.op("Softmax", w.normal(ROWS, 513), axis=1)
    hertz = w.op("Mul", _arange(w, 513), w.scalar(16000 / 1024))
    middle = w.reduce("ReduceSum", w.op("Mul", power, hertz), -1)
    apart = w.op("Sub", hertz, middle)
    return [w.op("Sqrt", w.reduce("ReduceSum", w.op("Mul", power, w.op("Mul", apart, apart)), -1))]


def codes_of_bits(w: Writer, bits: int) -> Sequence[str]:
    """Lookup-free quantization: signs become a code by powers of two, which then picks a row."""
    sign = w.op("Cast", w.op("Greater", w.normal(ROWS, bits), w.scalar(0)), to=FLOAT)
    powers = w.initializer((2.0 ** np.arange(bits)).astype(np.float32).reshape(bits, 1))
    code = w.op("Cast", w.op("MatMul", sign, powers), to=INT64)
    return [w.op("Gather", w.initializer(w.weights(2**bits, 4)), code, axis=0)]


def microdegrees(w: Writer) -> Sequence[str]:
    low, high = 52_000_000, 53_000_000
    place = w.input("place", TensorProto.INT32, (ROWS, 2), lambda r: r.integers(low, high, (ROWS, 2)).astype(np.int32))
    degrees = w.op("Mul", w.op("Cast", place, to=FLOAT), w.scalar(1e-6))
    return [w.op("Sub", degrees, w.scalar(52.5))]


def cents(w: Writer) -> Sequence[str]:
    price = w.op("Cast", w.ids(5_000_000, ROWS, WIDTH, name="price"), to=FLOAT)
    return [w.op("Log", w.op("Add", w.op("Div", price, w.scalar(100)), w.scalar(1)))]


def years(w: Writer) -> Sequence[str]:
    year = w.input("year", INT64, (ROWS, WIDTH), lambda r: r.integers(1950, 2021, (ROWS, WIDTH)))
    return [w.op("Div", w.op("Sub", w.op("Cast", year, to=FLOAT), w.scalar(1990)), w.scalar(20))]


def frames_to_seconds(w: Writer) -> Sequence[str]:
    """A pulse train at 2 Hz over frames of 256 samples."""
    seconds = w.op("Div", w.op("Mul", _arange(w, 2500), w.scalar(256)), w.scalar(22050))
    return [w.op("Mul", w.op("Abs", w.normal(ROWS, 2500)), w.op("Cos", w.op("Mul", seconds, w.scalar(4 * np.pi))))]


def places_of_nonzero(w: Writer) -> Sequence[str]:
    """The most likely place as x and y: flat index mod and div by the width."""
    flat = w.op("ArgMax", w.normal(ROWS, 150 * 150), axis=1, keepdims=1)
    y = w.op("Cast", w.op("Div", flat, _i64(w, 150)), to=FLOAT)
    x = w.op("Sub", w.op("Cast", flat, to=FLOAT), w.op("Mul", y, w.scalar(150)))
    return [w.op("Concat", w.op("Div", x, w.scalar(150)), w.op("Div", y, w.scalar(150)), axis=1)]


# --- weights ---------------------------------------------------------------------------------------------------------


def low_rank_update(w: Writer) -> Sequence[str]:
    down = w.initializer(w.weights(WIDTH, 8, scale=1e-4))
    up = w.initializer(w.weights(8, WIDTH, scale=1e-4))
    update = w.op("Mul", w.op("MatMul", w.op("MatMul", w.normal(ROWS, WIDTH), down), up), w.scalar(16))
    return [w.op("Div", update, w.reduce("ReduceL2", update, -1))]


def offset_weights(w: Writer, offset: float) -> Sequence[str]:
    """Weights far from zero on centred features: only their spread counts."""
    x = w.normal(ROWS, WIDTH)
    x = w.op("Sub", x, w.reduce("ReduceMean", x, -1))
    return [w.op("MatMul", x, w.initializer(w.weights(WIDTH, WIDTH, offset=offset, scale=0.01 * offset)))]


def rescaled_channels(w: Writer) -> Sequence[str]:
    """Difficulty moved from features to weights, channel by channel."""
    factors = np.exp(w.numbers.uniform(-12, 12, WIDTH)).astype(np.float32)
    x = w.op("Mul", w.normal(ROWS, WIDTH), w.initializer(factors))
    return [w.op("MatMul", x, w.initializer(w.weights(WIDTH, WIDTH, scale=0.1) / factors[:, None]))]


def gravity(w: Writer) -> Sequence[str]:
    """Constants of physics: 6.674e-11 * m / r^2 in SI units."""
    height = w.op("Add", w.op("Mul", w.op("Abs", w.normal(ROWS, WIDTH)), w.scalar(1000)), w.scalar(6.371e6))
    return [w.op("Div", w.scalar(6.674e-11 * 5.972e24), w.op("Mul", height, height))]


def boltzmann(w: Writer) -> Sequence[str]:
    energy = w.op("Mul", w.op("Abs", w.normal(ROWS, WIDTH)), w.initializer(np.float32(5e-21)))
    return [w.op("Exp", w.op("Neg", w.op("Div", energy, w.initializer(np.float32(1.380649e-23 * 300)))))]


def camera_polynomial(w: Writer) -> Sequence[str]:
    """A fisheye's polynomial, in pixels."""
    r = w.op("Mul", w.op("Abs", w.normal(ROWS, WIDTH)), w.scalar(300))
    y = w.initializer(np.float32(2.5e-10))
    for coefficient in (-3.1e-7, 2.4e-4, 0.9):
        y = w.op("Add", w.op("Mul", y, r), w.initializer(np.float32(coefficient)))
    return [w.op("Mul", y, r)]


def random_features(w: Writer, sigma: float) -> Sequence[str]:
    phase = w.op("MatMul", w.normal(ROWS, 3), w.initializer(w.weights(3, WIDTH, scale=sigma)))
    return [w.op("Sin", w.op("Mul", phase, w.scalar(2 * np.pi)))]


def siren(w: Writer) -> Sequence[str]:
    x = w.op("Tanh", w.normal(ROWS, 2))
    for rows in (2, WIDTH):
        matrix = w.initializer(w.weights(rows, WIDTH, scale=rows**-0.5))
        x = w.op("Sin", w.op("Mul", w.scalar(30), w.op("Gemm", x, matrix, w.initializer(w.weights(WIDTH)))))
    return [x]


def edge_of_bright(w: Writer) -> Sequence[str]:
    """A difference of Gaussians, whose weights cancel, on a bright picture."""
    at = np.arange(-6, 7)[None, None, None, :]
    bells = [np.exp(-(at**2) / (2 * s * s)) for s in (1.0, 2.0)]
    kernel = (bells[0] / bells[0].sum() - bells[1] / bells[1].sum()).astype(np.float32)
    picture = w.op("Add", w.normal(1, 1, 8, 128), w.scalar(150))
    return [w.op("Conv", picture, w.initializer(kernel))]


def tiny_variances(w: Writer) -> Sequence[str]:
    """A BatchNormalization that learned variances of 1e-9, as behind a dead layer."""
    x = w.op("Mul", w.normal(ROWS, WIDTH), w.scalar(3e-5))
    ones = np.ones(WIDTH, np.float32)
    parts = (ones, 0 * ones, 0 * ones, np.exp(w.weights(WIDTH)) * np.float32(1e-9))
    return [w.op("BatchNormalization", x, *(w.initializer(part) for part in parts), epsilon=1e-12)]


def dequantized_tiny(w: Writer) -> Sequence[str]:
    weight = w.initializer(w.numbers.integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8))
    tiny = w.op("DequantizeLinear", weight, w.initializer(np.float32(3e-9)))
    return [w.op("Mul", w.op("MatMul", w.normal(ROWS, WIDTH), tiny), w.scalar(1e6))]


def rank_one(w: Writer) -> Sequence[str]:
    left = w.initializer(w.weights(WIDTH, 1, scale=2e-8))
    right = w.initializer(w.weights(1, WIDTH, scale=3e7))
    return [w.op("MatMul", w.op("MatMul", w.normal(ROWS, WIDTH), left), right)]


IDIOMS = (
    Idiom("integers", "Fourier matrix", fourier_matrix, ({"size": 200},), count=1),
    Idiom("integers", "noise of a shader", shader_hash, count=1),
    Idiom("integers", "time of day", time_of_day, count=1),
    Idiom("integers", "soft argmax from the middle", soft_argmax, ({"size": 1024},), count=1),
    Idiom("integers", "fractions of a resize", fractions_of_resize, ({"size": 3000},), count=1),
    Idiom("integers", "area of a picture", area_of_picture, count=1),
    Idiom("integers", "integer product", integer_product, ({"depth": 1024},), count=1),
    Idiom("integers", "sum of quantized", sum_of_quantized, count=1, opset=13),
    Idiom("integers", "bandwidth in hertz", centroid, count=1),
    Idiom("integers", "codes of bits", codes_of_bits, ({"bits": 10}, {"bits": 14}), count=1),
    Idiom("integers", "microdegrees", microdegrees, count=1),
    Idiom("integers", "cents", cents, count=1),
    Idiom("integers", "years", years, count=1),
    Idiom("integers", "frames to seconds", frames_to_seconds, count=1),
    Idiom("integers", "place of the largest", places_of_nonzero, count=1),
    Idiom("weights", "low-rank update", low_rank_update, count=1),
    Idiom("weights", "weights with an offset", offset_weights, ({"offset": 1.0}, {"offset": -30.0}), count=1),
    Idiom("weights", "rescaled channels", rescaled_channels, count=1),
    Idiom("weights", "gravity", gravity, count=1),
    Idiom("weights", "Boltzmann", boltzmann, count=1),
    Idiom("weights", "polynomial of a camera", camera_polynomial, count=1),
    Idiom("weights", "random features", random_features, ({"sigma": 3.0}, {"sigma": 30.0}), count=1),
    Idiom("weights", "SIREN", siren, count=1),
    Idiom("weights", "edge of a bright picture", edge_of_bright, count=1),
    Idiom("weights", "tiny variances", tiny_variances, count=1),
    Idiom("weights", "dequantized tiny", dequantized_tiny, count=1, opset=13),
    Idiom("weights", "rank one", rank_one, count=1),
)
