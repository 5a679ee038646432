"""Rows of zeros, as padding makes them, and the epsilons that keep what is divided by from them."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer

ROWS, WIDTH = 4, 64


def _padded(w: Writer, name: str = "x") -> str:
    """Unit normal rows, the last of them zeros."""

    def sample(random: np.random.Generator) -> np.ndarray:
        rows = random.standard_normal((ROWS, WIDTH)).astype(np.float32)
        rows[-1] = 0.0
        return rows

    return w.input(name, FLOAT, (ROWS, WIDTH), sample)


def _hidden(w: Writer, x: str) -> str:
    """A layer without a bias, which leaves zeros."""
    return w.op("Relu", w.op("MatMul", x, w.initializer(w.weights(WIDTH, WIDTH, scale=WIDTH**-0.5))))


def _moved(w: Writer, value: str) -> str:
    """A column of a row each, on its way to what it divides."""
    shapes = ("Reshape", "Unsqueeze, Squeeze", "Flatten", "Transpose twice")
    match w.choose("", "Expand", "Concat", "Tile", "Identity", "Slice", "Gather", *shapes, "Min", "Abs"):
        case "Expand":
            return w.op("Expand", value, w.integers(ROWS, WIDTH))
        case "Reshape":
            return w.op("Reshape", w.op("Reshape", value, w.integers(-1)), w.integers(-1, 1))
        case "Unsqueeze, Squeeze":
            return w.squeeze(w.unsqueeze(value, 0), 0)
        case "Concat":
            return w.op("Concat", *[value] * 2, *[value] * (WIDTH - 2), axis=1)
        case "Tile":
            return w.op("Tile", value, w.integers(1, WIDTH))
        case "Identity":
            return w.op("Identity", w.op("Identity", value))
        case "Transpose twice":
            return w.op("Transpose", w.op("Transpose", value))
        case "Slice":
            return w.op("Slice", value, w.integers(0), w.integers(ROWS), w.integers(0))
        case "Gather":
            return w.op("Gather", value, w.integers(*range(ROWS)), axis=0)
        case "Flatten":
            return w.op("Flatten", value, axis=1)
        case "Min":
            return w.op("Min", value, w.constant(1e4))
        case "Abs":
            return w.op("Abs", value)
        case _:
            return value


def _floored(w: Writer, value: str, eps: float) -> str:
    """A size that is never below eps: bounded, picked, or moved up."""
    zero, bound = w.constant(0.0), w.constant(eps)
    match w.choose("clip", "Add", "Where zero", "Max of two constants", "Add, then Abs"):
        case "Add":
            return w.plus(value, eps)
        case "Where zero":
            return w.op("Where", w.op("Equal", value, zero), bound, value)
        case "Max of two constants":
            return w.op("Max", value, w.op("Mul", bound, w.constant(0.5)), bound)
        case "Add, then Abs":
            return w.op("Abs", w.op("Add", bound, value))
        case _:
            return w.clip(value, eps, None)


def normalized(w: Writer, eps: float) -> Sequence[str]:
    """x / max(|x|, eps), as torch.nn.functional.normalize has it."""
    x = _hidden(w, _padded(w))
    return [w.div(x, _moved(w, _floored(w, w.length(x, WIDTH), eps)))]


def by_root(w: Writer) -> Sequence[str]:
    """x / sqrt(max(sum x^2, 1e-12)), as tf.math.l2_normalize has it."""
    x = _hidden(w, _padded(w))
    return [w.over_root(x, _moved(w, _floored(w, w.sum_squares(x, WIDTH), 1e-12)))]


def root_then_moved(w: Writer) -> Sequence[str]:
    x = _hidden(w, _padded(w))
    return [w.div(x, _moved(w, w.sqrt(_floored(w, w.sum_squares(x, WIDTH), 1e-15))))]


def cosine(w: Writer) -> Sequence[str]:
    a, b = _hidden(w, _padded(w)), w.normal(ROWS, WIDTH, name="b")
    sizes = w.mul(w.length(a, WIDTH), w.length(b, WIDTH))
    return [w.div(w.dot(a, b, WIDTH), _moved(w, _floored(w, sizes, 1e-8)))]


def cosine_of_two(w: Writer) -> Sequence[str]:
    """Each norm is guarded by itself; the product of both guards is what divides."""
    a, b = _hidden(w, _padded(w)), _hidden(w, _padded(w, "b"))
    sizes = [_floored(w, w.length(x, WIDTH), 1e-5) for x in (a, b)]
    return [w.div(w.dot(a, b, WIDTH), _moved(w, w.mul(*sizes)))]


def logarithm(w: Writer) -> Sequence[str]:
    x = _hidden(w, _padded(w))
    return [w.log(_moved(w, _floored(w, w.mean(x, WIDTH), 1e-10)))]


def masked_mean(w: Writer) -> Sequence[str]:
    """Over no position in the last row."""

    def sample(random: np.random.Generator) -> np.ndarray:
        mask = (np.arange(WIDTH) < random.integers(WIDTH // 2, WIDTH, (ROWS, 1))).astype(np.float32)
        mask[-1] = 0.0
        return mask

    mask, x = w.input("mask", FLOAT, (ROWS, WIDTH), sample), w.normal(ROWS, WIDTH)
    return [w.div(w.sum(w.mul(x, mask), WIDTH), _moved(w, _floored(w, w.sum(mask, WIDTH), 1e-9)))]


def inverse(w: Writer, eps: float) -> Sequence[str]:
    """x times 1 / (|x| + eps): FP16 holds eps, and its inverse is past the range."""
    x = _hidden(w, _padded(w))
    return [w.mul(x, w.op("Reciprocal", _moved(w, _floored(w, w.length(x, WIDTH), eps))))]


def inverse_power(w: Writer) -> Sequence[str]:
    x = _hidden(w, _padded(w))
    return [w.mul(x, w.op("Pow", _moved(w, _floored(w, w.length(x, WIDTH), 1e-4)), w.constant(-1.5)))]


def standard_score(w: Writer) -> Sequence[str]:
    x = _hidden(w, _padded(w))
    d = w.sub(x, w.mean(x, WIDTH))
    return [w.div(d, _moved(w, _floored(w, w.sqrt(w.mean_squares(d, WIDTH)), 1e-8)))]


def sure(w: Writer) -> Sequence[str]:
    """-log(1 - min(p, 1 - 1e-6)) where p is 1."""
    p = w.clip(w.times(_hidden(w, _padded(w)), 100.0), 0, 1)
    return [w.op("Neg", w.log(w.one_minus(w.clip(p, 0, 1 - 1e-6))))]


def _of(*powers: int) -> tuple[dict[str, float], ...]:
    return tuple({"eps": float(np.float64(10.0) ** -power)} for power in powers)


IDIOMS = (
    Idiom("guards", "normalized", normalized, _of(12, 8), count=11),
    Idiom("guards", "by root", by_root, count=11),
    Idiom("guards", "root, then moved", root_then_moved, count=7),
    Idiom("guards", "cosine", cosine, count=9),
    Idiom("guards", "cosine of two guards", cosine_of_two, count=7),
    Idiom("guards", "logarithm", logarithm, count=9),
    Idiom("guards", "masked mean", masked_mean, count=9),
    Idiom("guards", "inverse", inverse, _of(5, 6), count=7),
    Idiom("guards", "inverse power", inverse_power, count=7),
    Idiom("guards", "standard score", standard_score, count=9),
    Idiom("guards", "sure", sure, count=7),
)
