"""Inputs for the zoo: pictures, text, speech, brain waves and files, drawn or cut from packages. No script.

Everything is seeded: two runs give the same numbers. Images are [height, width, channels], 0 to 255.
"""

import io
import tarfile
import wave
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

_WORDS = (
    "precision speed answer kernel matrix signal weight channel sample budget error table market garden window "
    "river stone letter number record invoice total amount date name address street city country phone order"
)
PICTURES = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "motorcycle_left.png", "page.png")


def packaged_files(archive: Path, suffixes: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of an archive's files that end so, in their order; a wheel or a source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as packed:
            for name in packed.namelist():
                if name.endswith(suffixes):
                    yield name, packed.read(name)
        return
    with tarfile.open(archive) as packed_tar:
        for member in packed_tar:
            stream = packed_tar.extractfile(member) if member.isfile() and member.name.endswith(suffixes) else None
            if stream is not None:
                yield member.name, stream.read()


@cache
def pictures(scikit_image: Path) -> tuple[np.ndarray, ...]:
    """Photographs and a scanned page that scikit-image ships, RGB."""
    from PIL import Image

    files = {Path(name).name: data for name, data in packaged_files(scikit_image, PICTURES)}
    return tuple(np.asarray(Image.open(io.BytesIO(files[name])).convert("RGB")) for name in PICTURES)


@cache
def faces(scikit_image: Path) -> np.ndarray:
    """100 faces and 100 pictures that are none, [200, 25, 25], 0 to 1, alternating."""
    ((_, data),) = packaged_files(scikit_image, ("data/lfw_subset.npy",))
    crops = np.load(io.BytesIO(data), allow_pickle=False)
    return np.stack([crops[:100], crops[100:]], axis=1).reshape(200, 25, 25)


def crop(image: np.ndarray, height: int, width: int, seed: int) -> np.ndarray:
    """A random part of an image, between half and all of it, resized, [height, width, 3]."""
    from PIL import Image

    draw = np.random.default_rng(seed)
    part = draw.uniform(0.5, 1.0)
    size = (int(image.shape[0] * part), int(image.shape[1] * part))
    top, left = (draw.integers(0, whole - cut + 1) for whole, cut in zip(image.shape[:2], size, strict=True))
    cut = Image.fromarray(image[top : top + size[0], left : left + size[1]])
    return np.asarray(cut.resize((width, height), Image.Resampling.BILINEAR))


def text_line(seed: int, height: int, width: int, words: int = 3) -> np.ndarray:
    """A line of printed words and a number on a light ground, slightly noisy, RGB."""
    from PIL import Image, ImageDraw, ImageFont

    draw = np.random.default_rng(seed)
    line = " ".join([*draw.choice(_WORDS.split(), words), str(draw.integers(10, 99999))])
    ground, ink = int(draw.integers(190, 256)), int(draw.integers(0, 90))
    image = Image.new("L", (width, height), ground)
    size = height * draw.uniform(0.5, 0.75)
    ImageDraw.Draw(image).text((height * 0.15, height * 0.1), line, fill=ink, font=ImageFont.load_default(size))
    noisy = np.asarray(image) + draw.normal(0, 6, (height, width))
    return np.repeat(noisy.clip(0, 255).astype(np.uint8)[..., None], 3, axis=-1)


@cache
def speech(silero_source: Path) -> np.ndarray:
    """A minute of Russian speech at 16 kHz, float32, -1 to 1, that silero-vad tests itself with."""
    ((_, data),) = packaged_files(silero_source, ("tests/data/test.wav",))
    with wave.open(io.BytesIO(data)) as stream:
        samples = np.frombuffer(stream.readframes(stream.getnframes()), np.int16)
    return samples.astype(np.float32) / 32768


def noisy_speech(silero_source: Path, count: int, seed: int) -> np.ndarray:
    """`count` samples of speech from a random place, louder or softer, under noise of a random level."""
    draw, whole = np.random.default_rng(seed), speech(silero_source)
    start = draw.integers(0, len(whole) - count)
    noise = draw.standard_normal(count) * draw.choice([0, 0.003, 0.02, 0.1])
    return np.clip(whole[start : start + count] * draw.uniform(0.3, 1.5) + noise, -1, 1).astype(np.float32)


def chords(seed: int, count: int, rate: int) -> np.ndarray:
    """Chords of three decaying notes with five overtones each, a new one twice a second, -1 to 1."""
    draw, time = np.random.default_rng(seed), np.arange(rate // 2) / rate
    partials = np.arange(1, 6)[:, None]

    def note(pitch: int) -> np.ndarray:
        frequency = 440 * 2 ** ((pitch - 69) / 12)
        waves = np.sin(2 * np.pi * frequency * partials * time) / partials
        return np.asarray(waves.sum(0) * np.exp(-3 * time))

    parts = [sum(note(int(pitch)) for pitch in draw.integers(48, 84, 3)) for _ in range(-(-count // len(time)))]
    whole = np.concatenate(parts)[:count]
    return (whole / np.abs(whole).max() * draw.uniform(0.3, 0.9)).astype(np.float32)


def brain_waves(seed: int, rate: int = 256, seconds: int = 60) -> np.ndarray:
    """Pink noise with bursts of alpha waves, in every second seed 3 Hz spikes and waves as in a seizure, microvolts."""
    draw, count = np.random.default_rng(seed), rate * seconds
    spectrum = np.fft.rfft(draw.standard_normal(count))
    frequencies = np.fft.rfftfreq(count, 1 / rate)
    noise = np.fft.irfft(spectrum / np.maximum(frequencies, 0.5), count)
    time = np.arange(count) / rate
    alpha = np.sin(2 * np.pi * 10 * time) * (np.sin(2 * np.pi * time / 7 + seed) > 0.3)
    begin = draw.uniform(0.2, 0.5) * seconds
    spikes = np.abs(np.sin(np.pi * 3 * time)) ** 12 * ((time > begin) & (time < begin + 20)) * (seed % 2)
    return 20 * noise / noise.std() + 10 * alpha + 120 * spikes


def spectrogram(signal: np.ndarray, rate: int = 256) -> np.ndarray:
    """Power per second at 0 to 99 Hz every half second, each frequency scaled to mean 0 and deviation 1: [100, T]."""
    from scipy.signal import spectrogram as power

    scaled = (signal - signal.mean()) / signal.std()
    _, _, bins = power(scaled, rate, nperseg=rate, noverlap=rate // 2)
    bins = bins[:100]
    return (bins - bins.mean(1, keepdims=True)) / np.maximum(bins.std(1, keepdims=True), 1e-12)
