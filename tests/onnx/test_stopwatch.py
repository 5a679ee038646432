"""Models in processes of their own: what they answer, and what one costs that crashes, hangs or is refused. No test
asks how long anything takes.
"""

import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.timings import Loading
from mezzo.formats.dtypes import DType
from mezzo.onnx.profile import runtimes
from mezzo.onnx.profile.runtimes import timed_on
from mezzo.onnx.profile.stopwatch import OnnxRunner, OnnxStopwatch
from mezzo.plugins.discovery import target as find_target
from mezzo.tables.runtime import Runtime

MODEL = """<ir_version: 9, opset_import: ["": 17]>
    g (float[N,4] x, float[4,4] w) => (float[N,4] y)
    <float s = {0.1}, uint8 z = {128}>
    {
        [q] xq = QuantizeLinear(x, s, z)
        [d] xd = DequantizeLinear(xq, s, z)
        [mm] m = MatMul(xd, w)
        [soft] y = Softmax(m)
    }"""
FEEDS = {"x": np.ones((3, 4), np.float32), "w": np.eye(4, dtype=np.float32)}
TARGETS = ["onnxruntime-cpu", "openvino-cpu"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(onnx.parser.parse_model(MODEL), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def watch(path: Path | onnx.ModelProto, target: str = "onnxruntime-cpu", **loading: object) -> OnnxStopwatch:
    return OnnxStopwatch(path, find_target(target), FEEDS, Loading(**loading))  # type: ignore[arg-type]  # numbers by name


def need(target: str) -> None:
    if target == "openvino-cpu":
        pytest.importorskip("openvino", reason="openvino is not installed")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("loading", [{}, {"threads": 1}, {"keeps_types": False}])
def test_loaded_model_takes_turns_until_it_is_closed(path: Path, target: str, loading: dict[str, object]) -> None:
    need(target)
    runner = watch(path, target, **loading).start()
    assert isinstance(runner, OnnxRunner)
    assert all(runner.turn(0.0, calls) > 0 for calls in (1, 3))
    runner.close()
    with pytest.raises(ValueError, match="closed"):
        runner.turn(0.0, 1)


@pytest.mark.parametrize("target", TARGETS)
def test_layers_are_the_runtimes_with_types(path: Path, target: str) -> None:
    need(target)
    layers = watch(path, target).layers(3)
    assert all(layer.time_ns >= 0 for layer in layers)
    assert {layer.dtype for layer in layers} >= {DType.FLOAT32}
    assert {"MatMul", "FullyConnected", "MatMulIntegerToFloat"} & {layer.op for layer in layers}


def test_integer_kernel_and_its_conversions_are_told_apart(path: Path) -> None:
    found = {layer.op: (layer.dtype, layer.is_conversion) for layer in watch(path).layers(3)}
    assert found["QuantizeLinear"] == (DType.FLOAT32, True)
    assert found["DequantizeLinear"] == (DType.UINT8, True)
    assert found["MatMul"] == (DType.FLOAT32, False)


def test_model_in_memory_is_timed_as_a_file_is(path: Path) -> None:
    runner = watch(onnx.load(path)).start()
    assert runner.turn(0.0, 1) > 0
    runner.close()


def test_inputs_that_the_feeds_lack_are_told_before_anything_is_started(path: Path) -> None:
    with pytest.raises(InputError, match="found nothing for 'w'"):
        OnnxStopwatch(path, find_target("onnxruntime-cpu"), {"x": FEEDS["x"]}, Loading())


def test_model_that_the_runtime_refuses_says_why_in_one_line(tmp_path: Path) -> None:
    broken = onnx.parser.parse_model(MODEL.replace("Softmax(m)", "unknown.domain.Softmax(m)"))
    broken.opset_import.add(domain="unknown.domain", version=1)
    onnx.save(broken, tmp_path / "broken.onnx")
    with pytest.raises(ContractError) as caught:
        watch(tmp_path / "broken.onnx").start()
    line = str(caught.value)
    assert line.startswith("onnxruntime-cpu does not run it: ") and "unknown.domain" in line and len(line) < 400


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a crashing interpreter is a shell script")
@pytest.mark.parametrize(
    ("script", "wanted"),
    [
        ("echo gone >&2; exit 3", "^onnxruntime-cpu crashed .exit code 3.: gone$"),
        ("exit 0", "^onnxruntime-cpu crashed .exit code 0.$"),
        ("printf '{\"half'", "^onnxruntime-cpu crashed .exit code 0.$"),
        ("exec sleep 60", "^onnxruntime-cpu did not answer within 0 s$"),
    ],
)
def test_crash_and_hang_end_one_process(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, wanted: str
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(python.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(ContractError, match=wanted):
        watch(path, limit_s=0.3).start()


def test_death_between_turns_is_told(path: Path) -> None:
    runner = watch(path).start()
    runner._child._process.kill()  # what a crash in the runtime does
    with pytest.raises(ContractError, match="crashed"):
        runner.turn(0.0, 1)
    runner.close()


def test_plugin_drives_its_own_runtime(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs and times are had; it has no kernels and no layers to show."""
    (tmp_path / "acme_driver.py").write_text(
        "def load(path, threads):\n    assert path.exists() and threads == 1\n"
        "    return lambda feeds: {'y': 2 * feeds['x']}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    runtime = Runtime(package="numpy", driver="acme_driver:load")
    target = replace(find_target("onnx"), name="acme", runtime=runtime)
    assert timed_on(target).startswith("numpy ")
    stage = OnnxStopwatch(path, target, FEEDS, Loading(threads=1, shows_kernels=True))
    runner = stage.start()
    assert runner.turn(0.0, 3) > 0
    np.testing.assert_array_equal(runner.answer(FEEDS)["y"], 2 * FEEDS["x"])
    assert runner.kernels() is None
    runner.close()
    with pytest.raises(ContractError, match="acme does not run it: acme_driver:load has no profile of layers"):
        stage.layers(3)
    stage.close()


def test_nothing_is_left_on_disk(path: Path) -> None:
    stage = watch(path)
    folder = Path(stage._folder.name)
    assert folder.is_dir()
    stage.close()
    assert not folder.exists()


def test_no_process_outlives_its_runner(path: Path) -> None:
    runner = watch(path).start()
    process = runner._child._process
    runner.close()
    assert process.returncode is not None


@pytest.mark.skipif(os.name != "posix", reason="sessions are of POSIX")
def test_interrupt_of_the_caller_does_not_reach_the_process(path: Path) -> None:
    runner = watch(path).start()
    assert os.getsid(runner._child._process.pid) != os.getsid(0)
    runner.close()


def test_process_ends_with_its_caller(path: Path) -> None:
    """What a killed caller leaves behind reads the end of its orders, and ends."""
    runner = watch(path).start()
    process = runner._child._process
    assert process.stdin is not None
    process.stdin.close()
    process.wait(timeout=30)
    runner.close()


@pytest.mark.parametrize("target", TARGETS)
def test_answers_may_have_other_sizes_than_what_was_timed(path: Path, target: str) -> None:
    need(target)
    stage = watch(path, target)  # its folder holds the feeds
    runner = stage.start()
    runner.turn(0.0, 1)
    answers = runner.answer(FEEDS | {"x": np.ones((7, 4), np.float32)})
    runner.close()
    stage.close()
    assert answers["y"].shape == (7, 4)


@pytest.mark.parametrize("target", TARGETS)
def test_outputs_in_bf16_are_answered(tmp_path: Path, target: str) -> None:
    need(target)
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (bfloat16[2] y) { y = Cast<to=16>(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    feeds = {"x": np.float32([1, 2])}
    stage = OnnxStopwatch(tmp_path / "model.onnx", find_target(target), feeds, Loading())
    runner = stage.start()
    answer = runner.answer(feeds)["y"]
    runner.close()
    stage.close()
    assert (answer.dtype.name, answer.tolist()) == ("bfloat16", [1.0, 2.0])


def test_what_a_runtime_prints_is_no_answer(path: Path, tmp_path: Path) -> None:
    """The child keeps its first stdout for itself; whatever prints there goes to stderr."""
    code = (
        "import os, sys; from pathlib import Path; from mezzo.onnx.profile import runner\n"
        "load = runner._load\n"
        "def noisy(*given):\n    os.write(1, b'printed by a library')\n    return load(*given)\n"
        "runner._load = noisy; runner.main(Path(sys.argv[1]))"
    )
    stage = watch(path)
    stage._begin(0).end()
    ran = subprocess.run(
        [sys.executable, "-c", code, stage._folder.name], stdin=subprocess.DEVNULL, capture_output=True, check=True
    )
    assert ran.stdout == b"{}\n" and b"printed by a library" in ran.stderr


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "tensorrt",
            "target 'tensorrt' is not timed here; time on onnxruntime-cpu or onnxruntime-cuda or openvino-cpu",
        ),
        ("any", "target 'any' is not timed here; time on onnxruntime-cpu or onnxruntime-cuda or openvino-cpu"),
    ],
)
def test_target_that_is_not_timed_is_refused(target: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        timed_on(find_target(target))
    assert str(caught.value) == said


def test_missing_runtime_is_told_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "find_version", lambda name: None)
    for target, package in (("openvino-cpu", "openvino"), ("onnxruntime-cuda", "onnxruntime-gpu")):
        with pytest.raises(InputError, match=f"target '{target}': {package} is not installed; pip install"):
            timed_on(find_target(target))


def test_runtime_without_the_provider_is_the_wrong_package(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(InputError, match="onnxruntime-gpu is not installed"):
        timed_on(find_target("onnxruntime-cuda"))


def test_openvino_layers_leave_the_first_runs_out() -> None:
    """It tells the mean of all runs so far: after runs of 100, 10, 20 and 30 us the last two took 25 each."""
    from mezzo.onnx.profile.openvino import OpenVinoModel

    class Op:
        def get_friendly_name(self) -> str:
            return "layer"

        def get_rt_info(self) -> dict[str, str]:
            return {"layerType": "Convolution", "runtimePrecision": "u8"}

    loaded = OpenVinoModel.__new__(OpenVinoModel)
    loaded._ops = [Op()]
    means = [100.0, 55.0, 130 / 3, 40.0]
    loaded._runs = [{0: (mean * 1e3, 1)} for mean in means]
    (row,) = loaded.layers(2)["layers"]
    assert row["time_ns"] == pytest.approx(25e3)  # sums of a few FP64
    assert (row["name"], row["op"], row["type"]) == ("layer", "Convolution", "u8")


def test_openvino_calls_take_what_their_part_of_them_took() -> None:
    """The first call took 900 us and all others 50: no call but those beside the first has a part in it."""
    from mezzo.onnx.profile.openvino import OpenVinoModel

    loaded = OpenVinoModel.__new__(OpenVinoModel)
    loaded._runs = [{0: ((900.0 + 50.0 * number) / (number + 1) * 1e3, 1)} for number in range(32)]
    took = [run[0][0] for run in loaded.runs()]
    assert len(took) == 32
    assert took[:4] == [pytest.approx((900.0 + 3 * 50.0) / 4 * 1e3)] * 4  # sums of a few FP64, here and below
    assert took[4:] == [pytest.approx(50e3)] * 28
    loaded._runs = loaded._runs[:3]
    assert [run[0][0] for run in loaded.runs()] == pytest.approx([900e3, 50e3, 50e3])
