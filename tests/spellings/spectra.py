"""Spectra of sound before a logarithm: quiet bins beside loud ones, and powers past a narrow format's range."""

from collections.abc import Sequence

import numpy as np

from spellings.cases import Idiom
from spellings.draft import FLOAT
from spellings.phrases import Writer

ROWS, SAMPLES, BINS, MELS = 4, 128, 24, 8


def _signal(w: Writer, *shape: int) -> str:
    """A loud tone, four a thousand times as quiet, which is -60 dB, and noise below that."""

    def sample(r: np.random.Generator) -> np.ndarray:
        times = np.arange(SAMPLES)
        tones = [np.sin(times * rate + r.uniform(0, 6)) for rate in r.uniform(0.3, 1.2, 4)]
        loud = np.sin(0.1 * times + r.uniform(0, 6, (ROWS, 1)))
        sound = 0.9 * loud + 1e-3 * sum(tones) + 1e-4 * r.standard_normal((ROWS, SAMPLES))
        return sound.reshape(shape).astype(np.float32)

    return w.input("x", FLOAT, shape, sample)


def _basis(is_sine: bool) -> np.ndarray:
    """Cosines or sines of every frequency, under a window, [SAMPLES, BINS]."""
    angles = np.outer(np.arange(SAMPLES), np.arange(1, BINS + 1)) * (2 * np.pi / SAMPLES)
    window = np.hanning(SAMPLES)[:, None]
    return ((np.sin(angles) if is_sine else np.cos(angles)) * window).astype(np.float32)


def _parts(w: Writer) -> tuple[str, str]:
    """Real and imaginary parts of a signal's spectrum, [ROWS, BINS]."""
    match w.choose("MatMul", "Conv", "one MatMul, Split", "MatMul of a windowed signal"):
        case "Conv":
            x = _signal(w, ROWS, 1, SAMPLES)
            kernels = [w.initializer(np.ascontiguousarray(_basis(k).T[:, None])) for k in (False, True)]
            real, imaginary = (w.squeeze(w.op("Conv", x, kernel), 2) for kernel in kernels)
            return real, w.op("Neg", imaginary)
        case "one MatMul, Split":
            both = w.op("MatMul", _signal(w, ROWS, SAMPLES), w.initializer(np.hstack([_basis(False), _basis(True)])))
            sizes = [w.integers(BINS, BINS)] if w.opset >= 13 else []
            split = {} if sizes else {"split": [BINS, BINS]}
            real, imaginary = w.ops("Split", [both, *sizes], 2, axis=1, **split)
            return real, imaginary
        case "MatMul of a windowed signal":
            x = w.mul(_signal(w, ROWS, SAMPLES), w.initializer(np.hanning(SAMPLES).astype(np.float32)))
            window = np.maximum(np.hanning(SAMPLES)[:, None], 1e-9)
            waves = [w.initializer((_basis(k) / window).astype(np.float32)) for k in (False, True)]
            real, imaginary = (w.op("MatMul", x, wave) for wave in waves)
            return real, imaginary
        case _:
            x = _signal(w, ROWS, SAMPLES)
            real, imaginary = (w.op("MatMul", x, w.initializer(_basis(k))) for k in (False, True))
            return real, imaginary


def _power(w: Writer) -> str:
    real, imaginary = _parts(w)
    match w.choose("sum of two", "sum over pairs"):
        case "sum over pairs":
            pairs = w.op("Concat", w.unsqueeze(real, 2), w.unsqueeze(imaginary, 2), axis=2)
            return w.squeeze(w.sum(w.square(pairs), 2), 2)
        case _:
            return w.add(w.square(real), w.square(imaginary))


def _mels(w: Writer, power: str) -> str:
    centres = np.linspace(1, BINS - 2, MELS)
    filters = np.maximum(1 - np.abs(np.arange(BINS)[:, None] - centres) / 3, 0)
    return w.op("MatMul", power, w.initializer(filters.astype(np.float32)))


def _floored(w: Writer, x: str, floor: float) -> str:
    match w.choose("added", "bound"):
        case "bound":
            return w.clip(x, floor, None)
        case _:
            return w.plus(x, floor)


def log_mel(w: Writer) -> Sequence[str]:
    """Whisper's and openWakeWord's: power, mel filters, a floor, decibels."""
    return [w.times(w.log(_floored(w, _mels(w, _power(w)), 1e-10)), 10 / np.log(10))]


def log_power(w: Writer) -> Sequence[str]:
    """Less the loudest bin of the row."""
    log = w.log(_floored(w, _power(w), 1e-10))
    return [w.sub(log, w.reduce("ReduceMax", log, -1))]


def log_of_magnitude(w: Writer, floor: float) -> Sequence[str]:
    return [w.log(_floored(w, w.sqrt(_power(w)), floor))]


def log_of_one_plus_much(w: Writer) -> Sequence[str]:
    """Silero's: log(1 + 2^20 |X|)."""
    return [w.log(w.plus(w.times(w.sqrt(_power(w)), 2.0**20), 1))]


def power_again(w: Writer) -> Sequence[str]:
    """basic-pitch's: a root that a layer of its own squares again."""
    return [w.log(w.plus(w.square(w.sqrt(_power(w))), 1e-10))]


def loud_magnitude(w: Writer, scale: float) -> Sequence[str]:
    """Of samples that are whole numbers, the power passes FP16's range though the magnitude does not."""
    real, imaginary = _parts(w)
    real, imaginary = w.times(real, scale), w.times(imaginary, scale)
    return [w.times(w.sqrt(w.add(w.square(real), w.square(imaginary))), 1 / scale)]


IDIOMS = (
    Idiom("spectra", "log mel", log_mel, count=12),
    Idiom("spectra", "log power", log_power, count=12),
    Idiom("spectra", "log of magnitude", log_of_magnitude, ({"floor": 1e-5}, {"floor": 1e-4}), count=8),
    Idiom("spectra", "log of one plus much", log_of_one_plus_much, count=9),
    Idiom("spectra", "power again", power_again, count=9),
    Idiom("spectra", "loud magnitude", loud_magnitude, ({"scale": 100.0},), count=6),
)
