"""A model in FP16 or BF16 is quantized: widened first, between inputs and outputs as they came."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mezzo
from mezzo.common.errors import InputError

STORED = {TensorProto.FLOAT16: np.float16, TensorProto.BFLOAT16: ml_dtypes.bfloat16}
WIDTH = 32


def weights(rng: np.random.Generator, low: int, name: str, *shape: int) -> onnx.TensorProto:
    numbers = (rng.standard_normal(shape) / shape[0] ** 0.5).astype(STORED[low])
    return helper.make_tensor(name, low, shape, numbers.tobytes(), raw=True)


def network(low: int, opset: int = 17, width: int = WIDTH) -> onnx.ModelProto:
    """Two products with an If between them, whose body reads the input of the model and writes the output's type."""
    rng = np.random.default_rng(7)
    port = helper.make_tensor_value_info
    branches = [
        helper.make_graph([helper.make_node(op, ["r"], [f"{op}_made"])], op, [], [port(f"{op}_made", low, None)])
        for op in ("Relu", "Identity")
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w0"], ["m"], "first"),
        helper.make_node("Add", ["m", "b0"], ["r"], "bias"),
        helper.make_node("If", ["yes"], ["c"], "choose", then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Cast", ["c"], ["c32"], "wide", to=TensorProto.FLOAT),
        helper.make_node("Cast", ["c32"], ["c16"], "narrow", to=low),
        helper.make_node("MatMul", ["c16", "w1"], ["y"], "second"),
    ]
    held = [weights(rng, low, "w0", width, width), weights(rng, low, "b0", width), weights(rng, low, "w1", width, 8)]
    graph = helper.make_graph(
        nodes, "g", [port("x", low, ["N", width]), port("yes", TensorProto.BOOL, [])], [port("y", low, ["N", 8])], held
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def batches(low: int, width: int = WIDTH) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(8)
    return [{"x": rng.standard_normal((8, width)).astype(STORED[low]), "yes": np.asarray(True)} for _ in range(6)]


def ports(model: onnx.ModelProto) -> list[tuple[str, int]]:
    return [(port.name, port.type.tensor_type.elem_type) for port in (*model.graph.input, *model.graph.output)]


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
@pytest.mark.parametrize("low", STORED)
def test_low_floats_are_quantized_behind_the_same_ports(low: int, target: str) -> None:
    model = network(low)
    result = mezzo.convert(model, to="int8", target=target, data=batches(low), check=False)
    assert ports(result.model) == ports(model)
    assert {result.plan.by_name[name].precision.compute.value for name in ("first", "second")} == {"int8"}
    assert result.measured is not None and result.measured.comparison is not None
    assert result.measured.comparison.outputs[0].relative_l2.estimate < 0.05  # two products in 8 bits
    assert any("widened" in note for note in result.plan.notes)


def test_a_plan_of_a_widened_model_is_replayed(tmp_path: Path) -> None:
    result = mezzo.convert(network(TensorProto.FLOAT16), to="int8", data=batches(TensorProto.FLOAT16))
    mezzo.save_plan(result.plan, tmp_path / "plan.json")
    again = mezzo.convert(network(TensorProto.FLOAT16), plan=tmp_path / "plan.json")
    assert again.model.SerializeToString() == result.model.SerializeToString()


def test_large_weights_are_widened_as_they_are_streamed(tmp_path: Path) -> None:
    low, width = TensorProto.FLOAT16, 256
    model = network(low, width=width)
    exact = numpy_helper.to_array(model.graph.initializer[0]).astype(np.float32)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    result = mezzo.convert(
        tmp_path / "m.onnx", tmp_path / "q.onnx", to="int8", exclude=["first"], data=batches(low, width)
    )
    assert result.plan.by_name["second"].precision.compute.value == "int8"
    held = {tensor.name: tensor for tensor in onnx.load(tmp_path / "q.onnx").graph.initializer}
    assert held["w0"].data_type == TensorProto.FLOAT
    assert np.array_equal(numpy_helper.to_array(held["w0"]), exact)


def test_what_nothing_of_runs_quantized_is_refused_in_one_line() -> None:
    low = TensorProto.FLOAT16
    port = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Tanh", ["x"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])], "g",
        [port("x", low, ["N", 4])], [port("y", low, ["N", 4])], [weights(np.random.default_rng(1), low, "b", 4)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = [{"x": np.ones((4, 4), np.float16)}] * 4
    with pytest.raises(InputError, match="is of lower floats than f32, and target 'openvino-cpu' runs none") as caught:
        mezzo.convert(model, to="int8", target="openvino-cpu", data=data, quantize_mode="full")
    assert "\n" not in str(caught.value)
