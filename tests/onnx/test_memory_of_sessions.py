"""Sessions of large models end when their work does, and give their memory back."""

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.frontend import lab_of
from mezzo.conversion.results import open_source
from mezzo.onnx.files import runnable_model
from mezzo.onnx.run import session
from mezzo.onnx.run.runtime import load_runtime

_SIDE = 2048  # a weight of 16 MiB


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two products whose weights are mapped."""
    monkeypatch.setattr(runnable_model, "MAPPED_FROM", 0)
    parsed = onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[N,{_SIDE}] x) => (float[N,{_SIDE}] y) {{ h = MatMul(x, w) r = Relu(h) y = MatMul(r, v) }}""")
    numbers = (np.random.default_rng(0).standard_normal((_SIDE, _SIDE)) / 45).astype(np.float32)
    parsed.graph.initializer.extend(onnx.numpy_helper.from_array(numbers, name) for name in "wv")
    onnx.save(parsed, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def feeds(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((2, _SIDE)).astype(np.float32)}


def test_no_session_waits_for_the_garbage_collector(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session in a cycle of references holds a model's values while others are run."""
    sessions = list["weakref.ref[Any]"]()

    def load(*given: Any) -> Any:
        session = load_runtime(*given)
        sessions.append(weakref.ref(session))
        return session

    monkeypatch.setattr(session, "load_runtime", load)
    gc.collect()
    gc.disable()
    try:
        mezzo.convert(model, model.with_name("out.onnx"), to="int8", data=[feeds(seed) for seed in range(5)])
        assert len(sessions) >= 4, "calibration, ranges, and both sides of the comparison"
        assert [session() for session in sessions if session() is not None] == []
    finally:
        gc.enable()


@pytest.mark.skipif(sys.platform != "linux", reason="the pages of this process are told by Linux alone")
def test_pages_of_weights_go_with_the_session_that_read_them(model: Path) -> None:
    def resident_bytes() -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssFile:"))

    opened = open_source(model, False, None)
    answer = lab_of(opened).native()
    expected = answer(feeds(0))["y"]
    before = resident_bytes()
    del answer
    assert before - resident_bytes() >= 30 << 20, "of two weights of 16 MiB"
    np.testing.assert_array_equal(lab_of(opened).native()(feeds(0))["y"], expected)
