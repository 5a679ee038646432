"""Weights that are inputs of the graph too, as exporters wrote them once: a caller may feed others, and seldom does."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mezzo
from mezzo.formats.dtypes import DType

DEPTH, WIDTH = 12, 16


def rectified(ir_version: int = 8, *, largest: float = 1.0) -> onnx.ModelProto:
    """A deep net of ReLUs whose weights are all inputs, which before IR version 4 every initializer had to be."""
    numbers = np.random.default_rng(3)
    nodes, weights = [], []
    for layer in range(DEPTH):
        matrix = (numbers.standard_normal((WIDTH, WIDTH)) * (2 / WIDTH) ** 0.5).astype(np.float32)
        if not layer:
            matrix[0, 0] = max(matrix[0, 0], largest)
        weights.append(numpy_helper.from_array(matrix, f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [f"r{layer}", f"w{layer}"], [f"m{layer}"], name=f"mm{layer}"))
        nodes.append(helper.make_node("Relu", [f"m{layer}"], [f"r{layer + 1}"], name=f"relu{layer}"))
    ports = [helper.make_tensor_value_info("r0", TensorProto.FLOAT, [4, WIDTH])]
    ports += [helper.make_tensor_value_info(w.name, TensorProto.FLOAT, list(w.dims)) for w in weights]
    result = helper.make_tensor_value_info(f"r{DEPTH}", TensorProto.FLOAT, [4, WIDTH])
    graph = helper.make_graph(nodes, "g", ports, [result], weights)
    return helper.make_model(graph, ir_version=ir_version, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_sizes_follow_from_the_default_values(to: str) -> None:
    as_inputs, as_weights = mezzo.plan(rectified(), to=to), mezzo.plan(rectified(ir_version=3), to=to)
    of_operators = [[(n.name, n.precision) for n in p.nodes if n.kind == "op"] for p in (as_inputs, as_weights)]
    assert of_operators[0] == of_operators[1]
    assert all(n.precision.compute is DType(to.replace("fp", "f")) for n in as_inputs.nodes if n.kind == "op")


def test_a_note_says_what_they_cost() -> None:
    (note,) = [note for note in mezzo.plan(rectified()).notes if "inputs too" in note]
    assert note == (
        "12 weights are inputs too, which a caller may feed: like other inputs they keep their type, and are cast "
        "where low precision reads them; take them out of the graph's inputs to have them stored in it"
    )
    assert not [note for note in mezzo.plan(rectified(ir_version=3)).notes if "inputs too" in note]


def test_only_what_the_caller_must_feed_is_assumed() -> None:
    (note,) = [note for note in mezzo.plan(rectified()).notes if "taken to hold" in note]
    assert note == (
        "where no data shows it, inputs are taken to hold: 'r0' unit scale (-4 to 4); "
        "--assume NAME=LO..HI says otherwise"
    )


def test_what_the_user_assumes_of_one_beats_its_default() -> None:
    plan = mezzo.plan(rectified(), assume={"w3": "-1e5..1e5"})
    assert [n.rule for n in plan.nodes if n.name == "mm3"] == ["may-overflow"]


def test_a_default_past_the_range_keeps_fp32_and_is_never_bounded() -> None:
    model = rectified(largest=1e6)
    for out_of_range in ("protect", "clamp"):
        done = mezzo.convert(model, out_of_range=out_of_range)
        weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in done.model.graph.initializer}
        assert weights["w0"].dtype == np.float32 and weights["w0"].max() == 1e6
        assert [(n.rule, n.precision.compute) for n in done.plan.nodes if n.name == "mm0"] == [
            ("constant-out-of-range", DType.FLOAT32)
        ]
