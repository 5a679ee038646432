"""Data of many samples runs in batches that fit in memory, and only where each sample is answered for itself."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.conversion.results import open_source
from mezzo.evaluate import batch_sizes
from mezzo.evaluate.model_data import open_model_data

_ALONE = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) { h = Relu(x)  y = Tanh(h) }"""
_MIXED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[N,64] y) { m = ReduceMean<axes=[0], keepdims=1>(x)  y = Sub(x, m) }"""
_GATHERED = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,64] x) => (float[1,64] y) { y = ReduceMax<axes=[0], keepdims=1>(x) }"""


def _sizes(text: str, data: Any, folder: Path, **options: Any) -> list[int]:
    onnx.save(onnx.parser.parse_model(text), folder / "m.onnx")
    model = open_source(folder / "m.onnx", False, None)
    return [len(batch.feeds["x"]) for batch in open_model_data(model, data, **options)]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound of 100 samples of three values of 64 numbers."""
    monkeypatch.setattr(batch_sizes, "_MOST_BYTES", 100 * 3 * 64 * 4)


def _samples(count: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(1).standard_normal((count, 64)).astype(np.float32)


def test_many_samples_run_in_batches_that_fit(tmp_path: Path) -> None:
    assert _sizes(_ALONE, {"x": _samples(250)}, tmp_path) == [100, 100, 50]
    np.savez(tmp_path / "x.npz", x=_samples(250), other=np.ones(3))
    assert _sizes(_ALONE, tmp_path / "x.npz", tmp_path, others=True) == [100, 100, 50]


def test_few_samples_and_asked_sizes_are_left_alone(tmp_path: Path) -> None:
    assert _sizes(_ALONE, {"x": _samples(99)}, tmp_path) == [99]
    assert _sizes(_ALONE, {"x": _samples(250)}, tmp_path, batch_size=200) == [200, 50]
    assert _sizes(_ALONE, [{"x": _samples(250)}], tmp_path) == [250]  # batches of the caller's own


@pytest.mark.parametrize("text", [_MIXED, _GATHERED])
def test_model_that_mixes_samples_gets_all_of_them(text: str, tmp_path: Path) -> None:
    assert _sizes(text, {"x": _samples(250)}, tmp_path) == [250]


def test_samples_that_are_alike_show_nothing_of_a_model(tmp_path: Path) -> None:
    assert _sizes(_ALONE, {"x": np.ones((250, 64), np.float32)}, tmp_path) == [250]


def test_asked_memory_makes_batches_smaller_and_never_tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_sizes, "_MOST_BYTES", 1)
    assert _sizes(_ALONE, {"x": _samples(70)}, tmp_path) == [32, 32, 6]


def test_answers_are_those_of_the_whole(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(_ALONE), tmp_path / "m.onnx")
    cut = mezzo.ranges(tmp_path / "m.onnx", {"x": _samples(250)})
    whole = mezzo.ranges(tmp_path / "m.onnx", {"x": _samples(250)}, batch_size=250)
    extremes = [
        [(value.value, value.minimum, value.maximum, value.count) for value in found.values] for found in (cut, whole)
    ]
    assert extremes[0] == extremes[1] and cut.data.samples == whole.data.samples == 250


def _extremes(ranges: mezzo.Ranges) -> list[tuple[str, float, float, int]]:
    return [(value.value, value.minimum, value.maximum, value.count) for value in ranges.values]
