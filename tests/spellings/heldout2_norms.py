"""The second held-out batch, part three: norms, variances and distances, as exporters and hand-written graphs do."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def over_axes(w: Writer, kind: str, x: str, *axes: int, keeps: bool = True) -> str:
    """A reduction over several axes."""
    if w.opset >= (13 if kind == "ReduceSum" else 18):
        return w.op(kind, x, w.integers(*axes), keepdims=int(keeps))
    return w.op(kind, x, axes=list(axes), keepdims=int(keeps))


# --- norms -----------------------------------------------------------------------------------------------------------


def layer_norm_op(w: Writer, scale: float) -> Sequence[str]:
    x = w.times(w.normal(ROWS, WIDTH), scale)
    return [w.op("LayerNormalization", x, w.initializer(np.ones(WIDTH, np.float32)), axis=-1, epsilon=1e-5)]


def rms_by_rsqrt(w: Writer, scale: float) -> Sequence[str]:
    """As Llama is exported."""
    x = w.times(w.normal(ROWS, 512), scale)
    variance = w.reduce("ReduceMean", w.op("Pow", x, w.constant(2)), -1)
    root = w.op("Div", w.constant(1), w.op("Sqrt", w.op("Add", variance, w.constant(1e-6))))
    return [w.op("Mul", w.initializer(w.weights(512, scale=0.1, offset=1)), w.op("Mul", x, root))]


def group_norm_over_axes(w: Writer, scale: float) -> Sequence[str]:
    """As TensorFlow writes it: moments over three axes of a reshaped picture."""
    x = w.op("Reshape", w.times(w.normal(2, 8, 8, 8), scale), w.integers(2, 4, 2, 8, 8))
    mean = over_axes(w, "ReduceMean", x, 2, 3, 4)
    d = w.op("Sub", x, mean)
    variance = over_axes(w, "ReduceMean", w.op("Mul", d, d), 2, 3, 4)
    y = w.op("Mul", d, w.op("Reciprocal", w.op("Sqrt", w.op("Add", variance, w.constant(1e-3)))))
    return [w.op("Reshape", y, w.integers(2, 8, 8, 8))]


def folded_moments(w: Writer, offset: float) -> Sequence[str]:
    """x s + (b - mean s), as tf.nn.batch_normalization writes a norm."""
    x = w.plus(w.normal(2, 8, 16, 16), offset)
    mean = over_axes(w, "ReduceMean", x, 2, 3)
    d = w.op("Sub", x, w.op("Identity", mean))
    variance = over_axes(w, "ReduceMean", w.op("Mul", d, d), 2, 3)
    s = w.op(
        "Mul",
        w.op("Reciprocal", w.op("Sqrt", w.op("Add", variance, w.constant(1e-3)))),
        w.constant(w.weights(8, 1, 1, offset=1, scale=0.1)),
    )
    return [
        w.op("Add", w.op("Mul", x, s), w.op("Sub", w.constant(w.weights(8, 1, 1, scale=0.1)), w.op("Mul", mean, s)))
    ]


def lrn_op(w: Writer, scale: float) -> Sequence[str]:
    return [w.op("LRN", w.times(w.normal(1, 8, 6, 6), scale), size=5, alpha=1e-4, beta=0.75, bias=2.0)]


def cosine_by_product(w: Writer, scale: float) -> Sequence[str]:
    """torch's: the dot product over the root of the product of both squared norms."""
    a, b = w.times(w.normal(ROWS, WIDTH), scale), w.times(w.normal(ROWS, WIDTH, name="z"), scale)
    near = w.op("Add", a, b)
    dot = w.reduce("ReduceSum", w.op("Mul", a, near), -1)
    sizes = w.op("Mul", *(w.reduce("ReduceSum", w.op("Mul", v, v), -1) for v in (a, near)))
    return [w.op("Div", dot, w.op("Sqrt", w.op("Max", sizes, w.constant(1e-16))))]


def distances_broadcast(w: Writer, scale: float) -> Sequence[str]:
    a, b = w.times(w.normal(6, WIDTH), scale), w.initializer(w.weights(5, WIDTH, scale=scale))
    return [w.reduce("ReduceL2", w.op("Sub", w.unsqueeze(a, 1), w.unsqueeze(b, 0)), -1, keeps=False)]


def distances_by_product(w: Writer, offset: float) -> Sequence[str]:
    """torch.cdist's: one product of [-2a, |a|^2, 1] and [b, 1, |b|^2]."""
    a, b = w.plus(w.normal(6, 16), offset), w.plus(w.normal(6, 16, name="z"), offset)
    ones = w.initializer(np.ones((6, 1), np.float32))
    na, nb = (w.reduce("ReduceSum", w.op("Pow", v, w.constant(2)), -1) for v in (a, b))
    left = w.op("Concat", w.op("Mul", a, w.constant(-2)), na, ones, axis=-1)
    right = w.op("Concat", b, ones, nb, axis=-1)
    both = w.op("MatMul", left, w.op("Transpose", right, perm=[1, 0]))
    return [w.op("Sqrt", w.op("Max", both, w.constant(1e-6)))]


def mahalanobis(w: Writer) -> Sequence[str]:
    x = w.plus(w.times(w.normal(ROWS, 16), 2), 120)
    d = w.op("Sub", x, w.constant(np.full(16, 120.0)))
    inverse = w.weights(16, 16, scale=0.2)
    y = w.op("MatMul", d, w.initializer((inverse @ inverse.T + np.eye(16)).astype(np.float32)))
    return [w.op("Sqrt", w.reduce("ReduceSum", w.op("Mul", y, d), -1))]


def log_cosh(w: Writer, scale: float) -> Sequence[str]:
    """Softplus and log cosh by hand."""
    x = w.times(w.normal(ROWS, WIDTH), scale)
    both = w.op("Add", w.op("Exp", x), w.op("Exp", w.op("Neg", x)))
    return [w.op("Log", w.op("Add", w.op("Exp", x), w.constant(1))), w.op("Log", w.op("Mul", both, w.constant(0.5)))]


def plain_logsumexp(w: Writer) -> Sequence[str]:
    x = w.times(w.normal(ROWS, WIDTH), 5)
    e = w.op("Exp", x)
    total = w.reduce("ReduceSum", e, -1)
    return [w.op("Log", total), w.op("Div", e, total)]


def normalized_tiny(w: Writer) -> Sequence[str]:
    """F.normalize of small features."""
    x = w.times(w.normal(ROWS, WIDTH), 1e-4)
    norm = w.op("Clip", w.reduce("ReduceL2", x, 1), w.scalar(1e-12))
    return [w.op("Div", x, w.op("Expand", norm, w.op("Shape", x)))]


def weight_norm_conv(w: Writer, scale: float) -> Sequence[str]:
    v = w.initializer(w.weights(4, 8, 3, 3, scale=scale))
    gain = w.initializer(np.full((4, 1, 1, 1), 0.7, np.float32))
    kernel = w.op("Mul", v, w.op("Div", gain, over_axes(w, "ReduceL2", v, 1, 2, 3)))
    return [w.op("Conv", w.normal(1, 8, 8, 8), kernel)]


def batch_statistics(w: Writer, scale: float) -> Sequence[str]:
    """Keras while training: mean of squares less squared mean, over the batch."""
    x = w.plus(w.times(w.normal(64, 16), scale), 2 * scale)
    mean = w.reduce("ReduceMean", x, 0)
    variance = w.op("Sub", w.reduce("ReduceMean", w.op("Mul", x, x), 0), w.op("Mul", mean, mean))
    return [w.op("Div", w.op("Sub", x, mean), w.op("Sqrt", w.op("Add", variance, w.constant(1e-3))))]


def statistics_pooling(w: Writer, offset: float) -> Sequence[str]:
    """Speaker embeddings: mean and deviation over time."""
    x = w.plus(w.normal(2, 8, 1500), offset)
    mean = w.reduce("ReduceMean", x, -1)
    rest = w.op("Sub", w.reduce("ReduceMean", w.op("Pow", x, w.constant(2)), -1), w.op("Pow", mean, w.constant(2)))
    return [w.op("Concat", mean, w.op("Sqrt", w.op("Clip", rest, w.scalar(1e-9))), axis=-1)]


def frobenius(w: Writer, scale: float) -> Sequence[str]:
    x = w.times(w.normal(256, 256), scale)
    return [w.op("Div", x, w.op("Sqrt", w.op("ReduceSumSquare", x, keepdims=1)))]


def covariance(w: Writer, scale: float) -> Sequence[str]:
    x = w.plus(w.times(w.normal(1000, 8), scale), scale)
    d = w.op("Sub", x, w.reduce("ReduceMean", x, 0))
    return [w.op("Div", w.op("MatMul", w.op("Transpose", d, perm=[1, 0]), d), w.constant(999))]


def pearson(w: Writer, scale: float) -> Sequence[str]:
    a = w.times(w.normal(ROWS, 256), scale)
    b = w.op("Add", w.op("Mul", a, w.constant(0.5)), w.times(w.normal(ROWS, 256, name="z"), scale))
    da, db = (w.op("Sub", v, w.reduce("ReduceMean", v, -1)) for v in (a, b))
    top = w.reduce("ReduceSum", w.op("Mul", da, db), -1)
    sizes = [w.reduce("ReduceSum", w.op("Mul", d, d), -1) for d in (da, db)]
    return [w.op("Div", top, w.op("Add", w.op("Sqrt", w.op("Mul", *sizes)), w.constant(1e-8)))]


def decibels(w: Writer) -> Sequence[str]:
    """Loudness of quiet sound."""
    x = w.times(w.normal(ROWS, 400), 1e-3)
    power = w.reduce("ReduceMean", w.op("Pow", x, w.constant(2)), -1)
    return [w.op("Mul", w.op("Log", w.op("Add", power, w.constant(1e-10))), w.constant(10 / np.log(10)))]


def similarity(w: Writer) -> Sequence[str]:
    """SSIM's variances over windows of pictures to 255."""
    x = w.uniform(0, 255, 1, 1, 32, 32)
    mean = w.op("AveragePool", w.op("Sub", x, w.constant(0.0)), kernel_shape=[8, 8])
    squares = w.op("AveragePool", w.op("Mul", x, x), kernel_shape=[8, 8])
    variance = w.op("Sub", squares, w.op("Mul", mean, mean))
    return [w.op("Div", w.op("Add", variance, w.constant(58.5)), w.op("Add", w.op("Mul", mean, mean), w.constant(6.5)))]


def kurtosis(w: Writer, scale: float) -> Sequence[str]:
    x = w.times(w.normal(ROWS, 512), scale)
    d = w.op("Sub", x, w.reduce("ReduceMean", x, -1))
    fourth = w.reduce("ReduceMean", w.op("Pow", d, w.constant(4)), -1)
    variance = w.reduce("ReduceMean", w.op("Pow", d, w.constant(2)), -1)
    return [w.op("Div", fourth, w.op("Mul", variance, variance))]


SCALES = tuple({"scale": s} for s in (1.0, 30.0, 100.0))
LARGE = tuple({"scale": s} for s in (30.0, 100.0))
OFFSETS = tuple({"offset": s} for s in (3.0, 30.0))
IDIOMS = (
    Idiom("heldout2", "LayerNormalization", layer_norm_op, LARGE, count=1, opset=17),
    Idiom("heldout2", "RMS norm by root", rms_by_rsqrt, SCALES, count=1),
    Idiom("heldout2", "group norm over axes", group_norm_over_axes, SCALES, count=1),
    Idiom("heldout2", "folded moments", folded_moments, OFFSETS, count=1),
    Idiom("heldout2", "LRN", lrn_op, LARGE, count=1),
    Idiom("heldout2", "cosine by product", cosine_by_product, SCALES, count=1),
    Idiom("heldout2", "distances by broadcast", distances_broadcast, LARGE, count=1),
    Idiom("heldout2", "distances by product", distances_by_product, OFFSETS, count=1),
    Idiom("heldout2", "Mahalanobis", mahalanobis, count=1),
    Idiom("heldout2", "log cosh", log_cosh, ({"scale": 1.0}, {"scale": 4.0}), count=1),
    Idiom("heldout2", "plain log-sum-exp", plain_logsumexp, count=1),
    Idiom("heldout2", "small features", normalized_tiny, count=1),
    Idiom("heldout2", "weight norm of a kernel", weight_norm_conv, ({"scale": 1e-6}, {"scale": 30.0}), count=1),
    Idiom("heldout2", "batch statistics", batch_statistics, SCALES, count=1),
    Idiom("heldout2", "statistics pooling", statistics_pooling, OFFSETS, count=1),
    Idiom("heldout2", "Frobenius", frobenius, SCALES, count=1),
    Idiom("heldout2", "covariance", covariance, LARGE, count=1),
    Idiom("heldout2", "Pearson", pearson, SCALES, count=1),
    Idiom("heldout2", "decibels", decibels, count=1),
    Idiom("heldout2", "SSIM", similarity, count=1),
    Idiom("heldout2", "kurtosis", kurtosis, ({"scale": 1.0}, {"scale": 10.0}), count=1),
)
