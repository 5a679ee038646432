"""Times per node: whatever a runtime fuses, inserts or runs in bodies, its time reaches the nodes it belongs to.

No test asserts how long anything takes, only where time goes.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.profiles import Effort, NodeTimes
from mezzo.onnx.profile import jobs, runtimes
from mezzo.onnx.profile.attribution import groups_of, share_out
from mezzo.onnx.profile.feedfiles import read_feeds, write_feeds
from mezzo.onnx.profile.jobs import KernelTime, time_models
from mezzo.onnx.profile.nodes import profile_models
from mezzo.onnx.profile.prepare import Prepared, prepare
from mezzo.onnx.profile.runtimes import profiling_version
from mezzo.onnx.run.runtime import write_model
from mezzo.onnx.run.session import Engine, native_session
from mezzo.plugins.discovery import target as find_target

FEW = Effort(runs=4, calls=2, pause_s=0.0)
LAYER = """<ir_version: 9, opset_import: ["": 17]>
    g (float[4,8] x, float[8,8] w, float[8] b) => (float[4,8] y) {
        [mm] m = MatMul(x, w)
        [add] a = Add(m, b)
        [relu] r = Relu(a)
        [soft] y = Softmax(r)
    }"""
BODIES = """<ir_version: 9, opset_import: ["": 17]>
    g (float[N,8] x, bool c, float[8,8] w) => (float[N,8] y) {
        [first] h = MatMul(x, w)
        [choose] y = If(c) <
            then_branch = yes () => (float[N,8] t) { [inner] s = MatMul(h, w) [relu] t = Relu(s) },
            else_branch = no () => (float[N,8] t) { [inner] s = Neg(h) [exp] t = Exp(s) }>
    }"""


def layer_feeds() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {"x": (4, 8), "w": (8, 8), "b": (8,)}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def body_feeds() -> dict[str, np.ndarray]:
    return {"x": np.ones((3, 8), np.float32), "c": np.array(True), "w": np.eye(8, dtype=np.float32)}


def profile(text: str, target: str, feeds: dict[str, np.ndarray]) -> NodeTimes:
    """Times of the nodes of a model by their names."""
    model, effort = onnx.parser.parse_model(text), Effort(runs=8)
    found = find_target(target_or_skip(target))
    return profile_models([model], found, feeds, lambda node: node.name or None, {}, effort, write_model)[0]


def target_or_skip(name: str) -> str:
    if name == "openvino-cpu":
        pytest.importorskip("openvino", reason="openvino is not installed")
    return name


def by_name(model: onnx.ModelProto) -> Prepared:
    return prepare(model, lambda node: node.name)


def kernel(
    name: str, op: str = "Op", *, held: tuple[str, ...] = (), makes: tuple[str, ...] = (), feeds: tuple[int, ...] = ()
) -> KernelTime:
    return KernelTime(names=(name, *held), op=op, makes=makes, feeds=feeds, time_ns=100.0, spread_ns=1.0, calls=1.0)


# -- the copy ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [LAYER, BODIES], ids=["layer", "bodies"])
def test_copy_under_other_names_computes_the_same(text: str) -> None:
    model = onnx.parser.parse_model(text)
    feeds = layer_feeds() if text is LAYER else body_feeds()
    copy = by_name(model).model
    onnx.checker.check_model(copy, full_check=True)
    plain, renamed = (native_session(m, Engine.REFERENCE).run(feeds) for m in (model, copy))
    assert next(iter(plain.values())).tolist() == next(iter(renamed.values())).tolist()


def test_names_that_look_like_ours_are_told_apart() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17]>
        g (float[2] zq0q) => (float[2] y) { [zq7q] a = Neg(zq0q) [zq7q] y = Exp(a) }""")
    prepared = by_name(model)
    assert prepared.numbers_in("zq0q") == set()
    assert [prepared.numbers_in(node.name) for node in prepared.model.graph.node] == [{0}, {1}]


def test_shadowed_names_in_bodies_are_not_mixed_up() -> None:
    """Both branches call a value 's'; a value of each has a name of its own in the copy."""
    made = [name for node in by_name(onnx.parser.parse_model(BODIES)).model.graph.node
            for attribute in node.attribute for inner in attribute.g.node for name in inner.output]  # fmt: skip
    assert len(made) == len(set(made)) == 4


def test_functions_are_inlined_and_keep_their_labels() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17, "own": 1]>
        g (float[2] x) => (float[2] y) { y = own.twice(x) }
        <domain: "own", opset_import: ["": 17]> twice (a) => (b) { [inside] b = Add(a, a) }""")
    model.functions[0].node[0].metadata_props.add(key="who", value="me")
    prepared = prepare(model, lambda node: node.metadata_props[0].value)
    assert [piece.label for piece in prepared.pieces] == ["me"]


# -- attribution ------------------------------------------------------------------------------------------------------


def test_fused_kernel_holds_what_lies_between_its_ends() -> None:
    """ONNX Runtime names a FusedGemm after the MatMul, and it makes what Relu made: Add lies between."""
    prepared = by_name(onnx.parser.parse_model(LAYER))
    kernels = [kernel("fused zq0q/MatMulAddFusion", "FusedGemm", makes=("zq2qo0",)), kernel("zq3q", makes=("zq3qo0",))]
    assert groups_of(prepared, kernels) == [(0, 1, 2), (3,)]


def test_nodes_that_a_kernel_lists_are_its_own() -> None:
    """OpenVINO lists what a node holds, but names a MatMul with its transposed weight only by that part."""
    prepared = by_name(onnx.parser.parse_model(LAYER))
    kernels = [kernel("zq0q/transpose_b", "Transpose"), kernel("zq1q", "FullyConnected", held=("zq2q",))]
    assert groups_of(prepared, kernels)[1] == (0, 1, 2)


def test_inserted_kernel_belongs_to_its_reader_or_else_to_the_maker() -> None:
    prepared = by_name(onnx.parser.parse_model(LAYER))
    kernels = [
        kernel("InsertedPrecisionFreeCast_zq0qo0", "Cast", makes=("InsertedPrecisionFreeCast_zq0qo0",), feeds=(1,)),
        kernel("zq1q", makes=("InsertedPrecisionFreeCast_zq1qo0",), feeds=(2,)),
        kernel("cast", "Cast", makes=("zq1qo0",)),
    ]
    assert groups_of(prepared, kernels) == [(0, 1), (0, 1), (1,)]


def test_time_is_shared_by_weight_and_none_gets_lost() -> None:
    prepared = by_name(onnx.parser.parse_model(LAYER))
    kernels = [kernel("zq0q", makes=("zq1qo0",)), kernel("strange")]
    shares = share_out(prepared, kernels, {0: 3.0, 1: 1.0, 2: 0.0, 3: 0.0})
    assert shares.times_ns == (150.0, 50.0, 0.0, 0.0)
    assert (shares.mapped_ns, shares.total_ns) == (100.0, 200.0)


# -- runtimes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_every_node_is_timed_under_its_name(target: str) -> None:
    times = profile(LAYER, target, layer_feeds())
    assert set(times.by_node) == {"mm", "add", "relu", "soft"}
    assert sum(times.by_node.values()) == pytest.approx(times.kernels_ns, rel=1e-9)  # floating sums in another order
    assert times.mapped_share == 1.0


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_nodes_in_bodies_are_timed(target: str) -> None:
    times = profile(BODIES, target, body_feeds())
    assert set(times.by_node) == {"first", "choose", "inner", "relu", "exp"}
    assert times.mapped_share == 1.0


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_low_inputs_are_fed_in_their_type(target: str) -> None:
    to = TensorProto.BFLOAT16
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="r")]
    shape = helper.make_tensor("s", TensorProto.INT64, [1], [4])
    ports = [helper.make_tensor_value_info("x", to, [2, 2])], [helper.make_tensor_value_info("y", to, [4])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ports, [shape]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    times = time_models(
        [model], find_target(target_or_skip(target)), {"x": np.ones((2, 2), np.float32)}, FEW, profile=False
    )
    assert len(times) == 1


def test_models_are_timed_in_the_same_rounds(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(LAYER)
    onnx.save(model, tmp_path / "model, with a comma.onnx")
    models = [model, tmp_path / "model, with a comma.onnx"]
    times = time_models(models, find_target("onnxruntime-cpu"), layer_feeds(), FEW, profile=False)
    assert len(times) == 2 and len(times[0].rounds_ns) == len(times[1].rounds_ns) > 0


def test_feeds_of_every_kind_survive_the_way(tmp_path: Path) -> None:
    import ml_dtypes

    feeds = {
        "half": np.ones((0, 3), ml_dtypes.bfloat16),
        "text/../x": np.array(["a", "ß"]),
        "list": [np.arange(3), np.arange(2)],
        "none": None,
        "one": np.float32(2),
    }
    write_feeds(feeds, tmp_path / "feeds")
    back = read_feeds(tmp_path / "feeds")
    assert set(back) == {"half", "text/../x", "list", "one"}
    assert (back["half"].shape, back["half"].dtype) == ((0, 3), ml_dtypes.bfloat16)
    assert [each.decode() if isinstance(each, bytes) else each for each in back["text/../x"]] == ["a", "ß"]
    assert [each.tolist() for each in back["list"]] == [[0, 1, 2], [0, 1]]
    assert back["one"] == 2


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["tensorrt", "onnxruntime-cuda", "onnxruntime-web", "any", "onnx"])
def test_target_without_a_profiler_is_refused(target: str) -> None:
    wanted = f"target '{target}' cannot be measured here; measure onnxruntime-cpu or openvino-cpu, or leave out measure"
    with pytest.raises(InputError) as error:
        profiling_version(find_target(target))
    assert str(error.value) == wanted


def test_missing_runtime_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtimes, "find_version", lambda package: None)
    wanted = 'openvino is not installed; pip install "openvino>=2025", or leave out measure'
    with pytest.raises(InputError, match=wanted):
        profiling_version(find_target("openvino-cpu"))


def test_model_that_the_runtime_refuses_is_reported_in_its_words() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 17, "strange": 1]>
        g (float[4] x) => (float[4] y) { y = strange.Unheard(x) }""")
    with pytest.raises(ContractError, match=r"does not run the model: .*Unheard"):
        time_models([model], find_target("onnxruntime-cpu"), {"x": np.ones(4, np.float32)}, FEW, profile=False)


def test_feeds_that_do_not_fit_are_refused_before_anything_starts() -> None:
    with pytest.raises(InputError, match="input 'x': found f32\\[3\\]"):
        time_models(
            [onnx.parser.parse_model(LAYER)],
            find_target("onnxruntime-cpu"),
            layer_feeds() | {"x": np.ones(3, np.float32)},
            FEW,
            profile=False,
        )


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-in for a crashing interpreter is a shell script")
@pytest.mark.parametrize(
    ("script", "wanted"), [("exit 3", "the runtime crashed .exit code 3."), ("sleep 5", "did not end within")]
)
def test_crash_and_hang_cost_one_measurement(
    script: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(jobs.sys, "executable", str(stand_in))
    model, effort = onnx.parser.parse_model(LAYER), Effort(limit_s=0.2)
    with pytest.raises(ContractError, match=wanted):
        time_models([model], find_target("onnxruntime-cpu"), layer_feeds(), effort, profile=False)


QUANTIZED = """<ir_version: 10, opset_import: ["": 21]>
    g (float[4,2] x) => (float[4,2] y)
    <float s = {0.5}, uint8 z = {128}, int8[2,2] w = {1,2,3,4}, float t = {0.25}>
    {
        [relu] r = Relu(x)
        q = QuantizeLinear(r, s, z)
        d = DequantizeLinear(q, s, z)
        v = DequantizeLinear(w, t)
        [mm] m = MatMul(d, v)
        [exp] y = Exp(m)
    }"""


def test_quantize_and_its_dequantize_are_conversions_of_who_made_the_value() -> None:
    times = profile(QUANTIZED, "onnxruntime-cpu", {"x": np.ones((4, 2), np.float32)})
    found = [(cast.source, cast.position, cast.is_quantizing) for cast in times.casts]
    assert found == [("relu", 0, True), ("relu", 0, True)]  # the weight's Dequantize is none
