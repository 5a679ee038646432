"""LSTMs in ONNX Runtime's operator that holds weights as integers: every form answers as FP32 does, but for the steps
of its numbers, and the emulation answers as the file.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import mezzo

_TIME, _BATCH, _INPUTS, _STATES = 6, 2, 24, 32
_NAMES = ("y", "h", "c")
# Weights, data and states are each on steps of 1/127 of their largest number or finer, and errors of one step of time
# go on to the next: four steps in all.
_OFF = 4 / 127
_FORMS: dict[str, tuple[str, str, int, dict[str, Any]]] = {
    "plain": ("", "yhc", 17, {}),
    "a bias": ("b", "y", 14, {}),
    "lengths, states that are given": ("bsh", "yhc", 17, {}),
    "peepholes": ("bp", "h", 11, {}),
    "other activations within bounds": ("b", "hc", 22, {"activations": ["Sigmoid", "Tanh", "Softsign"], "clip": 3.0}),
    "the last state alone": ("b", "c", 13, {}),
}


def network(direction: str, form: str) -> onnx.ModelProto:
    given, shown, opset, attributes = _FORMS[form]
    count, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(3)

    def draw(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)

    optional = {
        "b": {3: ("B", draw(count, 8 * _STATES))},
        "s": {4: ("lengths", np.array([_TIME, _TIME - 2], np.int32))},
        "h": {5: ("h0", draw(count, _BATCH, _STATES)), 6: ("c0", draw(count, _BATCH, _STATES))},
        "p": {7: ("P", draw(count, 3 * _STATES))},
    }
    operands = {1: ("W", draw(count, 4 * _STATES, _INPUTS)), 2: ("R", draw(count, 4 * _STATES, _STATES))}
    for letter in given:
        operands |= optional[letter]
    inputs = ["x", *(operands.get(position, ("",))[0] for position in range(1, max(operands) + 1))]
    outputs = [name if name in shown else "" for name in _NAMES[: _NAMES.index(shown[-1]) + 1]]
    if "activations" in attributes:
        attributes = attributes | {"activations": attributes["activations"] * count}
    node = helper.make_node("LSTM", inputs, outputs, "rnn", hidden_size=_STATES, direction=direction, **attributes)
    shapes = {"y": ["t", "d", "n", "h"], "h": ["d", "n", "h"], "c": ["d", "n", "h"]}
    ports = [helper.make_tensor_value_info(name, 1, shapes[name]) for name in outputs if name]
    data = helper.make_tensor_value_info("x", 1, [_TIME, _BATCH, _INPUTS])
    weights = [numpy_helper.from_array(array, name) for name, array in operands.values()]
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(helper.make_graph([node], "g", [data], ports, weights), opset_imports=opsets, ir_version=8)


def answers(path: Path, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)


def feeds(seed: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal((_TIME, _BATCH, _INPUTS)).astype(np.float32)}


@pytest.mark.parametrize("form", _FORMS)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_every_form_answers_as_in_floats(direction: str, form: str, tmp_path: Path) -> None:
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(network(direction, form), path)
    found = mezzo.convert(
        path, out, to="int8", target="onnxruntime-cpu", data=[feeds(seed) for seed in range(4)], check=False
    )
    model = onnx.load(out)
    assert [node.op_type for node in model.graph.node][-1] == "DynamicQuantizeLSTM"
    assert found.measured is not None and found.measured.comparison is not None
    judged = {output.name: output.relative_l2.estimate for output in found.measured.comparison.outputs}
    for name, got, want in zip(judged, answers(out, feeds(9)), answers(path, feeds(9)), strict=True):
        off = float(np.linalg.norm(got - want) / np.linalg.norm(want))
        assert 0 < off < _OFF, name
        # Other samples of the same numbers err alike.
        assert off / 2 < judged[name] < 2 * off, name


def test_converting_again_changes_nothing() -> None:
    once = mezzo.convert(network("forward", "a bias"), to="int8", target="onnxruntime-cpu", calibrator="none").model
    twice = mezzo.convert(once, to="int8", target="onnxruntime-cpu", calibrator="none").model
    assert [node.op_type for node in once.graph.node] == [node.op_type for node in twice.graph.node]


def test_a_weight_of_two_directions_of_reading_has_one_scale(tmp_path: Path) -> None:
    """An LSTM of each kind reads the same weights, so that none has a scale for each gate."""
    model = network("bidirectional", "plain")
    lstm, copy = model.graph.node[0], onnx.NodeProto()
    copy.CopyFrom(lstm)
    copy.name, copy.output[:] = "again", ["again_y", "", ""]
    model.graph.node.append(copy)
    model.graph.output.append(helper.make_tensor_value_info("again_y", 1, ["t", "d", "n", "h"]))
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(model, path)
    mezzo.convert(path, out, to="int8", target="onnxruntime-cpu", calibrator="none")
    for got, want in zip(answers(out, feeds(9)), answers(path, feeds(9)), strict=True):
        assert np.linalg.norm(got - want) < _OFF * np.linalg.norm(want)
    assert sum(tensor.data_type == onnx.TensorProto.INT8 for tensor in onnx.load(out).graph.initializer) == 2


@pytest.mark.parametrize("is_first", [True, False])
def test_a_body_with_its_own_weights_runs_on_integers(is_first: bool, tmp_path: Path) -> None:
    """An LSTM in one branch, a product in the other, their weights in the branches."""
    rng, branches = np.random.default_rng(5), []
    of_lstm = network("forward", "a bias").graph
    del of_lstm.input[:]
    branches.append(of_lstm)
    weight = numpy_helper.from_array(rng.standard_normal((_INPUTS, _STATES)).astype(np.float32), "own")
    nodes = [helper.make_node("MatMul", ["x", "own"], ["p"]), helper.make_node("Unsqueeze", ["p", "one"], ["q"])]
    port = helper.make_tensor_value_info("q", 1, ["t", "d", "n", "h"])
    branches.append(
        helper.make_graph(nodes, "other", [], [port], [weight, numpy_helper.from_array(np.array([1]), "one")])
    )
    chosen = helper.make_node("If", ["c"], ["y_"], then_branch=branches[0], else_branch=branches[1])
    ports = [
        helper.make_tensor_value_info("x", 1, [_TIME, _BATCH, _INPUTS]),
        helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
    ]
    made = helper.make_tensor_value_info("y_", 1, ["t", "d", "n", "h"])
    model = helper.make_model(
        helper.make_graph([chosen], "g", ports, [made]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(model, path)
    mezzo.convert(path, out, to="int8", target="onnxruntime-cpu", calibrator="none")
    fed = feeds(9) | {"c": np.array(is_first)}
    ((got,), (want,)) = answers(out, fed), answers(path, fed)
    assert 0 < np.linalg.norm(got - want) < _OFF * np.linalg.norm(want)
    bodies = [attribute.g for node in onnx.load(out).graph.node for attribute in node.attribute]
    written = {node.op_type for body in bodies for node in body.node}
    assert {"DynamicQuantizeLSTM", "MatMulInteger"} <= written and not {"LSTM", "MatMul"} & written
