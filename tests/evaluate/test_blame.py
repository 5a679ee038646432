"""Whose fault a wrong answer is: faults are planted in a runtime's kernels, in plans, in both, and nowhere."""

import os
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import faulty_runtime
import numpy as np
import onnx
import onnx.parser
import pytest
from faulty_runtime import TARGET, VARIABLE, fault
from onnx import numpy_helper
from random_models import random_feeds, random_model
from sweeps import swept
from web_device import FOLDER, needs_device

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.lab import Feeds
from mezzo.contracts.timings import Loading
from mezzo.numerics.blames import Blame, Finding
from mezzo.onnx.measure.lab import OnnxProfiler
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.profile.jobs import fit_to
from mezzo.onnx.profile.webgpu import VARIABLE as DEVICE
from mezzo.onnx.run.parts import OnnxParts
from mezzo.tables.target import Target

Plant = Callable[[str], None]
ALL_LOW = {"to": "fp16", "policy": "aggressive", "target": "any"}
NET = """(float[N,8,6,6] x) => (float[N,8,6,6] y, float[N,4,6,6] z) {
    [conv] c = Conv <pads = [1,1,1,1]> (x, K)  [relu] r = Relu (c)  [again] d = Conv <pads = [1,1,1,1]> (r, K)
    [split] e, z = Split <axis = 1, num_outputs = 2> (d)  [tanh] t = Tanh (e)  [join] j = Concat <axis = 1> (t, e)
    [sum] s = Add (j, r)  [soft] y = Softmax <axis = 1> (s) }"""
BODIES = """(float[4,4] x, bool flag) => (float[4,4] y) <int64 trips = {3}, bool go = {1}> {
    [before] a = Tanh (x)
    [if] b = If (flag) <then_branch = t () => (float[4,4] p) { q = Sin (a) p = Mul (q, a) },
                        else_branch = f () => (float[4,4] p) { p = Cos (a) }>
    [loop] c = Loop (trips, go, b) <body = l (int64 i, bool g, float[4,4] v) => (bool h, float[4,4] w) {
        h = Identity (g) u = Sin (v) w = Add (u, a) }>
    [after] y = Sigmoid (c) }"""
OVERFLOW = """(float[N,16] x) => (float[N,16] y) <float a = {900}, float b = {900}, float c = {0.00001}> {
    [up] p = Mul (x, a)  [over] q = Mul (p, b)  [down] r = Mul (q, c)  [last] y = Tanh (r) }"""


def read(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 18]> g {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def net() -> onnx.ModelProto:
    return read(NET, K=draw(8, 8, 3, 3) / 8)


def low_of(model: onnx.ModelProto) -> onnx.ModelProto:
    return mezzo.convert(model, **ALL_LOW).model


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Plants a fault; before that, the runtime has none."""
    monkeypatch.setenv("PYTHONPATH", os.fspath(Path(faulty_runtime.__file__).parent))
    monkeypatch.delenv(VARIABLE, raising=False)
    return lambda text: monkeypatch.setenv(VARIABLE, text)


class Here:
    """A model in the runtime of `plant`, as stopwatch and runner at once."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model.materialize(model.original)

    def start(self) -> "Here":
        model = onnx.ModelProto()
        model.CopyFrom(self._model)
        self._run = faulty_runtime.load_proto(model)
        return self

    def answer(self, feeds: Feeds) -> Mapping[str, Any]:
        return self._run(fit_to(self._model, feeds))

    def close(self) -> None:
        pass


@pytest.fixture
def plant_here(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> Plant:
    """As `plant`, of a runtime in this process: one for each model takes half a second."""

    def stopwatch(profiler: OnnxProfiler, target: Target, feeds: Feeds, loading: Loading) -> Here:
        return Here(profiler._model)

    monkeypatch.setattr(OnnxProfiler, "stopwatch", stopwatch)
    return plant


def names_of(blame: Blame) -> list[str]:
    assert blame.kernel is not None, blame.notes
    return [node.name for node in blame.kernel.nodes]


@pytest.mark.parametrize("seed", range(100, 100 + swept(4)))
def test_node_of_a_random_model_is_named_and_no_other_is_without_a_fault(seed: int, plant_here: Plant) -> None:
    rng = random.Random(seed)
    model = random_model(rng, rng.randint(4, 20), is_tame=True)
    feeds, low = random_feeds(model, rng), low_of(model)
    found = mezzo.blame(model, low, feeds, target=TARGET)
    assert found.kernels is not None and not found.kernels.is_wrong and found.kernel is None, seed
    parts = OnnxParts(low)
    types = {
        value.name: value.type.tensor_type.elem_type
        for value in (*onnx.shape_inference.infer_shapes(low).graph.value_info, *low.graph.output)
    }
    places = [
        (node.name, node.output[0])
        for node in low.graph.node
        if node.name in {each.name for each in parts.nodes.values()} and types.get(node.output[0]) in (1, 10)
    ]
    name, value = rng.choice(places)
    plant_here(fault(value))
    found = mezzo.blame(model, low, feeds, target=TARGET)
    # Behind a mask, or below the noise, no answer shows it.
    assert found.kernels is not None and (not found.kernels.is_wrong or names_of(found) == [name]), seed


@pytest.mark.parametrize("name", ["conv", "split", "sum", "soft"])
def test_node_of_several_outputs_and_shared_weights_is_named(name: str, plant_here: Plant) -> None:
    low = low_of(net())
    plant_here(fault(next(node.output[0] for node in low.graph.node if node.name == name)))
    found = mezzo.blame(net(), low, {"x": draw(3, 8, 6, 6)}, target=TARGET)
    assert found.finding is Finding.KERNEL and names_of(found) == [name]


def test_fault_of_a_fusion_is_a_part_of_its_nodes(plant_here: Plant) -> None:
    low = low_of(net())
    values = {node.name: node.output[0] for node in low.graph.node}
    plant_here(fault(values["tanh"], before=values["join"]))
    found = mezzo.blame(net(), low, {"x": draw(3, 8, 6, 6)}, target=TARGET)
    assert names_of(found) == ["tanh", "join"]


def test_node_that_the_runtime_does_not_load_is_named(plant: Plant) -> None:
    low = low_of(net())
    plant(fault(next(node.output[0] for node in low.graph.node if node.name == "tanh"), dies=True))
    found = mezzo.blame(net(), low, {"x": draw(3, 8, 6, 6)}, target=TARGET)
    assert found.finding is Finding.KERNEL and found.outcome is None and names_of(found) == ["tanh"]
    assert found.kernel is not None and found.kernel.fault == "faulty does not run it: no kernel for Tanh"


@pytest.mark.parametrize("name", ["before", "if", "loop", "after"])
def test_model_is_cut_around_bodies_and_not_inside(name: str, plant_here: Plant) -> None:
    model = read(BODIES)
    low = low_of(model)
    feeds = {"x": draw(4, 4), "flag": np.array(True)}
    assert mezzo.blame(model, low, feeds, target=TARGET).finding is Finding.NEITHER
    plant_here(fault(next(node.output[0] for node in low.graph.node if node.name == name), error=0.5))
    assert names_of(mezzo.blame(model, low, feeds, target=TARGET)) == [name]


def test_weights_in_a_file_are_those_of_parts(tmp_path: Path, plant: Plant) -> None:
    text = "(float[N,128] x) => (float[N,128] y) { [a] h = MatMul (x, W) [t] g = Tanh (h) [b] y = MatMul (g, W) }"
    model, path = read(text, W=draw(128, 128) / 16), tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights", size_threshold=1024)
    low = tmp_path / "low.onnx"
    mezzo.convert(path, low, **ALL_LOW)
    plant(fault("y_f16" if "y_f16" in {n for node in onnx.load(low).graph.node for n in node.output} else "y"))
    found = mezzo.blame(path, low, {"x": draw(5, 128)}, target=TARGET, reproduce=tmp_path / "fault")
    assert names_of(found) == ["b"] and found.reproduction[0].exists()


def test_plan_is_at_fault_where_the_types_overflow(tmp_path: Path) -> None:
    model = read(OVERFLOW)
    low = mezzo.convert(model, **ALL_LOW, include=["*"]).model
    x = draw(8, 16)
    np.savez(tmp_path / "answers.npz", **mezzo.emulate(low, {"x": x}))
    found = mezzo.blame(model, low, {"x": x}, answers=tmp_path / "answers.npz")
    assert found.finding is Finding.PLAN
    assert found.plan_node is not None and found.plan_node.name == "over"


def test_runtime_that_hides_what_overflows_is_not_at_fault() -> None:
    model = read(OVERFLOW)
    low = mezzo.convert(model, **ALL_LOW, include=["*"]).model
    found = mezzo.blame(model, low, {"x": draw(8, 16)}, target="onnxruntime-cpu")
    assert found.finding is Finding.PLAN and found.hides_plan and found.kernel is None


def test_plan_and_a_kernel_may_both_be_at_fault(tmp_path: Path) -> None:
    model = read(OVERFLOW)
    low = mezzo.convert(model, **ALL_LOW, include=["*"]).model
    x = draw(8, 16)
    np.savez(tmp_path / "answers.npz", y=np.cos(x))
    assert mezzo.blame(model, low, {"x": x}, answers=tmp_path / "answers.npz").finding is Finding.BOTH


@pytest.mark.parametrize("to", ["fp16", "int8"])
def test_runtime_of_this_machine_is_right(to: str) -> None:
    data = {"x": draw(16, 8, 6, 6)}
    low = mezzo.convert(net(), to=to, data=data, target="onnxruntime-cpu").model
    found = mezzo.blame(net(), low, data)  # the target that the model records
    assert found.device.startswith("onnxruntime ") and found.kernels is not None and not found.kernels.is_wrong


def test_openvino_is_right() -> None:
    pytest.importorskip("openvino", reason="openvino is not installed")
    found = mezzo.blame(net(), low_of(net()), {"x": draw(4, 8, 6, 6)}, target="openvino-cpu")
    assert found.finding is Finding.NEITHER


@needs_device
def test_transposed_convolution_in_groups_is_wrong_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """One output and several inputs a group, in FP32 too, as of ONNX Runtime Web 1.30."""
    monkeypatch.setenv(DEVICE, str(FOLDER))
    text = """(float[N,4,6,6] x) => (float[N,2,12,12] y) { [in] a = Relu (x)
        [up] u = ConvTranspose <group = 2, strides = [2,2]> (a, W) [gate] s = Sigmoid (u) [out] y = Mul (s, u) }"""
    model = read(text, W=draw(4, 1, 2, 2))
    for low in (model, low_of(model)):
        found = mezzo.blame(model, low, {"x": draw(2, 4, 6, 6)}, target="onnxruntime-web")
        assert found.finding is Finding.KERNEL and names_of(found) == ["up"]


def test_recorded_answers_tell_kernels_from_plan_and_name_no_node(tmp_path: Path) -> None:
    model, data, path = net(), [{"x": draw(2, 8, 6, 6, seed=seed)} for seed in range(3)], tmp_path / "answers.npz"
    low = low_of(model)
    right = [mezzo.emulate(low, feeds) for feeds in data]
    whole = {name: np.concatenate([answers[name] for answers in right]) for name in ("y", "z")}
    np.savez(path, **whole)
    assert mezzo.blame(model, low, data, answers=path).finding is Finding.NEITHER
    np.savez(path, **{**whole, "z": whole["z"] * np.sign(draw(*whole["z"].shape))})
    found = mezzo.blame(model, low, data, answers=path)
    assert found.finding is Finding.KERNEL and found.kernel is None
    assert found.notes[0].startswith("recorded answers say whether a kernel is at fault, not which")


def test_recorded_answers_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    model, path = net(), tmp_path / "answers.npz"
    low, data = low_of(model), [{"x": draw(2, 8, 6, 6)}] * 2
    np.savez(path, y=draw(4, 8, 6, 6))
    with pytest.raises(InputError, match="has no array 'z'; it has y; store every output of the model by its name"):
        mezzo.blame(model, low, data, answers=path)
    np.savez(path, y=draw(3, 8, 6, 6), z=draw(4, 4, 6, 6))
    with pytest.raises(InputError, match=r"array 'y' has the shape \(3, 8, 6, 6\), and the data makes 2 calls with 4"):
        mezzo.blame(model, low, data, answers=path)
    np.savez(path, y=np.array([{}]), z=draw(4, 4, 6, 6))
    with pytest.raises(InputError, match="pickled Python objects, which are never loaded"):
        mezzo.blame(model, low, data, answers=path)


def test_part_is_written_with_its_arrays_and_shows_the_fault_alone(tmp_path: Path, plant: Plant) -> None:
    low = low_of(net())
    node = next(node for node in low.graph.node if node.name == "again")
    plant(fault(node.output[0]))
    found = mezzo.blame(net(), low, {"x": draw(3, 8, 6, 6)}, target=TARGET, reproduce=tmp_path / "fault")
    part, arrays = found.reproduction
    with np.load(arrays) as stored:
        assert {name: stored[name].dtype for name in stored.files} == {"r": np.float16, node.output[0]: np.float16}
    again = mezzo.blame(part, part, arrays, target=TARGET)
    assert names_of(again) == ["again"] and again.kernel is not None and again.kernel.runs == 1
    assert not again.plan.is_wrong


def test_whose_answers_are_judged_is_said_once(tmp_path: Path) -> None:
    model = net()
    with pytest.raises(InputError, match="nothing says whose answers are judged; give target for a runtime that is"):
        mezzo.blame(model, model, "random")
    with pytest.raises(InputError, match="target and answers each say whose answers are judged; give one of them"):
        mezzo.blame(model, model, "random", target="onnxruntime-cpu", answers=tmp_path / "answers.npz")
    with pytest.raises(InputError, match="target 'tensorrt' does not run here; run it on "):
        mezzo.blame(model, model, "random", target="tensorrt")


def test_what_differs_on_all_batches_differs_on_one(tmp_path: Path) -> None:
    """Noise differs from batch to batch: a difference that no batch shows alone could not be searched."""
    model = read("(float[N,16] x) => (float[N,16] y) <float far = {900}> { s = Add (x, far)  y = Sub (s, far) }")
    low = mezzo.convert(model, **ALL_LOW, include=["*"]).model
    data = [{"x": draw(4, 16, seed=seed) * scale} for seed, scale in enumerate((100.0, 4.0, 0.25))]
    right = [mezzo.emulate(low, feeds)["y"] for feeds in data]
    for share in (0.01, 0.05, 0.2):
        several = [answer + share * draw(4, 16, seed=9) * np.abs(answer).max() for answer in right]
        np.savez(tmp_path / "all.npz", y=np.concatenate(several))
        found = mezzo.blame(model, low, data, answers=tmp_path / "all.npz")
        alone = []
        for feeds, answer in zip(data, several, strict=True):
            np.savez(tmp_path / "one.npz", y=answer)
            alone.append(mezzo.blame(model, low, feeds, answers=tmp_path / "one.npz"))
        assert found.kernels is not None
        assert not found.kernels.is_wrong or any(one.kernels is not None and one.kernels.is_wrong for one in alone)
