"""Runs with one weight exchanged, from its first reader on: the answers of whole runs, at a part of their cost."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mezzo.conversion.results import open_source
from mezzo.formats.dtypes import HIGH
from mezzo.onnx.measure.lab import OnnxLab
from mezzo.onnx.run import suffix_runs
from mezzo.onnx.run.suffix_runs import SuffixRuns
from mezzo.onnx.run.weight_trials import OnnxWeightTrials

_EPS = float(np.finfo(np.float32).eps)


def network(seed: int, layers: int) -> onnx.ModelProto:
    """Products with residual sums, weights that two of them read, and outputs of inner values."""
    rng = np.random.default_rng(seed)
    weights = {f"w{place}": rng.standard_normal((24, 24)) / 5 for place in range(layers)}
    nodes, outputs, value = [], [], "x"
    for place in range(layers):
        weight = f"w{rng.integers(0, place + 1)}" if rng.random() < 0.2 else f"w{place}"
        nodes += [
            helper.make_node("MatMul", [value, weight], [f"p{place}"]),
            helper.make_node("Tanh", [f"p{place}"], [f"t{place}"]),
            helper.make_node("Add", [f"t{place}", str(rng.choice(["x", value]))], [f"v{place}"]),
        ]
        value = f"v{place}"
        if rng.random() < 0.2 or place == layers - 1:
            outputs.append(value)
    read = {name for node in nodes for name in node.input}
    tensors = [numpy_helper.from_array(a.astype(np.float32), name) for name, a in weights.items() if name in read]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 24]) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def trials_of(model: onnx.ModelProto) -> OnnxWeightTrials:
    opened = open_source(model, False, None)
    reading = opened.read(HIGH)
    graph = reading.graph
    weights = [number for number in graph.constants if len(graph.shapes[number]) == 2]
    trials = OnnxLab(opened).weight_trials(reading, weights)
    assert isinstance(trials, OnnxWeightTrials)
    return trials


def assert_same(found: Mapping[str, Any], expected: Mapping[str, Any], layers: int) -> None:
    """Each layer adds some 24 rounding errors of FP32 in another order at most: answers are of size 1 per layer."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=0, atol=24 * layers * layers * _EPS)


@pytest.mark.parametrize("layers", [1, 9, 40])
@pytest.mark.parametrize("seed", range(6))
def test_answers_are_those_of_whole_runs(seed: int, layers: int) -> None:
    trials, rng = trials_of(network(seed, layers)), np.random.default_rng(seed)
    many = [{"x": rng.standard_normal((rows, 24)).astype(np.float32)} for rows in (3, 7)]
    seen = []
    for weight, run in trials.each_alone(many):
        other = trials.weight(weight) * np.float32(1.5)
        answers = run(other)
        seen.append(weight)
        for feeds, found in zip(many, answers, strict=True):
            assert_same(found, trials.run(feeds, {weight: other}), layers)
    assert sorted(seen) == sorted(set(seen)) and len(seen) > layers // 2


def test_nodes_before_a_weight_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 40 layers, those from a weight's stage on: on average not much more than half of them."""
    ran = []
    compute = SuffixRuns._compute

    def counting(self: SuffixRuns, piece: Any, *rest: Any) -> Any:
        ran.append(len(piece.model.graph.node))
        return compute(self, piece, *rest)

    monkeypatch.setattr(SuffixRuns, "_compute", counting)
    trials = trials_of(network(1, 40))
    for weight, run in trials.each_alone([{"x": np.ones((2, 24), np.float32)}]):
        run(trials.weight(weight))
    whole = 3 * 40
    assert sum(ran) < 0.65 * whole * sum(1 for _ in trials.each_alone([])) + whole


@pytest.mark.parametrize("fails", ["_load", "_compute"])
def test_whole_runs_serve_where_parts_do_not_load(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    def refuse(*_: Any) -> Any:
        raise RuntimeError("this part does not load")

    monkeypatch.setattr(suffix_runs.SuffixRuns, fails, refuse)
    trials, feeds = trials_of(network(2, 9)), {"x": np.ones((2, 24), np.float32)}
    for weight, run in trials.each_alone([feeds]):
        other = -trials.weight(weight)
        (found,) = run(other)
        assert_same(found, trials.run(feeds, {weight: other}), 1)


def test_positions_are_where_few_values_are_alive() -> None:
    model = network(0, 40)
    trials = trials_of(model)
    weights = {trials._names[value]: trials.weight(value) for value in trials._names}
    suffixes = SuffixRuns(trials._whole.model, weights, trials._names, [{"x": np.ones((1, 24), np.float32)}])
    alive = suffixes._flat.values_alive()
    starts = suffixes._starts([suffixes._flat.first_reader(name) for name in weights])
    assert starts[0] == 0 and starts == sorted(starts) and len(starts) > 2
    assert max(alive[start] for start in starts) < max(alive)
