"""The second held-out batch, part two: epsilons and cancellation, as exporters and hand-written graphs do."""

from collections.abc import Sequence

import numpy as np

from spellings import heldout2_norms, heldout2_state, heldout2_weights
from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.heldout2_norms import over_axes
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _part(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _linear(w: Writer, x: str, rows: int, columns: int) -> str:
    return w.op(
        "Gemm",
        x,
        w.initializer(w.weights(rows, columns, scale=rows**-0.5)),
        w.initializer(w.weights(columns, scale=0.1)),
    )


# --- epsilons --------------------------------------------------------------------------------------------------------


def cross_entropy_keras(w: Writer) -> Sequence[str]:
    p = w.op("Clip", w.op("Sigmoid", w.times(w.normal(ROWS, WIDTH), 6)), w.scalar(1e-7), w.scalar(1 - 1e-7))
    t = w.op("Cast", w.mask(ROWS, WIDTH, name="t"), to=FLOAT)
    yes = w.op("Mul", t, w.op("Log", w.op("Add", p, w.constant(1e-7))))
    rest = w.op("Log", w.op("Add", w.op("Sub", w.constant(1), p), w.constant(1e-7)))
    return [w.op("Neg", w.op("Add", yes, w.op("Mul", w.op("Sub", w.constant(1), t), rest)))]


def relative_entropy(w: Writer) -> Sequence[str]:
    p, q = (w.op("Softmax", w.times(w.normal(ROWS, WIDTH, name=name), 4), axis=1) for name in ("x", "z"))
    ratio = w.op("Log", w.op("Div", w.op("Add", p, w.constant(1e-10)), w.op("Add", q, w.constant(1e-10))))
    return [w.reduce("ReduceSum", w.op("Mul", p, ratio), -1)]


def entropy(w: Writer) -> Sequence[str]:
    p = w.op("Softmax", w.normal(ROWS, 8000), axis=1)
    return [w.op("Neg", w.reduce("ReduceSum", w.op("Mul", p, w.op("Log", w.op("Add", p, w.constant(1e-9)))), -1))]


def log_of_softmax(w: Writer) -> Sequence[str]:
    return [w.op("Log", w.op("Softmax", w.times(w.normal(ROWS, WIDTH), 6), axis=1))]


def log_softmax_by_parts(w: Writer) -> Sequence[str]:
    x = w.times(w.normal(ROWS, 30000), 2)
    d = w.op("Sub", x, w.reduce("ReduceMax", x, -1))
    return [w.op("Sub", d, w.op("Log", w.reduce("ReduceSum", w.op("Exp", d), -1)))]


def inverse_sigmoid(w: Writer) -> Sequence[str]:
    x = w.op("Clip", w.uniform(0, 1, ROWS, 200), w.scalar(0), w.scalar(1))
    top = w.op("Clip", x, w.scalar(1e-5))
    below = w.op("Clip", w.op("Sub", w.constant(1), x), w.scalar(1e-5))
    return [w.op("Log", w.op("Div", top, below))]


def gumbel(w: Writer) -> Sequence[str]:
    u = w.uniform(0, 1, ROWS, WIDTH)
    inner = w.op("Add", w.op("Neg", w.op("Log", w.op("Add", u, w.constant(1e-20)))), w.constant(1e-20))
    return [w.op("Softmax", w.op("Add", w.normal(ROWS, WIDTH, name="logits"), w.op("Neg", w.op("Log", inner))), axis=1)]


def dice(w: Writer) -> Sequence[str]:
    p = w.op("Sigmoid", w.normal(2, 1, 400, 400))
    q = w.op("Sigmoid", w.normal(2, 1, 400, 400, name="z"))
    shared = over_axes(w, "ReduceSum", w.op("Mul", p, q), 2, 3)
    both = w.op("Add", over_axes(w, "ReduceSum", p, 2, 3), over_axes(w, "ReduceSum", q, 2, 3))
    top = w.op("Add", w.op("Mul", shared, w.constant(2)), w.constant(1e-6))
    return [w.op("Sub", w.constant(1), w.op("Div", top, w.op("Add", both, w.constant(1e-6))))]


def charbonnier(w: Writer) -> Sequence[str]:
    d = w.times(w.normal(ROWS, WIDTH), 1e-3)
    return [w.op("Sqrt", w.op("Add", w.op("Mul", d, d), w.constant(1e-12)))]


def small_logarithm(w: Writer) -> Sequence[str]:
    """log(1 + x) and exp(x) - 1 of small x, scaled back."""
    x = w.times(w.normal(ROWS, WIDTH), 0.01)
    one = w.constant(1)
    return [w.times(w.op("Log", w.op("Add", x, one)), 100), w.times(w.op("Sub", w.op("Exp", x), one), 100)]


def channel_energy(w: Writer) -> Sequence[str]:
    """PCEN: energies over a power of their smoothed selves, a bias and a root."""
    e = w.op("Mul", w.op("Pow", w.normal(ROWS, WIDTH), w.constant(2)), w.constant(1e-5))
    smooth = w.reduce("ReduceMean", e, -1)
    gain = w.op("Pow", w.op("Add", smooth, w.constant(1e-6)), w.constant(-0.98))
    y = w.op("Add", w.op("Mul", e, gain), w.constant(2))
    return [w.op("Sub", w.op("Sqrt", y), w.constant(2**0.5))]


def arctanh(w: Writer) -> Sequence[str]:
    x = w.op("Clip", w.op("Tanh", w.times(w.normal(ROWS, WIDTH), 3)), w.scalar(-1 + 1e-6), w.scalar(1 - 1e-6))
    one = w.constant(1)
    return [w.times(w.op("Log", w.op("Div", w.op("Add", one, x), w.op("Sub", one, x))), 0.5)]


def hyperbolic(w: Writer) -> Sequence[str]:
    """Poincare distance of two points near one another."""
    u = w.times(w.op("Tanh", w.normal(ROWS, 4)), 0.4)
    v = w.op("Add", u, w.times(w.op("Tanh", w.normal(ROWS, 4, name="z")), 0.02))
    d = w.op("Sub", u, v)
    apart = w.reduce("ReduceSum", w.op("Mul", d, d), -1)
    rest = [w.op("Sub", w.constant(1), w.reduce("ReduceSum", w.op("Mul", p, p), -1)) for p in (u, v)]
    more = w.op("Div", w.op("Mul", apart, w.constant(2)), w.op("Mul", *rest))
    return [w.op("Sqrt", w.op("Add", w.op("Mul", more, more), w.op("Mul", more, w.constant(2))))]


def focal_by_hand(w: Writer) -> Sequence[str]:
    x = w.times(w.normal(ROWS, WIDTH), 4)
    p = w.op("Div", w.constant(1), w.op("Add", w.constant(1), w.op("Exp", w.op("Neg", x))))
    p = w.op("Max", p, w.constant(1e-8))
    return [w.op("Mul", w.op("Pow", w.op("Sub", w.constant(1), p), w.constant(2)), w.op("Neg", w.op("Log", p)))]


# --- cancellation ----------------------------------------------------------------------------------------------------


def counts_of_a_sensor(w: Writer) -> Sequence[str]:
    x = w.input("x", FLOAT, (ROWS, 32), lambda r: (4000 + 30 * r.standard_normal((ROWS, 32))).astype(np.float32))
    return [_linear(w, w.op("Div", w.op("Sub", x, w.constant(4000)), w.constant(30)), 32, 8)]


def normalized_input(w: Writer) -> Sequence[str]:
    """BatchNormalization of raw features, first of all."""
    means, spreads = np.array([500, 288, 1013, 70] * 2, np.float32), np.array([3, 4, 5, 1] * 2, np.float32)
    x = w.input("x", FLOAT, (16, 8), lambda r: (means + spreads * r.standard_normal((16, 8))).astype(np.float32))
    parts = [np.ones(8, np.float32), np.zeros(8, np.float32), means, spreads**2]
    return [_linear(w, w.op("BatchNormalization", x, *map(w.initializer, parts), epsilon=1e-3), 8, 4)]


def unbiased_conv(w: Writer) -> Sequence[str]:
    """A convolution whose maps have a mean that BatchNormalization takes off."""
    kernel = w.weights(8, 4, 3, 3, scale=0.17)
    means = (200 + 50 * w.numbers.random(8)).astype(np.float32)
    y = w.op("Conv", w.normal(1, 4, 8, 8), w.initializer(kernel), w.initializer(means))
    parts = [np.ones(8, np.float32), np.zeros(8, np.float32), means, np.ones(8, np.float32)]
    return [w.op("Relu", w.op("BatchNormalization", y, *map(w.initializer, parts), epsilon=1e-5))]


def point_cloud(w: Writer) -> Sequence[str]:
    """Points about their centre, within a ball of one."""
    x = w.plus(w.times(w.normal(2, 128, 3), 2), 300)
    d = w.op("Sub", x, w.reduce("ReduceMean", x, 1))
    reach = w.reduce("ReduceMax", w.op("Sqrt", w.reduce("ReduceSum", w.op("Mul", d, d), 2)), 1)
    return [w.op("Div", d, reach)]


def detail(w: Writer) -> Sequence[str]:
    """What a blurred picture leaves of it."""
    x = w.plus(w.times(w.normal(1, 1, 24, 24), 2), 200)
    inner = w.op("Slice", x, w.integers(1, 1), w.integers(23, 23), w.integers(2, 3))
    return [w.op("Sub", inner, w.op("AveragePool", x, kernel_shape=[3, 3]))]


def log_ratio(w: Writer) -> Sequence[str]:
    a, b = (w.plus(w.times(w.op("Tanh", w.normal(ROWS, WIDTH, name=name)), 10), 1000) for name in ("x", "z"))
    return [w.times(w.op("Sub", w.op("Log", a), w.op("Log", b)), 100)]


def smaller_root(w: Writer) -> Sequence[str]:
    """-b + sqrt(b^2 - 4c)"""
    b = w.plus(w.op("Tanh", w.normal(ROWS, WIDTH)), 30)
    c = w.plus(w.op("Tanh", w.normal(ROWS, WIDTH, name="c")), 3)
    inside = w.op("Sub", w.op("Mul", b, b), w.op("Mul", w.constant(4), c))
    return [w.op("Mul", w.op("Sub", w.op("Sqrt", inside), b), w.constant(0.5))]


def haversine(w: Writer) -> Sequence[str]:
    """Small distances on a sphere, from degrees."""
    a = w.plus(w.times(w.op("Tanh", w.normal(ROWS, 2)), 0.2), 45)
    b = w.plus(w.times(w.op("Tanh", w.normal(ROWS, 2, name="z")), 0.2), 45)
    half = w.op("Sin", w.times(w.op("Sub", a, b), np.pi / 360))
    return [w.times(w.op("Sqrt", w.reduce("ReduceSum", w.op("Mul", half, half), -1)), 6371)]


def above_uniform(w: Writer) -> Sequence[str]:
    """What nearly uniform attention prefers."""
    p = w.op("Softmax", w.times(w.normal(ROWS, WIDTH), 0.01), axis=1)
    return [w.times(w.op("Sub", p, w.constant(1 / WIDTH)), WIDTH * 100)]


def squares_apart(w: Writer) -> Sequence[str]:
    x = w.plus(w.op("Tanh", w.normal(ROWS, WIDTH)), 20)
    y = w.op("Add", x, w.times(w.op("Tanh", w.normal(ROWS, WIDTH, name="z")), 0.1))
    return [w.op("Sub", w.op("Pow", x, w.constant(2)), w.op("Pow", y, w.constant(2)))]


def slope_by_difference(w: Writer) -> Sequence[str]:
    """A network's slope by a central difference."""
    x, step = w.normal(ROWS, 8), w.constant(0.02)
    first, second = w.initializer(w.weights(8, 16, scale=0.35)), w.initializer(w.weights(16, 2, scale=0.25))
    ends = [w.op("MatMul", w.op("Tanh", w.op("MatMul", w.op(kind, x, step), first)), second) for kind in ("Add", "Sub")]
    return [w.op("Div", w.op("Sub", *ends), w.constant(0.04))]


IDIOMS = (
    *heldout2_state.IDIOMS,
    *heldout2_weights.IDIOMS,
    *heldout2_norms.IDIOMS,
    Idiom("heldout2", "cross entropy", cross_entropy_keras, count=1),
    Idiom("heldout2", "relative entropy", relative_entropy, count=1),
    Idiom("heldout2", "entropy", entropy, count=1),
    Idiom("heldout2", "log of softmax", log_of_softmax, count=1),
    Idiom("heldout2", "log-softmax by parts", log_softmax_by_parts, count=1),
    Idiom("heldout2", "inverse sigmoid", inverse_sigmoid, count=1),
    Idiom("heldout2", "Gumbel", gumbel, count=1),
    Idiom("heldout2", "dice", dice, count=1),
    Idiom("heldout2", "Charbonnier", charbonnier, count=1),
    Idiom("heldout2", "small logarithm", small_logarithm, count=1),
    Idiom("heldout2", "PCEN", channel_energy, count=1),
    Idiom("heldout2", "arctanh", arctanh, count=1),
    Idiom("heldout2", "hyperbolic", hyperbolic, count=1),
    Idiom("heldout2", "focal loss by hand", focal_by_hand, count=1),
    Idiom("heldout2", "counts of a sensor", counts_of_a_sensor, count=1),
    Idiom("heldout2", "normalized input", normalized_input, count=1),
    Idiom("heldout2", "biased convolution", unbiased_conv, count=1),
    Idiom("heldout2", "point cloud", point_cloud, count=1),
    Idiom("heldout2", "detail", detail, count=1),
    Idiom("heldout2", "log ratio", log_ratio, count=1),
    Idiom("heldout2", "smaller root", smaller_root, count=1),
    Idiom("heldout2", "haversine", haversine, count=1),
    Idiom("heldout2", "above uniform", above_uniform, count=1),
    Idiom("heldout2", "squares apart", squares_apart, count=1),
    Idiom("heldout2", "slope by difference", slope_by_difference, count=1),
)
