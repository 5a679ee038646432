"""A held-out batch: functions as real models export them, other in kind than the ones that are worked with.

For a last count only: whoever works on what is known without data does not read this file.
"""

from collections.abc import Sequence

import numpy as np

from spellings import heldout_sequences
from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _slice(w: Writer, x: str, start: int, end: int, axis: int = 1) -> str:
    return w.op("Slice", x, w.integers(start), w.integers(end), w.integers(axis))


def _layer(w: Writer, x: str, rows: int, columns: int, gain: float = 1.0) -> str:
    return w.op("MatMul", x, w.initializer(w.weights(rows, columns, scale=gain / rows**0.5)))


# --- losses and likelihoods ------------------------------------------------------------------------------------------


def quality_focal(w: Writer) -> Sequence[str]:
    p = w.op("Sigmoid", w.times(w.op("Tanh", w.normal(ROWS, WIDTH)), 9))
    p = w.clip(p, 1e-6, 1 - 1e-6)
    t = w.as_float(w.mask(ROWS, WIDTH, name="t"))
    kept = w.add(w.mul(p, t), w.mul(w.one_minus(p), w.one_minus(t)))
    return [w.times(w.mul(w.square(w.one_minus(kept)), w.op("Neg", w.log(kept))), 0.25)]


def margin(w: Writer) -> Sequence[str]:
    """ArcFace: cos(theta + m) by cos and sqrt(1 - cos^2), times 64."""
    x, centres = w.times(w.normal(ROWS, WIDTH), 20), w.weights(WIDTH, 8)
    unit = w.div(x, w.clip(w.length(x, WIDTH), 1e-12, None))
    cos = w.op("MatMul", unit, w.constant(centres / np.linalg.norm(centres, axis=0)))
    sin = w.sqrt(w.clip(w.one_minus(w.square(cos)), 1e-9, 1))
    turned = w.sub(w.times(cos, np.cos(0.5)), w.times(sin, np.sin(0.5)))
    return [w.op("Softmax", w.times(turned, 64 / 8), axis=1)]


def contrast(w: Writer) -> Sequence[str]:
    """CLIP: features over their norms, times exp of a learned scale."""
    image, text = (w.times(w.normal(ROWS, WIDTH, name=name), 40) for name in ("image", "text"))
    a, b = (w.div(x, w.op("Sqrt", w.reduce("ReduceSum", w.square(x), -1))) for x in (image, text))
    scale = w.op("Exp", w.constant(2.6592))
    return [w.op("Softmax", w.mul(scale, w.op("MatMul", a, w.op("Transpose", b, perm=[1, 0]))), axis=1)]


def cosine_attention(w: Writer) -> Sequence[str]:
    """Swin v2: cosine similarity with a clamped logarithmic scale."""
    q, k = (w.times(w.normal(8, WIDTH, name=name), 35) for name in "qk")
    a, b = (w.div(x, w.clip(w.reduce("ReduceL2", x, -1), 1e-12, None)) for x in (q, k))
    scale = w.exp(w.op("Min", w.constant(2.0), w.constant(np.log(100))))
    return [w.op("Softmax", w.mul(w.op("MatMul", a, w.op("Transpose", b, perm=[1, 0])), scale), axis=1)]


def mixture(w: Writer, width: int) -> Sequence[str]:
    """Log-likelihood of a mixture of two Gaussians: log-sum-exp of quadratic forms."""
    x = w.plus(w.times(w.normal(ROWS, width), 3), 20)
    parts = []
    for mean in (19.0, 21.0):
        z = w.times(w.plus(x, -mean), 1 / 3)
        parts.append(w.plus(w.times(w.sum_squares(z, width), -0.5), -0.5 * np.log(2 * np.pi * 9) * width))
    both = w.op("Concat", *parts, axis=1)
    top = w.reduce("ReduceMax", both, -1)
    return [w.op("Softmax", both, axis=1), w.add(top, w.log(w.sum(w.exp(w.sub(both, top)), 2)))]


def divergence(w: Writer) -> Sequence[str]:
    """Kullback-Leibler divergence of two nearly equal softmaxes."""
    a = w.times(w.normal(ROWS, WIDTH), 2)
    b = w.add(a, w.times(w.op("Tanh", w.normal(ROWS, WIDTH, name="z")), 0.03))
    p, q = w.op("Softmax", a, axis=1), w.op("Softmax", b, axis=1)
    terms = w.mul(p, w.sub(w.log(w.plus(p, 1e-10)), w.log(w.plus(q, 1e-10))))
    return [w.times(w.sum(terms, WIDTH), 1000)]


def latent(w: Writer) -> Sequence[str]:
    """A VAE's sample and its divergence: exp(0.5 logvar), 1 + logvar - mean^2 - exp(logvar)."""
    mean, logvar = w.times(w.normal(ROWS, WIDTH), 0.01), w.times(w.normal(ROWS, WIDTH, name="v"), 0.01)
    noise = w.normal(ROWS, WIDTH, name="noise")
    sample = w.add(mean, w.mul(noise, w.exp(w.times(logvar, 0.5))))
    inner = w.sub(w.sub(w.plus(logvar, 1), w.square(mean)), w.exp(logvar))
    return [sample, w.times(w.sum(inner, WIDTH), -0.5 * 100)]


def squashed_policy(w: Writer) -> Sequence[str]:
    """Log-probability of a tanh-squashed Gaussian: log(1 - tanh(u)^2 + 1e-6), summed."""
    u = w.times(w.normal(ROWS, WIDTH), 2.5)
    return [w.sum(w.log(w.plus(w.one_minus(w.op("Pow", w.op("Tanh", u), w.constant(2))), 1e-6)), WIDTH)]


# --- normalizations in disguise --------------------------------------------------------------------------------------


def group_by_instance(w: Writer, scale: float) -> Sequence[str]:
    """GroupNorm as exporters write it: reshape, InstanceNormalization, reshape, gain."""
    x = w.times(w.normal(2, 8, 6, 6), scale)
    flat = w.op("Reshape", x, w.integers(0, 4, -1))
    ones, zeros = w.initializer(np.ones(4, np.float32)), w.initializer(np.zeros(4, np.float32))
    y = w.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
    return [w.mul(w.op("Reshape", y, w.op("Shape", x)), w.constant(w.weights(8, 1, 1)))]


def response(w: Writer, scale: float) -> Sequence[str]:
    """ConvNeXt v2's global response normalization: norms of maps over their mean."""
    x = w.times(w.normal(2, 8, 16, 16), scale)
    flat = w.op("Reshape", x, w.integers(2, 8, -1))
    g = (
        w.op("ReduceL2" if w.happens(0.5) else "ReduceSumSquare", flat, axes=[-1])
        if w.opset < 18
        else w.reduce("ReduceSumSquare", flat, -1)
    )
    n = w.div(
        g,
        w.plus(
            w.op("Transpose", w.reduce("ReduceMean", w.op("Transpose", g, perm=[0, 2, 1]), -1), perm=[0, 2, 1]), 1e-6
        ),
    )
    return [w.add(w.mul(flat, n), flat)]


def weight_norm(w: Writer, scale: float) -> Sequence[str]:
    """g v / |v|, computed from constants in the graph."""
    v = w.initializer(w.weights(16, WIDTH, scale=scale))
    unit = w.div(v, w.op("Sqrt", w.reduce("ReduceSum", w.square(v), -1)))
    return [w.op("MatMul", w.normal(ROWS, WIDTH), w.op("Transpose", unit, perm=[1, 0]))]


def gated_rms(w: Writer, scale: float) -> Sequence[str]:
    """Mamba 2's norm: of a product with a gate."""
    x, z = w.times(w.normal(ROWS, WIDTH), scale), w.normal(ROWS, WIDTH, name="z")
    h = w.mul(x, w.mul(z, w.op("Sigmoid", z)))
    return [w.over_root(h, w.plus(w.mean_squares(h, WIDTH), 1e-5))]


def local_response(w: Writer, scale: float) -> Sequence[str]:
    """Over neighbouring channels: x / (k + a sum x^2)^b"""
    x = w.times(w.normal(2, 8, 4, 4), scale)
    total = w.op(
        "AveragePool",
        w.unsqueeze(w.op("Reshape", w.square(x), w.integers(2, 8, 16)), 1),
        kernel_shape=[5, 1],
        pads=[2, 0, 2, 0],
    )
    divisor = w.op("Pow", w.plus(w.times(w.squeeze(total, 1), 1e-4), 1), w.constant(0.75))
    return [w.div(w.op("Reshape", x, w.integers(2, 8, 16)), divisor)]


def demodulated(w: Writer, scale: float) -> Sequence[str]:
    """StyleGAN 2: weights times styles, over the root of their sums of squares."""
    style = w.plus(w.times(w.normal(1, 16), 0.3 * scale), scale)
    kernel = w.mul(w.initializer(w.weights(8, 16)), style)
    norm = w.op("Pow", w.plus(w.sum_squares(kernel, 16), 1e-8), w.constant(-0.5))
    return [w.op("MatMul", w.mul(kernel, norm), w.op("Transpose", w.normal(ROWS, 16, name="z"), perm=[1, 0]))]


# --- signals and statistics ------------------------------------------------------------------------------------------


def log_mel(w: Writer) -> Sequence[str]:
    """Whisper: power spectrum, mel filters, log10 of what is clipped at 1e-10, and a floor below the maximum."""
    wave = w.times(w.normal(ROWS, 128), 0.1)
    n, k = np.arange(128)[:, None], np.arange(33)[None]
    window = np.hanning(128)[:, None]
    real, imaginary = (
        w.op("MatMul", wave, w.initializer((window * f(2 * np.pi * n * k / 128)).astype(np.float32)))
        for f in (np.cos, np.sin)
    )
    power = w.add(w.square(real), w.square(imaginary))
    filters = np.abs(w.weights(33, 16)) * 0.002
    mel = w.clip(w.op("MatMul", power, w.initializer(filters.astype(np.float32))), 1e-10, None)
    log = w.times(w.log(mel), 1 / np.log(10))
    floor = w.plus(w.reduce("ReduceMax", log, -1), -8)
    return [w.times(w.plus(w.op("Max", log, floor), 4), 0.25)]


def quiet_speech(w: Writer) -> Sequence[str]:
    """A waveform of small amplitude, normalized: (x - mean) / sqrt(var + 1e-7)"""
    x = w.plus(w.times(w.normal(ROWS, 512), 1e-3), 2e-4)
    d = w.sub(x, w.mean(x, 512))
    return [w.over_root(d, w.plus(w.mean_squares(d, 512), 1e-7))]


def samples_of_16_bits(w: Writer) -> Sequence[str]:
    """Integers of 16 bits, made floats and divided by 32768."""
    shape = (ROWS, 256)
    x = w.input("x", 5, shape, lambda r: r.integers(-32768, 32768, shape).astype(np.int16))
    wave = w.times(w.as_float(x), 1 / 32768)
    return [w.op("MatMul", wave, w.initializer(w.weights(256, 8, scale=0.06)))]


def mean_pooling(w: Writer, length: int) -> Sequence[str]:
    """Sentence vectors: masked sum over masked count, then to unit length."""
    hidden, mask = w.plus(w.times(w.normal(length, 8), 3), 2), w.mask(length, name="mask")
    m = w.unsqueeze(w.as_float(mask), 1)
    total = w.reduce("ReduceSum", w.mul(hidden, m), 0)
    count = w.clip(w.reduce("ReduceSum", m, 0), 1e-9, None)
    mean = w.div(total, count)
    return [w.div(mean, w.clip(w.op("Sqrt", w.reduce("ReduceSum", w.square(mean), -1)), 1e-12, None))]


def median(w: Writer) -> Sequence[str]:
    """Numbers less their median, over the median of what is left."""
    x = w.plus(w.normal(ROWS, 33), 400)
    middle = _slice(w, w.ops("TopK", [x, w.integers(17)], 2, axis=1)[0], 16, 17)
    d = w.sub(x, middle)
    spread = _slice(w, w.ops("TopK", [w.op("Abs", d), w.integers(17)], 2, axis=1)[0], 16, 17)
    return [w.div(d, w.plus(spread, 1e-6))]


def pairwise(w: Writer) -> Sequence[str]:
    """Distances of all pairs from a Gram matrix."""
    x = w.plus(w.normal(8, WIDTH), 8)
    gram = w.op("MatMul", x, w.op("Transpose", x, perm=[1, 0]))
    sizes = w.sum_squares(x, WIDTH)
    d = w.sub(w.add(sizes, w.op("Transpose", sizes, perm=[1, 0])), w.times(gram, 2))
    return [w.exp(w.times(w.clip(d, 0, None), -1 / WIDTH))]


def style(w: Writer) -> Sequence[str]:
    """A Gram matrix of feature maps over their size."""
    x = w.op("Reshape", w.times(w.normal(8, 32, 32), 16), w.integers(8, -1))
    return [w.times(w.op("MatMul", x, w.op("Transpose", x, perm=[1, 0])), 1 / (8 * 1024))]


def principal(w: Writer) -> Sequence[str]:
    """Projection of centred data on components whose variances differ by 1e6."""
    x = w.plus(w.times(w.normal(ROWS, 16), 10), 700)
    centred = w.op("Sub", x, w.constant(np.full(16, 700.0)))
    scores = w.op("MatMul", centred, w.initializer(w.rotation(16)))
    return [w.op("Tanh", w.times(scores, 0.1))]


def z_scores(w: Writer) -> Sequence[str]:
    """Features of very different units, each less its mean and over its deviation."""
    means = np.array([0.5, 70, 1013, 5e4, 3e-5, 290, 1e6, -2])
    spreads = np.array([0.2, 15, 9, 2e4, 1e-6, 8, 3e5, 0.1])
    x = w.input("x", FLOAT, (16, 8), lambda r: (means + spreads * r.standard_normal((16, 8))).astype(np.float32))
    z = w.div(w.sub(x, w.constant(means)), w.constant(spreads))
    return [_layer(w, w.clip(z, -5, 5), 8, 4)]


def calendar(w: Writer) -> Sequence[str]:
    """Seconds of a week to an angle."""
    t = w.ids(604800, 12, name="t")
    day = w.times(w.as_float(t), 2 * np.pi / 86400)
    return [w.op("Concat", w.op("Sin", day), w.op("Cos", day), axis=0)]


def perplexity(w: Writer) -> Sequence[str]:
    """exp of the mean of -log p over a long text."""
    p = w.clip(w.op("Softmax", w.normal(2, 3000), axis=1), 1e-9, 1)
    return [w.times(w.exp(w.op("Neg", w.mean(w.log(p), 3000))), 1 / 3000)]


def temperature(w: Writer) -> Sequence[str]:
    """A sharp softmax by hand, and the logarithm of what is left of it."""
    logits = w.times(_layer(w, w.normal(ROWS, WIDTH), WIDTH, 16), 1 / 0.05)
    e = w.exp(w.sub(logits, w.reduce("ReduceMax", logits, -1)))
    return [w.log(w.plus(w.div(e, w.sum(e, 16)), 1e-10))]


def rendering(w: Writer) -> Sequence[str]:
    """NeRF: transmittance as an exponential of a cumulative sum, and weights of samples along a ray."""
    density = w.times(w.op("Softplus", w.normal(2, 1024)), 0.004)
    alpha = w.one_minus(w.exp(w.op("Neg", density)))
    light = w.exp(w.op("Neg", w.op("CumSum", density, w.initializer(np.int64(1)), exclusive=1)))
    return [w.times(w.mul(alpha, light), 100)]


def diffusion(w: Writer) -> Sequence[str]:
    """One step of denoising late in the schedule: 1 - alpha-bar is small."""
    x, noise = w.normal(ROWS, WIDTH), w.normal(ROWS, WIDTH, name="noise")
    alpha = w.constant(0.9998)
    mixed = w.add(w.mul(w.sqrt(alpha), x), w.mul(w.sqrt(w.one_minus(alpha)), noise))
    return [w.div(w.sub(mixed, w.mul(w.sqrt(alpha), x)), w.sqrt(w.one_minus(alpha)))]


def huge_table(w: Writer) -> Sequence[str]:
    """Embeddings of 1e-5 times the root of the width, as some checkpoints have them, before a norm."""
    vectors = w.op("Gather", w.initializer(w.weights(200, WIDTH, scale=2e-8)), w.ids(200, ROWS), axis=0)
    big = w.times(vectors, WIDTH**0.5)
    return [w.over_root(big, w.plus(w.mean_squares(big, WIDTH), 1e-20))]


SCALES = tuple({"scale": s} for s in (1.0, 30.0, 100.0))
IDIOMS = (
    *heldout_sequences.IDIOMS,
    Idiom("heldout", "quality focal loss", quality_focal, count=4),
    Idiom("heldout", "angular margin", margin, count=4),
    Idiom("heldout", "contrast", contrast, count=4),
    Idiom("heldout", "cosine attention", cosine_attention, count=4),
    Idiom("heldout", "mixture", mixture, ({"width": 64}, {"width": 1024}), count=3),
    Idiom("heldout", "divergence", divergence, count=4),
    Idiom("heldout", "latent", latent, count=4),
    Idiom("heldout", "squashed policy", squashed_policy, count=4),
    Idiom("heldout", "group by instance", group_by_instance, SCALES, count=1),
    Idiom("heldout", "response norm", response, SCALES, count=2),
    Idiom("heldout", "weight norm", weight_norm, SCALES, count=2),
    Idiom("heldout", "gated RMS norm", gated_rms, SCALES, count=2),
    Idiom("heldout", "local response", local_response, SCALES, count=2),
    Idiom("heldout", "demodulation", demodulated, SCALES, count=2),
    Idiom("heldout", "log-mel", log_mel, count=4),
    Idiom("heldout", "quiet speech", quiet_speech, count=4),
    Idiom("heldout", "16-bit samples", samples_of_16_bits, count=3),
    Idiom("heldout", "mean pooling", mean_pooling, ({"length": 64}, {"length": 30000}), count=2),
    Idiom("heldout", "median", median, count=4),
    Idiom("heldout", "pairwise", pairwise, count=4),
    Idiom("heldout", "Gram matrix", style, count=4),
    Idiom("heldout", "principal components", principal, count=4),
    Idiom("heldout", "z-scores", z_scores, count=4),
    Idiom("heldout", "calendar", calendar, count=3),
    Idiom("heldout", "perplexity", perplexity, count=4),
    Idiom("heldout", "temperature", temperature, count=4),
    Idiom("heldout", "rendering", rendering, count=4),
    Idiom("heldout", "denoising", diffusion, count=4),
    Idiom("heldout", "tiny table", huge_table, count=4),
)
