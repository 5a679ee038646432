"""Measures calibration beside ONNX Runtime's collectors, on the same arrays: time per number collected, time per tensor
to choose a range, and by how much ranges from a sample differ from those from all numbers.

    python benchmarks/calibrators.py
    python benchmarks/calibrators.py --batch 4 --rounds 9 --json out/calibrators.json

Arrays have the shapes of ResNet-50's activations; half of them are cut off at zero. Times are the least processor time
of several rounds, in which all take turns: other work disturbs that less than elapsed time. Ours are one pass for all
methods, ONNX Runtime's one pass for each. `per tensor` of "entropy" depends on the bins: ONNX Runtime has 128 unless
told otherwise, 255 integers need more.
"""

import argparse
import contextlib
import io
import json
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
from onnxruntime.quantization.calibrate import HistogramCollector

from mezzo.contracts.calibrator import Grid
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import calibrators
from mezzo.quantize.arithmetic.choosing import choose_range
from mezzo.quantize.observers.collector import MOST_SAMPLED, Collector

Arrays = Mapping[str, npt.NDArray[np.float32]]

# Channels and side of ResNet-50's stages, and how many activations of each.
_STAGES = ((64, 112, 1), (64, 56, 6), (256, 56, 4), (128, 28, 8), (512, 28, 5), (256, 14, 12), (1024, 14, 7))
_GRIDS = {"U8": Grid(dtype=DType.UINT8), "S8": Grid(dtype=DType.INT8, is_symmetric=True)}
# What people set, and what ONNX Runtime takes unless told: bins, integers.
_THEIR_ENTROPY = ((128, 128), (2048, 255))
_THEIR_PERCENTILE = 2048


def draw_batches(batch: int, batches: int) -> list[Arrays]:
    """Batches of activations: heavy tails, another scale for each tensor, every other tensor behind a Relu."""
    rng = np.random.default_rng(0)
    drawn: list[Arrays] = []
    for _ in range(batches):
        arrays = {}
        for channels, side, count in _STAGES:
            for number in range(count):
                array = rng.standard_t(8, (batch, channels, side, side)).astype(np.float32)
                array *= np.float32(0.5 + number)
                arrays[f"{channels}x{side}/{number}"] = np.maximum(array, 0) if number % 2 else array
        drawn.append(arrays)
    return drawn


def ours(batches: list[Arrays], most_sampled: int | None) -> Collector:
    collector = Collector(most_sampled)
    for arrays in batches:
        for name, array in arrays.items():
            collector.add(name, array)
    return collector


def theirs(batches: list[Arrays], method: str, bins: int, integers: int) -> HistogramCollector:
    collector = HistogramCollector(
        method=method, symmetric=False, num_bins=bins, num_quantized_bins=integers, percentile=99.99, scenario="same"
    )
    with contextlib.redirect_stdout(io.StringIO()):
        for arrays in batches:
            collector.collect(arrays)
    return collector


def least_times(things: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least processor time in seconds of each, taking turns."""
    least = dict.fromkeys(things, float("inf"))
    for _ in range(rounds):
        for name, thing in things.items():
            started = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                thing()
            least[name] = min(least[name], time.process_time() - started)
    return least


def measure_collecting(batches: list[Arrays], rounds: int) -> dict[str, float]:
    """Nanoseconds per number."""
    numbers = sum(array.size for arrays in batches for array in arrays.values())
    things: dict[str, Callable[[], object]] = {
        f"mezzo, {MOST_SAMPLED} sampled": lambda: ours(batches, MOST_SAMPLED),
        "mezzo, all numbers": lambda: ours(batches, None),
        "ONNX Runtime, percentile": lambda: theirs(batches, "percentile", _THEIR_PERCENTILE, 128),
    }
    for bins, integers in _THEIR_ENTROPY:
        things[f"ONNX Runtime, entropy, {bins} bins"] = lambda b=bins, i=integers: theirs(batches, "entropy", b, i)
    return {name: time_s / numbers * 1e9 for name, time_s in least_times(things, rounds).items()}


def measure_choosing(batches: list[Arrays], rounds: int) -> dict[str, float]:
    """Milliseconds per tensor."""
    collector = ours(batches, MOST_SAMPLED)
    seen = [collector.summary(name) for name in collector.names]
    things: dict[str, Callable[[], object]] = {}
    for name, calibrator in calibrators().items():
        for word, grid in _GRIDS.items():
            things[f"mezzo, {name}, {word}"] = lambda c=calibrator, g=grid: [choose_range(c, s, g) for s in seen]
    few = [dict(list(arrays.items())[::8]) for arrays in batches]
    parts = {name: len(seen) for name in things}
    for bins, integers in _THEIR_ENTROPY:
        collected = theirs(few, "entropy", bins, integers)
        things[f"ONNX Runtime, entropy, {bins} bins, {integers} integers"] = collected.compute_entropy
    collected = theirs(few, "percentile", _THEIR_PERCENTILE, 128)
    things["ONNX Runtime, percentile"] = collected.compute_percentile
    return {name: time_s / parts.get(name, len(few[0])) * 1e3 for name, time_s in least_times(things, rounds).items()}


def measure_sampling(batches: list[Arrays]) -> dict[str, float]:
    """By how much the largest numbers of ranges from samples differ from those from all: the median, and the most."""
    sampled, whole = ours(batches, MOST_SAMPLED), ours(batches, None)
    found = {}
    for name, calibrator in calibrators().items():
        for word, grid in _GRIDS.items():
            off = []
            for value in whole.names:
                ranges = [choose_range(calibrator, each.summary(value), grid) for each in (sampled, whole)]
                if ranges[0] is not None and ranges[1] is not None:
                    off.append(abs(ranges[0].largest / ranges[1].largest - 1))
            found[f"{name}, {word}, median"], found[f"{name}, {word}, most"] = float(np.median(off)), max(off)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--batches", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    batches = draw_batches(asked.batch, asked.batches)
    tables = {
        "nanoseconds per number collected": measure_collecting(batches, asked.rounds),
        "milliseconds per tensor to choose": measure_choosing(batches, asked.rounds),
        "ranges from a sample, difference": measure_sampling(batches),
    }
    sizes = sum(array.size for array in batches[0].values())
    print(f"{len(batches[0])} tensors, {sizes} numbers a batch, {asked.batches} batches of {asked.batch}")
    print(f"numpy {np.__version__}, onnxruntime {onnxruntime.__version__}, {platform.machine()}")
    for title, table in tables.items():
        print(f"\n{title}")
        for name, figure in table.items():
            print(f"  {name:48} {figure:10.4f}")
    if asked.json:
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(tables, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
