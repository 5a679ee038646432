"""ONNX Runtime Web on a WebGPU device, without a browser: what it answers, and what happens without it."""

import json
import subprocess
import time
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper
from web_device import FOLDER, needs_device

import mezzo
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.timings import Loading
from mezzo.formats.dtypes import DType
from mezzo.onnx.profile.runtimes import run_on, timed_on
from mezzo.onnx.profile.stopwatch import OnnxStopwatch
from mezzo.onnx.profile.webgpu import VARIABLE, find_version
from mezzo.plugins.discovery import target as find_target

TARGET = "onnxruntime-web"
# A mean of 20 over 4,096 elements: its sum is past FP16's 65,504.
POOL = "(float[N,2,64,64] x) => (float[N,2,1,1] y) { [r] h = Relu (x) [m] y = GlobalAveragePool (h) }"
ROWS = np.random.default_rng(0).normal(20.0, 1.0, (2, 2, 64, 64)).astype(np.float32)


def read(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(FOLDER))


def _is_running(argument: str) -> bool:
    """Whether a process of this machine has a part of its command."""
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return argument in listed


def start(model: onnx.ModelProto | Path, x: np.ndarray) -> OnnxStopwatch:
    return OnnxStopwatch(model, find_target(TARGET), {"x": x}, Loading(limit_s=120.0))


@needs_device
@pytest.mark.usefixtures("device")
def test_model_with_weights_in_a_file_runs_on_several_batches(tmp_path: Path) -> None:
    weight = np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096
    path = tmp_path / "model.onnx"
    model = read("(float[N,64] x) => (float[N,64] y, int64[N,1] best) {y = MatMul (x, W) best = ArgMax <axis = 1> (y)}",
                 W=weight)  # fmt: skip
    onnx.save(model, path, save_as_external_data=True, location="own name")
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    watch = start(path, x)
    runner = watch.start()
    try:
        for rows in (x, x[:1]):
            answers = runner.answer({"x": rows})
            np.testing.assert_allclose(answers["y"], rows @ weight, rtol=1e-5, atol=1e-5)
            np.testing.assert_array_equal(answers["best"], np.argmax(rows @ weight, axis=1, keepdims=True))
    finally:
        runner.close()
        watch.close()


@needs_device
@pytest.mark.usefixtures("device")
def test_fault_of_a_model_is_one_line() -> None:
    model = read("(float[N,4] x) => (bfloat16[N,4] y) { y = Cast <to = 16> (x) }")
    with pytest.raises(ContractError) as caught:
        start(model, np.ones((2, 4), np.float32)).start()
    assert str(caught.value).startswith("onnxruntime-web does not run it: ") and "\n" not in str(caught.value)


@needs_device
@pytest.mark.usefixtures("device")
def test_model_that_does_not_end_is_killed_with_its_process() -> None:
    text = """(float[N] x) => (float[N] y)
        <int64 n = {4611686018427387904}, bool c = {1}>
        { y = Loop (n, c, x) <body = b (int64 i, bool c0, float[N] v) => (bool c1, float[N] w)
            { c1 = Identity (c0) w = Sin (v) }> }"""
    watch = OnnxStopwatch(read(text), find_target(TARGET), {"x": np.ones(4, np.float32)}, Loading(limit_s=8.0))
    with pytest.raises(ContractError, match="onnxruntime-web did not answer within 8 s"):
        watch.start()
    until_s = time.monotonic() + 10.0
    while _is_running(watch._folder.name) and time.monotonic() < until_s:
        time.sleep(0.1)
    assert not _is_running(watch._folder.name)
    watch.close()


@needs_device
@pytest.mark.on_runtime
@pytest.mark.usefixtures("device")
def test_what_answers_wrong_on_the_device_goes_back_to_fp32_and_nothing_is_timed() -> None:
    converted = mezzo.convert(read(POOL), to="fp16", policy="aggressive", target=TARGET, data=[{"x": ROWS}])
    check = converted.measured.runtime
    assert check.runtime == f"onnxruntime-web {find_version(TARGET)}" and not check.is_wrong
    assert converted.plan.by_name["m"].precision.compute is DType.FLOAT32 and converted.measured.timing is None


def test_without_a_device_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(InputError) as caught:
        run_on(find_target(TARGET))
    assert str(caught.value) == (
        "target 'onnxruntime-web': no device is set up; let MEZZO_WEBGPU name a folder with node_modules, as `make"
        " device` of mezzo's repository makes one"
    )


@pytest.mark.parametrize("texts", [{}, {"webgpu": "{"}, {"webgpu": "[]"}, {"webgpu": "{}"}])
def test_incomplete_folder_is_no_device(texts: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in ({"onnxruntime-web": json.dumps({"version": "1.30.0"})} | texts).items():
        place = tmp_path / "node_modules" / name
        place.mkdir(parents=True)
        (place / "package.json").write_text(text)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert find_version(TARGET) is None


def test_device_is_not_timed() -> None:
    with pytest.raises(InputError, match="target 'onnxruntime-web' is not timed here; time on onnxruntime-cpu or"):
        timed_on(find_target(TARGET))
