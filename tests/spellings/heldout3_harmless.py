"""The third held-out batch, part five: what looks like the other classes and loses nothing."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer
from spellings.recurrence import recur, repeat

ROWS, WIDTH = 4, 64
HARMLESS = "harmless"


def _linear(w: Writer, x: str, rows: int, columns: int) -> str:
    return w.op("MatMul", x, w.initializer(w.weights(rows, columns, scale=rows**-0.5)))


def _part(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


# --- state -----------------------------------------------------------------------------------------------------------


def plain_recurrence(w: Writer) -> Sequence[str]:
    """h = tanh(W h + x): each state replaces the one before."""
    matrix = w.initializer(w.weights(WIDTH, WIDTH, scale=0.4 * WIDTH**-0.5))

    def step(states: list[str], item: str) -> Sequence[str]:
        return [w.op("Tanh", w.op("Add", w.op("MatMul", states[0], matrix), item))]

    return recur(w, w.normal(60, WIDTH), 60, [np.zeros((1, WIDTH), np.float32)], step)


def largest_so_far(w: Writer) -> Sequence[str]:
    def step(states: list[str], item: str) -> Sequence[str]:
        return [w.op("Max", states[0], item)]

    return [_linear(w, y, WIDTH, 8) for y in recur(w, w.normal(2000, WIDTH), 2000, [np.zeros((1, WIDTH))], step)]


def quick_average(w: Writer) -> Sequence[str]:
    def step(states: list[str], item: str) -> Sequence[str]:
        return [w.op("Mul", w.op("Add", states[0], item), w.scalar(0.5))]

    return [_linear(w, y, WIDTH, 8) for y in recur(w, w.normal(300, WIDTH), 300, [np.zeros((1, WIDTH))], step)]


def refined(w: Writer) -> Sequence[str]:
    """Five refinements, unrolled."""
    x = w.normal(ROWS, WIDTH)
    for _ in range(5):
        x = w.op("Add", x, _linear(w, w.op("Relu", x), WIDTH, WIDTH))
    return [x]


def few_iterations(w: Writer) -> Sequence[str]:
    matrix = w.initializer(w.weights(WIDTH, WIDTH, scale=WIDTH**-0.5))
    return repeat(w, 6, [w.normal(ROWS, WIDTH)], lambda s: [w.op("Tanh", w.op("MatMul", s[0], matrix))])


def short_cumulative(w: Writer) -> Sequence[str]:
    p = w.op("Softmax", _linear(w, w.normal(ROWS, WIDTH), WIDTH, 6), axis=1)
    return [w.op("CumSum", p, w.initializer(np.int64(1)))]


# --- integers --------------------------------------------------------------------------------------------------------


def pixels_of_8_bits(w: Writer) -> Sequence[str]:
    kind = 2
    shape = (1, 3, 16, 16)
    x = w.input("x", kind, shape, lambda r: r.integers(0, 256, shape).astype(np.uint8))
    mean = w.initializer(np.array([123.675, 116.28, 103.53], np.float32).reshape(1, 3, 1, 1))
    x = w.op("Mul", w.op("Sub", w.op("Cast", x, to=FLOAT), mean), w.scalar(1 / 58))
    return [w.op("Conv", x, w.initializer(w.weights(8, 3, 3, 3, scale=27**-0.5)))]


def weights_of_8_bits(w: Writer) -> Sequence[str]:
    """Weights in blocks of 8 bits, less a zero point, times a scale."""
    weight = w.op("Cast", w.initializer(w.numbers.integers(0, 256, (WIDTH, WIDTH)).astype(np.uint8)), to=FLOAT)
    weight = w.op("Mul", w.op("Sub", weight, w.scalar(128)), w.initializer(np.full((1, WIDTH), 0.002, np.float32)))
    return [w.op("MatMul", w.normal(ROWS, WIDTH), weight)]


def length_penalty(w: Writer) -> Sequence[str]:
    length = w.op("Cast", w.ids(60, ROWS, 1), to=FLOAT)
    penalty = w.op("Pow", w.op("Div", w.op("Add", length, w.scalar(5)), w.scalar(6)), w.scalar(0.6))
    return [w.op("Div", w.op("LogSoftmax", _linear(w, w.normal(ROWS, WIDTH), WIDTH, 8), axis=1), penalty)]


def level_codes(w: Writer) -> Sequence[str]:
    """A code of three levels in four places: at most 80."""
    x = w.op("Round", w.op("Add", w.op("Tanh", w.normal(ROWS, 4)), w.scalar(1)))
    code = w.op("MatMul", x, w.initializer(np.array([[1], [3], [9], [27]], np.float32)))
    rows = w.op("Gather", w.initializer(w.weights(81, WIDTH)), w.op("Cast", code, to=7), axis=0)
    return [_linear(w, rows, WIDTH, 8)]


def near_bias(w: Writer) -> Sequence[str]:
    """ALiBi over 64 places."""
    q, k = w.normal(1, 64, 32, name="q"), w.normal(1, 64, 32, name="k")
    at = np.arange(64, dtype=np.float32)
    bias = w.op("Mul", w.initializer(-np.abs(at[:, None] - at[None])), w.scalar(0.125))
    scores = w.op("Mul", w.op("MatMul", q, w.op("Transpose", k, perm=[0, 2, 1])), w.scalar(32**-0.5))
    return [w.op("MatMul", w.op("Softmax", w.op("Add", scores, bias), axis=-1), w.normal(1, 64, 32, name="v"))]


def counted_words(w: Writer) -> Sequence[str]:
    """log(1 + count) of up to 30 words."""
    counts = w.op("Log", w.op("Add", w.op("Cast", w.ids(30, ROWS, WIDTH), to=FLOAT), w.scalar(1)))
    return [_linear(w, counts, WIDTH, 8)]


def table_by_rows(w: Writer) -> Sequence[str]:
    """Positions that stay integers: sums of a mask pick rows of a table."""
    steps = w.op("CumSum", w.mask(ROWS, 500), w.initializer(np.int64(1)))
    return [_linear(w, w.op("Gather", w.initializer(w.weights(501, WIDTH)), steps, axis=0), WIDTH, 8)]


# --- weights ---------------------------------------------------------------------------------------------------------


def layer_scale(w: Writer) -> Sequence[str]:
    """A branch that begins at 1e-6 of its input: what it adds is lost in FP32 as well."""
    x = w.normal(ROWS, WIDTH)
    branch = _linear(w, w.op("Relu", _linear(w, x, WIDTH, WIDTH)), WIDTH, WIDTH)
    return [w.op("Add", x, w.op("Mul", branch, w.initializer(np.full(WIDTH, 1e-6, np.float32))))]


def equalized(w: Writer) -> Sequence[str]:
    """Weights of unit size, scaled down where they are used."""
    return [w.op("MatMul", w.normal(ROWS, 256), w.op("Mul", w.initializer(w.weights(256, 8)), w.scalar(1 / 16)))]


def mostly_zero(w: Writer) -> Sequence[str]:
    matrix = w.weights(256, WIDTH, scale=0.5) * (w.numbers.random((256, WIDTH)) < 0.02)
    return [w.op("MatMul", w.normal(ROWS, 256), w.initializer(matrix.astype(np.float32)))]


def heavy_tailed(w: Writer) -> Sequence[str]:
    """Weights of all sizes: the small ones do not matter."""
    matrix = w.weights(256, WIDTH) * np.exp(2 * w.weights(256, WIDTH))
    return [w.op("MatMul", w.normal(ROWS, 256), w.initializer((matrix / 100).astype(np.float32)))]


def offset_gain(w: Writer) -> Sequence[str]:
    """A gain of one plus little, on features that have a spread of their own."""
    x = w.op("Mul", w.normal(ROWS, WIDTH), w.initializer(w.weights(WIDTH, scale=0.01, offset=1)))
    return [_linear(w, x, WIDTH, 8)]


# --- norms, epsilons, cancellation -----------------------------------------------------------------------------------


def late_interaction(w: Writer) -> Sequence[str]:
    """ColBERT: the best match of each token, summed."""
    q, d = (w.op("LpNormalization", w.normal(8, 32, name=n), axis=-1) for n in ("q", "d"))
    return [w.reduce("ReduceSum", w.reduce("ReduceMax", w.op("MatMul", q, w.op("Transpose", d, perm=[1, 0])), 1), 0)]


def unit_rms(w: Writer) -> Sequence[str]:
    x = _linear(w, w.normal(ROWS, WIDTH), WIDTH, WIDTH)
    size = w.op("Sqrt", w.op("Add", w.reduce("ReduceMean", w.op("Mul", x, x), -1), w.scalar(1e-6)))
    return [_linear(w, w.op("Div", x, size), WIDTH, 8)]


def masked_mean(w: Writer) -> Sequence[str]:
    mask = w.unsqueeze(w.op("Cast", w.mask(ROWS, 20), to=FLOAT), -1)
    x = w.normal(ROWS, 20, WIDTH)
    total = w.reduce("ReduceSum", w.op("Mul", x, mask), 1, keeps=False)
    count = w.op("Max", w.reduce("ReduceSum", mask, 1, keeps=False), w.scalar(1e-9))
    return [_linear(w, w.op("Div", total, count), WIDTH, 8)]


def safe_division(w: Writer) -> Sequence[str]:
    x = w.op("Relu", w.op("Sub", w.normal(ROWS, WIDTH), w.scalar(-1)))
    is_zero = w.op("Equal", w.op("Cast", w.op("Cast", w.op("Greater", x, w.scalar(0)), to=7), to=FLOAT), w.scalar(0))
    return [_linear(w, w.op("Div", x, w.op("Add", w.op("Cast", is_zero, to=FLOAT), w.scalar(1))), WIDTH, 8)]


def inverse_depth(w: Writer) -> Sequence[str]:
    disparity = w.op("Add", w.op("Mul", w.op("Sigmoid", _linear(w, w.normal(ROWS, WIDTH), WIDTH, 8)), w.scalar(9.99)),
                     w.scalar(0.01))  # fmt: skip
    return [w.op("Reciprocal", disparity)]


def small_dueling(w: Writer) -> Sequence[str]:
    x = w.normal(ROWS, WIDTH)
    value, advantage = _linear(w, x, WIDTH, 1), _linear(w, x, WIDTH, 8)
    return [w.op("Add", value, w.op("Sub", advantage, w.reduce("ReduceMean", advantage, 1)))]


def chroma(w: Writer) -> Sequence[str]:
    """RGB of 0 to 255 to YCbCr and a layer."""
    rgb = w.op("Mul", w.op("Sigmoid", w.normal(ROWS, 3)), w.scalar(255))
    matrix = np.array([[0.299, -0.169, 0.5], [0.587, -0.331, -0.419], [0.114, 0.5, -0.081]], np.float32)
    return [_linear(w, w.op("Mul", w.op("MatMul", rgb, w.initializer(matrix)), w.scalar(1 / 128)), 3, 8)]


def clipped_logits(w: Writer) -> Sequence[str]:
    x = w.op("Clip", _linear(w, w.normal(ROWS, WIDTH), WIDTH, 8), w.scalar(-30), w.scalar(30))
    return [w.op("Sigmoid", x)]


IDIOMS = (
    Idiom(HARMLESS, "plain recurrence", plain_recurrence, count=1),
    Idiom(HARMLESS, "largest so far", largest_so_far, count=1),
    Idiom(HARMLESS, "quick average", quick_average, count=1),
    Idiom(HARMLESS, "refined", refined, count=1),
    Idiom(HARMLESS, "few iterations", few_iterations, count=1),
    Idiom(HARMLESS, "short cumulative", short_cumulative, count=1),
    Idiom(HARMLESS, "pixels of 8 bits", pixels_of_8_bits, count=1),
    Idiom(HARMLESS, "weights of 8 bits", weights_of_8_bits, count=1),
    Idiom(HARMLESS, "length penalty", length_penalty, count=1),
    Idiom(HARMLESS, "codes of levels", level_codes, count=1),
    Idiom(HARMLESS, "near bias", near_bias, count=1),
    Idiom(HARMLESS, "counted words", counted_words, count=1),
    Idiom(HARMLESS, "table by rows", table_by_rows, count=1, opset=14),
    Idiom(HARMLESS, "layer scale", layer_scale, count=1),
    Idiom(HARMLESS, "equalized", equalized, count=1),
    Idiom(HARMLESS, "mostly zero", mostly_zero, count=1),
    Idiom(HARMLESS, "heavy tailed", heavy_tailed, count=1),
    Idiom(HARMLESS, "gain near one", offset_gain, count=1),
    Idiom(HARMLESS, "late interaction", late_interaction, count=1),
    Idiom(HARMLESS, "RMS norm of unit size", unit_rms, count=1),
    Idiom(HARMLESS, "masked mean", masked_mean, count=1),
    Idiom(HARMLESS, "safe division", safe_division, count=1),
    Idiom(HARMLESS, "inverse depth", inverse_depth, count=1),
    Idiom(HARMLESS, "small dueling", small_dueling, count=1),
    Idiom(HARMLESS, "chroma", chroma, count=1),
    Idiom(HARMLESS, "clipped logits", clipped_logits, count=1),
)
