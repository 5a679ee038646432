"""Epsilons below a format's resolution near one, or below its smallest number, along a chain."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _probabilities(w: Writer, sharpness: float = 6.0) -> str:
    """Of sharp logits, so that some are next to 0 and some next to 1."""
    logits = w.times(w.op("Tanh", w.normal(ROWS, WIDTH)), sharpness)
    match w.choose("Sigmoid", "Softmax of two"):
        case "Softmax of two":
            halves = w.unsqueeze(w.times(logits, 0.5), 2), w.unsqueeze(w.times(logits, -0.5), 2)
            both = w.op("Softmax", w.op("Concat", *halves, axis=2), axis=2)
            first = w.op("Slice", both, w.integers(0), w.integers(1), w.integers(2))
            return w.squeeze(first, 2)
        case _:
            return w.op("Sigmoid", logits)


def _certain(w: Writer) -> str:
    """Probabilities among which are 0 and 1 themselves, as ReLU-like gates and labels give."""
    return w.clip(w.plus(w.times(w.normal(ROWS, WIDTH), 0.5), 0.5), 0, 1)


def logit_of_clipped(w: Writer) -> Sequence[str]:
    p = w.clip(_certain(w), 1e-7, 1 - 1e-6)
    return [w.log(w.div(p, w.one_minus(p)))]


def inverse_sigmoid(w: Writer) -> Sequence[str]:
    """DETR's: log(max(x, eps) / max(1 - x, eps))"""
    x = w.clip(_certain(w), 0, 1)
    eps = 10.0 ** -w.rng.choice((5, 6, 7, 9))
    high, low = w.clip(x, eps, None), w.clip(w.one_minus(x), eps, None)
    match w.choose("log of quotient", "difference of logs"):
        case "difference of logs":
            return [w.sub(w.log(high), w.log(low))]
        case _:
            return [w.log(w.div(high, low))]


def log_of_shifted(w: Writer, eps: float) -> Sequence[str]:
    return [w.log(w.plus(w.op("Relu", w.normal(ROWS, WIDTH)), eps))]


def log_of_complement(w: Writer) -> Sequence[str]:
    return [w.log(w.plus(w.one_minus(_certain(w)), 1e-8))]


def log_of_clipped(w: Writer, eps: float) -> Sequence[str]:
    return [w.log(w.clip(w.op("Relu", w.normal(ROWS, WIDTH)), eps, None))]


def by_clipped(w: Writer) -> Sequence[str]:
    """x / max(y, 1e-10) where x and y may both be 0."""
    y = w.op("Relu", w.normal(ROWS, WIDTH))
    return [w.div(w.op("Tanh", y), w.clip(y, 1e-10, None))]


def by_shifted(w: Writer) -> Sequence[str]:
    """x / (|x| + 1e-9), a sign that is 0 at 0."""
    x = w.normal(ROWS, WIDTH)
    kept = w.op("Mul", x, w.as_float(w.op("Greater", x, w.constant(-0.5))))
    return [w.div(kept, w.plus(w.op("Abs", kept), 1e-9))]


def binary_cross_entropy(w: Writer) -> Sequence[str]:
    p, t = _certain(w), w.as_float(w.mask(ROWS, WIDTH, name="t"))
    eps = 10.0 ** -w.rng.choice((8, 10, 12))
    positive = w.mul(t, w.log(w.plus(p, eps)))
    negative = w.mul(w.one_minus(t), w.log(w.plus(w.one_minus(p), eps)))
    return [w.op("Neg", w.add(positive, negative))]


def clipped_cross_entropy(w: Writer) -> Sequence[str]:
    """As Keras has it: p within [1e-7, 1 - 1e-7]."""
    p, t = w.clip(_certain(w), 1e-7, 1 - 1e-7), w.as_float(w.mask(ROWS, WIDTH, name="t"))
    wrong = w.mul(w.one_minus(t), w.log(w.one_minus(p)))
    return [w.op("Neg", w.add(w.mul(t, w.log(p)), wrong))]


def root_of_shifted(w: Writer) -> Sequence[str]:
    """x / sqrt(x^2 + 1e-12): 0 at 0."""
    x = w.op("Relu", w.normal(ROWS, WIDTH))
    return [w.over_root(x, w.plus(w.square(x), 1e-12))]


def inverse_hyperbolic_tangent(w: Writer) -> Sequence[str]:
    x = w.clip(w.normal(ROWS, WIDTH), -1 + 1e-5, 1 - 1e-5)
    return [w.times(w.log(w.div(w.plus(x, 1), w.one_minus(x))), 0.5)]


def log1p_by_hand(w: Writer) -> Sequence[str]:
    """log(1 + x) of small x, as a share of x."""
    x = w.plus(w.times(w.sigmoid(w.normal(ROWS, WIDTH)), 1e-3), 1e-3)
    return [w.times(w.log(w.plus(x, 1)), 1000)]


def expm1_by_hand(w: Writer) -> Sequence[str]:
    x = w.times(w.op("Tanh", w.normal(ROWS, WIDTH)), 1e-3)
    return [w.times(w.plus(w.exp(x), -1), 1000)]


def cosine_gap(w: Writer) -> Sequence[str]:
    """1 - cos of small angles."""
    x = w.times(w.op("Tanh", w.normal(ROWS, WIDTH)), 0.05)
    return [w.times(w.one_minus(w.op("Cos", x)), 1000)]


def focal_loss(w: Writer) -> Sequence[str]:
    """-(1 - p)^2 log p where the model is sure."""
    p = _probabilities(w, 8)
    weight = w.square(w.one_minus(p))
    return [w.op("Neg", w.mul(weight, w.log(w.plus(p, 1e-9)))), w.log(w.plus(w.one_minus(p), 1e-9))]


def entropy(w: Writer) -> Sequence[str]:
    """Of a softmax some of whose shares vanish."""
    p = w.op("Softmax", w.times(w.normal(ROWS, WIDTH), 12), axis=1)
    return [w.op("Neg", w.sum(w.mul(p, w.log(w.plus(p, 1e-12))), WIDTH))]


def normalized_weights(w: Writer) -> Sequence[str]:
    """Weights that may all be 0, over their sum and 1e-8."""
    x = w.op("Relu", w.plus(w.normal(64, 3), -1))
    return [w.div(x, w.plus(w.sum(x, 3), 1e-8))]


def guarded_reciprocal(w: Writer) -> Sequence[str]:
    x = w.op("Relu", w.normal(ROWS, WIDTH))
    inverse = w.op("Reciprocal", w.plus(x, 1e-8))
    return [w.mul(x, inverse)]


def survival(w: Writer) -> Sequence[str]:
    """log of 1 - p^2, as squashed Gaussian policies have it: 1 - tanh(x)^2 + 1e-6."""
    x = w.op("Tanh", w.times(w.normal(ROWS, WIDTH), 2))
    return [w.log(w.plus(w.one_minus(w.square(x)), 1e-6))]


def gumbel(w: Writer) -> Sequence[str]:
    """-log(-log(u + 1e-20) + 1e-20) of uniform numbers."""
    u = w.uniform(0.0, 1.0, ROWS, WIDTH, name="u")
    inner = w.op("Neg", w.log(w.plus(u, 1e-20)))
    return [w.op("Neg", w.log(w.plus(inner, 1e-20)))]


def tiny_chain(w: Writer) -> Sequence[str]:
    """Numbers of 1e-8 on the way, of 1 at the end."""
    x = w.sigmoid(w.normal(ROWS, WIDTH))
    small = w.times(w.times(x, 1e-4), 1e-4)
    return [w.div(small, w.plus(w.mean(small, WIDTH), 1e-15))]


def _of_eps(*powers: int) -> tuple[dict[str, float], ...]:
    return tuple({"eps": float(np.float64(10.0) ** -power)} for power in powers)


IDIOMS = (
    Idiom("epsilons", "logit of clipped", logit_of_clipped, count=9),
    Idiom("epsilons", "inverse sigmoid", inverse_sigmoid, count=11),
    Idiom("epsilons", "log of shifted", log_of_shifted, _of_eps(6, 8, 12), count=3),
    Idiom("epsilons", "log of complement", log_of_complement, count=9),
    Idiom("epsilons", "log of clipped", log_of_clipped, _of_eps(6, 10, 12), count=3),
    Idiom("epsilons", "by clipped", by_clipped, count=9),
    Idiom("epsilons", "by shifted", by_shifted, count=9),
    Idiom("epsilons", "binary cross entropy", binary_cross_entropy, count=9),
    Idiom("epsilons", "clipped cross entropy", clipped_cross_entropy, count=7),
    Idiom("epsilons", "root of shifted", root_of_shifted, count=9),
    Idiom("epsilons", "inverse tanh", inverse_hyperbolic_tangent, count=7),
    Idiom("epsilons", "log1p by hand", log1p_by_hand, count=7),
    Idiom("epsilons", "expm1 by hand", expm1_by_hand, count=7),
    Idiom("epsilons", "1 - cos", cosine_gap, count=7),
    Idiom("epsilons", "focal loss", focal_loss, count=7),
    Idiom("epsilons", "entropy", entropy, count=7),
    Idiom("epsilons", "normalized weights", normalized_weights, count=7),
    Idiom("epsilons", "guarded reciprocal", guarded_reciprocal, count=9),
    Idiom("epsilons", "survival", survival, count=7),
    Idiom("epsilons", "Gumbel", gumbel, count=5),
    Idiom("epsilons", "tiny chain", tiny_chain, count=7),
)  # fmt: skip
