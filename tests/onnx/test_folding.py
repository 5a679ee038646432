"""Laws of folding BatchNormalization, on operators drawn at random; which are folded stands in tests/golden/fused."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from onnx import TensorProto, helper
from quantized_cases import open_model
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Model
from mezzo.contracts.options.request import Request
from mezzo.conversion.fusing import fuse
from mezzo.evaluate.answers import ComparisonOptions, compare_models
from mezzo.evaluate.model_data import open_model_data
from mezzo.formats.dtypes import DType
from mezzo.onnx.files.factors import Factors
from mezzo.onnx.run.session import native_session
from mezzo.planner.options import read_options

Array = npt.NDArray[np.float32]

# Both compute in FP32: each of up to some hundred products of an output, and each of the four steps behind them, rounds
# by half an eps, and a mean that is subtracted leaves up to ten times the relative error. 80 eps.
_TOLERANCE = 80 * float(np.finfo(np.float32).eps)


def draw(seed: int, count: int = 1) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of an operator with weights, `count` BatchNormalizations and a Relu, and inputs of it."""
    rng, values = random.Random(seed), np.random.default_rng(seed)
    kind, opset = rng.choice(("Conv", "ConvTranspose", "Gemm", "MatMul")), rng.choice((9, 13, 15, 21))
    weights: dict[str, Array] = {}

    def normal(*shape: int) -> Array:
        return values.normal(size=shape).astype(np.float32)

    attributes: dict[str, object] = {}
    if kind in ("Conv", "ConvTranspose"):
        groups, spatial = rng.choice((1, 2, 3)), rng.choice((1, 2, 3))
        ins, outs = groups * rng.choice((1, 2)), groups * rng.choice((1, 2, 5))
        attributes = {"group": groups, "strides": [rng.choice((1, 2))] * spatial, "pads": [1] * (2 * spatial)}
        kernel = (3,) * spatial
        weights["w"] = normal(outs, ins // groups, *kernel) if kind == "Conv" else normal(ins, outs // groups, *kernel)
        feed, channels = normal(2, ins, *(7,) * spatial), outs
        bias = rng.choice((None, (channels,)))
    else:
        ins, channels = rng.randint(1, 70), rng.randint(1, 40)
        transposed = kind == "Gemm" and rng.random() < 0.5
        weights["w"] = normal(channels, ins) if transposed else normal(ins, channels)
        feed, bias = normal(5, ins), None
        if kind == "Gemm":
            attributes = {"alpha": rng.choice((1.0, 0.5)), "beta": rng.choice((1.0, -2.0)), "transB": int(transposed)}
            bias = rng.choice(((), (1,), (channels,), (1, channels), (1, 1)))
    if bias is not None:
        weights["c"] = normal(*bias)
    nodes, made = [helper.make_node(kind, ["x", *weights], ["a"], "linear", **attributes)], "a"
    for number in range(count):
        names = [f"{letter}{number}" for letter in "gbmv"]
        weights |= {name: normal(channels) for name in names}
        weights[names[3]] = np.abs(weights[names[3]]) + np.float32(0.1)
        epsilon = {"epsilon": rng.choice((1e-5, 1e-3, 0.5))} if rng.random() < 0.5 else {}
        nodes.append(helper.make_node("BatchNormalization", [made, *names], [f"n{number}"], f"bn{number}", **epsilon))
        made = f"n{number}"
    nodes.append(helper.make_node("Relu", [made], ["y"], "relu"))
    shapes = [feed.shape, [None] * feed.ndim]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, s) for name, s in zip("xy", shapes, strict=True)]
    held = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], held)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", opset)]), {"x": feed}


def fused_of(model: Model, apart: Sequence[int] = ()) -> Model:
    return model.fused(model.read(DType.FLOAT16), apart)


def whole(model: Model) -> onnx.ModelProto:
    proto: onnx.ModelProto = model.materialize(model.original)
    return proto


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("seed", range(swept(40)))
def test_answers_stay_and_nothing_is_left_to_fold(seed: int, count: int) -> None:
    proto, feeds = draw(seed, count)
    before = proto.SerializeToString(deterministic=True)
    model = open_model(proto)
    fused = fused_of(model)
    result = whole(fused)

    onnx.checker.check_model(result, full_check=True)
    assert "BatchNormalization" not in {node.op_type for node in result.graph.node}
    assert result.graph.node[0].name == "linear" and result.graph.node[-1] == proto.graph.node[-1]
    (wanted,), (found,) = (native_session(each).run(feeds).values() for each in (proto, result))
    error = float(np.linalg.norm(found - wanted)) / max(float(np.linalg.norm(wanted)), 1e-30)
    assert error <= _TOLERANCE, f"seed {seed}: {error}"
    assert fused_of(fused) is fused and fused.given is model
    assert proto.SerializeToString(deterministic=True) == before, "the source is not changed"
    assert whole(model).SerializeToString(deterministic=True) == before


def _large() -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A convolution whose weight is read in several pieces."""
    values, channels = np.random.default_rng(3), 600
    weight = values.normal(size=(channels, channels, 1, 1)).astype(np.float32)
    held = {name: values.uniform(0.5, 2.0, channels).astype(np.float32) for name in "gbmv"}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "cv"),
        helper.make_node("BatchNormalization", ["a", *"gbmv"], ["y"], "bn"),
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 2, 2]) for name in "xy"]
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in ({"w": weight} | held).items()]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    feeds = {"x": values.normal(size=(1, channels, 2, 2)).astype(np.float32)}
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), feeds


@pytest.mark.parametrize("place", ["memory", "file", "external"])
def test_large_weights_are_multiplied_where_they_are_read(place: str, tmp_path: Path) -> None:
    proto, feeds = _large()
    path = tmp_path / "m.onnx"
    onnx.save(proto, path, save_as_external_data=place == "external")
    model = open_model(onnx.load(path) if place == "memory" else path)
    fused = fused_of(model)
    assert fused.store is not None

    fused.store.write(fused.original, tmp_path / "out.onnx", overwrite=False)
    written = onnx.load(tmp_path / "out.onnx")

    for one, other in zip(written.graph.initializer, whole(fused).graph.initializer, strict=True):
        assert (one.name, one.raw_data) == (other.name, other.raw_data)
    (wanted,), (found,) = (native_session(each).run(feeds).values() for each in (onnx.load(path), written))
    assert np.linalg.norm(found - wanted) <= _TOLERANCE * np.linalg.norm(wanted)
    reading = fused.read(DType.FLOAT16)
    (told,) = (n for v, n in fused.weights(reading, range(len(reading.graph.values))) if n.ndim == 4)
    (stored,) = (onnx.numpy_helper.to_array(t) for t in written.graph.initializer if t.name == "w")
    assert np.array_equal(told, stored), "what is told of a weight is what is written"


@pytest.mark.parametrize("run", [1, 3, 7])
def test_pieces_are_multiplied_as_the_whole_is(run: int) -> None:
    values = np.random.default_rng(run).normal(size=100).astype(np.float32)
    factors = Factors(np.array([2.0, 3.0, 5.0]), run)

    pieces = [factors.scale(values[start : start + 9], start) for start in range(0, 100, 9)]

    expected = [value * np.float32([2, 3, 5][index // run % 3]) for index, value in enumerate(values)]
    assert np.array_equal(np.concatenate(pieces), factors.scale(values))
    assert np.array_equal(factors.scale(values), np.array(expected, np.float32))


def _network() -> tuple[onnx.ModelProto, list[dict[str, Array]]]:
    values = np.random.default_rng(5)
    proto = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[N,3,8,8] x) => (float[N,4,8,8] y)
        {
           [c1] a = Conv<pads=[1,1,1,1]>(x, w1)
           [n1] b = BatchNormalization(a, g1, b1, m1, v1)
           [r1] c = Relu(b)
           [c2] d = Conv<pads=[1,1,1,1]>(c, w2)
           [n2] e = BatchNormalization(d, g2, b2, m2, v2)
           [r2] y = Relu(e)
        }
    """)
    for number, ins in ((1, 3), (2, 4)):
        held = {f"w{number}": values.normal(size=(4, ins, 3, 3))}
        held |= {f"{letter}{number}": values.uniform(0.5, 2.0, 4) for letter in "gbmv"}
        proto.graph.initializer.extend(
            onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in held.items()
        )
    return proto, [{"x": values.normal(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(8)]


def _convert(proto: onnx.ModelProto, data: Sequence[dict[str, Array]], **options: object) -> mezzo.Converted:
    return mezzo.convert(proto, to="int8", target="onnxruntime-cpu", data=data, **options)  # type: ignore[arg-type]  # by name


def _norms(result: mezzo.Converted) -> list[str]:
    return [node.name for node in result.model.graph.node if node.op_type == "BatchNormalization"]


def test_what_is_quantized_is_folded_first_and_judged_beside_what_came_in() -> None:
    proto, data = _network()

    result = _convert(proto, data)

    assert not _norms(result)
    assert {node.name for node in result.plan.nodes if node.kind == "op"} == {"c1", "r1", "c2", "r2"}
    assert any(note.startswith("2 operators (BatchNormalization) are folded") for note in result.plan.notes)
    assert result.measured is not None and result.measured.comparison is not None
    (output,) = result.measured.comparison.outputs
    assert 0.0 < output.relative_l2.estimate < 0.05
    assert result.summary.size_before_bytes == proto.ByteSize()


def test_results_are_held_to_what_came_in() -> None:
    proto, data = _network()
    fused = fused_of(open_model(proto))

    dataset, options = open_model_data(fused, data), ComparisonOptions(low=DType.FLOAT16)
    comparison = compare_models(fused.given, fused.runnable(fused.original), dataset, options)

    assert 0.0 < comparison.outputs[0].relative_l2.estimate <= _TOLERANCE, "beside itself it would be 0"


def test_what_runs_in_floats_is_folded_nowhere() -> None:
    proto, data = _network()
    assert _norms(mezzo.convert(proto, data=data)) == ["n1", "n2"]
    assert _norms(mezzo.convert(proto)) == ["n1", "n2"]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({"exclude": ("n1",)}, ["n1"]),
        ({"exclude": ("op:BatchNormalization",)}, ["n1", "n2"]),
        ({"exclude": ("c1",)}, []),
        ({"include": ("n2",)}, []),
        ({"include": ("*",)}, []),
        ({}, []),
    ],
)
def test_what_is_left_out_is_folded_into_nothing_and_a_plan_says_so(
    options: dict[str, tuple[str, ...]], left: list[str]
) -> None:
    proto, data = _network()

    result = _convert(proto, data, **options)
    again = mezzo.convert(proto, plan=result.plan)

    assert _norms(result) == left
    assert again.model.SerializeToString() == result.model.SerializeToString()


def test_a_pattern_that_selects_nothing_is_told_all_the_same() -> None:
    proto, data = _network()
    with pytest.raises(InputError, match="include 'n3' matches no node"):
        _convert(proto, data, include=("n3",))


def test_regions_that_stay_in_floats_keep_their_operators() -> None:
    proto, _ = _network()
    for node in proto.graph.node:
        node.name = f"{'stem' if node.name.endswith('1') else 'head'}/{node.name}"
    model = open_model(proto)

    def left(**options: object) -> set[str]:
        request = Request(to="int8", target="onnxruntime-cpu", **options)  # type: ignore[arg-type]  # by name
        fused, _ = fuse(model, read_options(request))
        return {node.name for node in fused.read(DType.FLOAT16).graph.nodes if node.op == "BatchNormalization"}

    assert left() == set()
    assert left(keep_region=("stem",)) == {"stem/n1"}
    assert left(fix_region={"head": "fp32"}) == {"head/n2"}
    assert left(fix_region={"head": "int8"}) == set()


def test_a_plan_and_a_search_are_of_the_folded_model_too() -> None:
    proto, data = _network()
    planned = mezzo.plan(proto, to="int8", target="onnxruntime-cpu")
    tuned = mezzo.tune(proto, data=data, to="int8", target="onnxruntime-cpu", max_error=0.5)
    assert {node.name for node in planned.nodes if node.kind == "op"} == {"c1", "r1", "c2", "r2"}
    assert not _norms(tuned)
    assert mezzo.convert(proto, plan=tuned.plan).model.SerializeToString() == tuned.model.SerializeToString()
