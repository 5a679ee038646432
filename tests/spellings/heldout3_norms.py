"""The third held-out batch, part four: norms, variances, distances, and what attention makes of them."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _pooled(w: Writer, x: str, side: int) -> str:
    return w.op("AveragePool", x, kernel_shape=[side, side])


def _unit(w: Writer, x: str) -> str:
    match w.choose("LpNormalization", "Div by Clip of ReduceL2", "Div by Max of root"):
        case "Div by Clip of ReduceL2":
            return w.op("Div", x, w.op("Clip", w.reduce("ReduceL2", x, -1), w.scalar(1e-12)))
        case "Div by Max of root":
            total = w.reduce("ReduceSum", w.op("Mul", x, x), -1)
            return w.op("Div", x, w.op("Max", w.op("Sqrt", total), w.constant(1e-12)))
        case _:
            return w.op("LpNormalization", x, axis=-1, p=2)


# --- norms -----------------------------------------------------------------------------------------------------------


def rms_by_unit(w: Writer, scale: float) -> Sequence[str]:
    """RMSNorm as x-transformers writes it: a unit vector times the root of its size."""
    return [w.op("Mul", _unit(w, w.times(w.normal(ROWS, 512), scale)), w.scalar(512**0.5))]


def rms_by_power(w: Writer, scale: float) -> Sequence[str]:
    x = w.times(w.normal(ROWS, 256), scale)
    power = w.reduce("ReduceMean", w.op("Pow", x, w.scalar(2)), -1)
    return [w.op("Mul", x, w.op("Pow", w.op("Add", power, w.scalar(1e-6)), w.scalar(-0.5)))]


def standardized_op(w: Writer, scale: float) -> Sequence[str]:
    x = w.plus(w.times(w.normal(1, 4, 16, 16), scale), 3 * scale)
    return [w.op("MeanVarianceNormalization", x, axes=[0, 2, 3])]


def skewness(w: Writer, scale: float) -> Sequence[str]:
    x = w.op("Exp", w.times(w.normal(ROWS, 256), 0.5))
    d = w.op("Sub", x, w.reduce("ReduceMean", x, -1))
    d = w.times(d, scale)
    spread = w.op("Sqrt", w.reduce("ReduceMean", w.op("Mul", d, d), -1))
    cubes = w.reduce("ReduceMean", w.op("Mul", w.op("Mul", d, d), d), -1)
    return [w.op("Div", cubes, w.op("Mul", w.op("Mul", spread, spread), spread))]


def similarity_index(w: Writer) -> Sequence[str]:
    """SSIM on pictures of 0 to 255, by E[x^2] - E[x]^2."""
    x, z = (w.op("Mul", w.op("Sigmoid", w.normal(1, 1, 32, 32, name=name)), w.scalar(255)) for name in ("x", "z"))
    z = w.op("Add", w.op("Mul", x, w.scalar(0.8)), w.op("Mul", z, w.scalar(0.2)))
    mx, mz = _pooled(w, x, 7), _pooled(w, z, 7)
    both, xx, zz = w.op("Mul", mx, mz), w.op("Mul", mx, mx), w.op("Mul", mz, mz)
    vx = w.op("Sub", _pooled(w, w.op("Mul", x, x), 7), xx)
    vz = w.op("Sub", _pooled(w, w.op("Mul", z, z), 7), zz)
    vxz = w.op("Sub", _pooled(w, w.op("Mul", x, z), 7), both)
    above = w.op("Mul", w.plus(w.times(both, 2), 6.5), w.plus(w.times(vxz, 2), 58.5))
    below = w.op("Mul", w.plus(w.op("Add", xx, zz), 6.5), w.plus(w.op("Add", vx, vz), 58.5))
    return [w.op("Div", above, below)]


def guided_filter(w: Writer) -> Sequence[str]:
    """a = cov / (var + eps) over windows, of a bright picture."""
    x = w.op("Add", w.normal(1, 1, 24, 24), w.scalar(20))
    mean = _pooled(w, x, 5)
    variance = w.op("Sub", _pooled(w, w.op("Mul", x, x), 5), w.op("Mul", mean, mean))
    return [w.op("Div", variance, w.plus(variance, 0.1))]


def to_distortion(w: Writer) -> Sequence[str]:
    """SI-SDR of a signal of 16,000 samples."""
    signal = w.times(w.normal(ROWS, 16000), 3)
    estimate = w.op("Add", signal, w.times(w.normal(ROWS, 16000, name="n"), 0.3))
    energy = w.reduce("ReduceSum", w.op("Mul", signal, signal), -1)
    share = w.op("Div", w.reduce("ReduceSum", w.op("Mul", signal, estimate), -1), energy)
    target = w.op("Mul", share, signal)
    rest = w.op("Sub", estimate, target)
    ratio = w.op("Div", *(w.reduce("ReduceSum", w.op("Pow", v, w.scalar(2)), -1) for v in (target, rest)))
    return [w.op("Mul", w.op("Log", ratio), w.scalar(10 / np.log(10)))]


def power_spectrum(w: Writer) -> Sequence[str]:
    """Re^2 + im^2 by a Fourier matrix, on a loud signal."""
    size, at = 400, np.outer(np.arange(400), np.arange(80)) * 2 * np.pi / 400
    x = w.times(w.normal(ROWS, size), 20)
    parts = [w.op("MatMul", x, w.initializer(f(at).astype(np.float32))) for f in (np.cos, np.sin)]
    return [w.op("Add", w.op("Mul", parts[0], parts[0]), w.op("Mul", parts[1], parts[1]))]


def gaussian_likelihood(w: Writer) -> Sequence[str]:
    x, log_var = w.normal(ROWS, 512), w.op("Sub", w.times(w.normal(ROWS, 512, name="lv"), 0.5), w.scalar(8))
    d = w.op("Sub", x, w.initializer(w.weights(512)))
    terms = w.op("Add", w.op("Div", w.op("Mul", d, d), w.op("Exp", log_var)), log_var)
    return [w.op("Mul", w.reduce("ReduceSum", terms, -1), w.scalar(-0.5))]


def spread_of_bins(w: Writer) -> Sequence[str]:
    """The variance of a softmax over bins: E[c^2] - E[c]^2."""
    p = w.op("Softmax", w.times(w.normal(ROWS, 300), 4), axis=1)
    bins = np.arange(300, dtype=np.float32).reshape(-1, 1)
    mean, squares = (w.op("MatMul", p, w.initializer(b)) for b in (bins, bins**2))
    return [w.op("Sqrt", w.op("Sub", squares, w.op("Mul", mean, mean)))]


def determinant(w: Writer, scale: float) -> Sequence[str]:
    x = w.times(w.normal(WIDTH, 9), scale)
    a, b, c, d, e, f, g, h, i = w.ops("Split", [x, w.integers(*[1] * 9)], 9, axis=1)

    def minor(p: str, q: str, r: str, s: str) -> str:
        return w.op("Sub", w.op("Mul", p, q), w.op("Mul", r, s))

    first, second, third = minor(e, i, f, h), minor(d, i, f, g), minor(d, h, e, g)
    return [w.op("Add", w.op("Sub", w.op("Mul", a, first), w.op("Mul", b, second)), w.op("Mul", c, third))]


def discrepancy(w: Writer) -> Sequence[str]:
    """The maximum mean discrepancy of two samples by a wide kernel: k(x, x) + k(y, y) - 2 k(x, y)."""
    x, z = w.normal(32, 8), w.plus(w.normal(32, 8, name="z"), 0.3)

    def kernel(a: str, b: str) -> str:
        d = w.op("Sub", w.unsqueeze(a, 1), w.unsqueeze(b, 0))
        return w.op("ReduceMean", w.op("Exp", w.op("Mul", w.reduce("ReduceSumSquare", d, -1), w.scalar(-0.005))))

    same = w.op("Add", kernel(x, x), kernel(z, z))
    return [w.op("Sub", same, w.op("Mul", kernel(x, z), w.scalar(2)))]


def angle(w: Writer) -> Sequence[str]:
    """The angle between two vectors that nearly agree."""
    x = w.normal(ROWS, WIDTH)
    a, b = _unit(w, x), _unit(w, w.op("Add", x, w.times(w.normal(ROWS, WIDTH, name="z"), 0.05)))
    return [w.op("Acos", w.op("Clip", w.reduce("ReduceSum", w.op("Mul", a, b), -1), w.scalar(-1), w.scalar(1)))]


def triplet(w: Writer) -> Sequence[str]:
    """Hard triplets: the difference of two nearly equal squared distances."""
    x, step = w.times(w.normal(ROWS, WIDTH), 4), w.normal(ROWS, WIDTH, name="n")
    near = w.op("Add", x, w.op("Mul", step, w.scalar(1.00)))
    far = w.op("Add", x, w.op("Mul", step, w.scalar(1.05)))
    p, n = (w.reduce("ReduceSumSquare", w.op("Sub", x, v), -1) for v in (near, far))
    return [w.op("Sub", n, p)]


def steiner(w: Writer) -> Sequence[str]:
    """Heron's formula for triangles in pixels."""
    sides = [w.op("Add", w.op("Abs", w.normal(ROWS, WIDTH, name=n)), w.scalar(10)) for n in ("a", "b", "c")]
    half = w.op("Mul", w.op("Sum", *sides), w.scalar(0.5))
    product = half
    for side in sides:
        product = w.op("Mul", product, w.op("Sub", half, side))
    return [w.op("Sqrt", product)]


# --- softmax by parts ------------------------------------------------------------------------------------------------


def unscaled_attention(w: Writer, depth: int) -> Sequence[str]:
    q, k = w.normal(1, 8, depth, name="q"), w.normal(1, 8, depth, name="k")
    scores = w.op("MatMul", q, w.op("Transpose", k, perm=[0, 2, 1]))
    return [w.op("MatMul", w.op("Softmax", scores, axis=-1), w.initializer(w.weights(1, 8, 16)))]


def contrastive(w: Writer) -> Sequence[str]:
    """NT-Xent at a temperature of 0.05: log-sum-exp less the pair's own."""
    a = _unit(w, w.normal(16, WIDTH))
    b = _unit(w, w.op("Add", w.normal(16, WIDTH, name="z"), w.times(a, 3)))
    logits = w.op("Div", w.op("MatMul", a, w.op("Transpose", b, perm=[1, 0])), w.scalar(0.05))
    own = w.reduce("ReduceSum", w.op("Mul", logits, w.initializer(np.eye(16, dtype=np.float32))), -1)
    return [w.op("Sub", w.reduce("ReduceLogSumExp", logits, -1), own)]


def softmax_without_max(w: Writer, scale: float) -> Sequence[str]:
    powers = w.op("Exp", w.times(w.normal(ROWS, WIDTH), scale))
    return [w.op("Div", powers, w.reduce("ReduceSum", powers, -1))]


def log_of_sum(w: Writer) -> Sequence[str]:
    return [w.reduce("ReduceLogSum", w.op("Exp", w.times(w.normal(ROWS, WIDTH), 4)), -1)]


def newton_schulz(w: Writer) -> Sequence[str]:
    """Whitening by iterations: the inverse root of a covariance of strong features."""
    x = w.times(w.normal(256, 8), 12)
    x = w.op("Sub", x, w.reduce("ReduceMean", x, 0))
    sigma = w.op("Div", w.op("MatMul", w.op("Transpose", x, perm=[1, 0]), x), w.scalar(256))
    eye = w.initializer(np.eye(8, dtype=np.float32))
    trace = w.op("ReduceSum", w.op("Mul", sigma, eye))
    sigma, p = w.op("Div", sigma, trace), eye
    for _ in range(6):
        cube = w.op("MatMul", w.op("MatMul", w.op("MatMul", p, p), p), sigma)
        p = w.op("Sub", w.op("Mul", p, w.scalar(1.5)), w.op("Mul", cube, w.scalar(0.5)))
    return [w.op("MatMul", x, w.op("Div", p, w.op("Sqrt", trace)))]


SCALES: tuple[dict[str, float], ...] = ({"scale": 1.0}, {"scale": 40.0}, {"scale": 300.0})
LARGE = SCALES[1:]

IDIOMS = (
    Idiom("norms", "RMS norm by unit vectors", rms_by_unit, SCALES, count=1),
    Idiom("norms", "RMS norm by power -0.5", rms_by_power, SCALES, count=1),
    Idiom("norms", "MeanVarianceNormalization", standardized_op, LARGE, count=1, opset=13),
    Idiom("norms", "skewness", skewness, LARGE[:1], count=1),
    Idiom("norms", "structural similarity", similarity_index, count=1),
    Idiom("norms", "guided filter", guided_filter, count=1),
    Idiom("norms", "signal to distortion", to_distortion, count=1),
    Idiom("norms", "power spectrum", power_spectrum, count=1),
    Idiom("norms", "likelihood of Gaussians", gaussian_likelihood, count=1),
    Idiom("norms", "spread of bins", spread_of_bins, count=1),
    Idiom("norms", "determinant", determinant, LARGE[:1], count=1, opset=13),
    Idiom("norms", "discrepancy", discrepancy, count=1),
    Idiom("norms", "angle", angle, count=1),
    Idiom("norms", "triplet", triplet, count=1),
    Idiom("norms", "Heron", steiner, count=1),
    Idiom("norms", "unscaled attention", unscaled_attention, ({"depth": 512},), count=1),
    Idiom("norms", "contrastive", contrastive, count=1),
    Idiom("norms", "softmax without maximum", softmax_without_max, ({"scale": 1.0}, {"scale": 6.0}), count=1),
    Idiom("norms", "ReduceLogSum", log_of_sum, count=1),
    Idiom("norms", "whitening by iterations", newton_schulz, count=1),
)
