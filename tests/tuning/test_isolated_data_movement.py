"""What only moves numbers runs low beside what rounds them, never alone: by hand, in random graphs, and in a search."""

import random
from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.contracts.options.request import Request
from mezzo.conversion.results import open_source
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.options import read_options
from mezzo.tuning.evaluator import Evaluator
from mezzo.tuning.isolated_data_movement import lonely_movers

_CHAIN = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,4] x) => (float[4,4] y, float[4,4] z) {
    [one]   a = MatMul(x, w)
    [near]  b = Transpose<perm=[1,0]>(a)
    [far]   c = Transpose<perm=[1,0]>(b)
    [two]   y = MatMul(c, w)
    [other] z = Relu(b)
}"""


def chain() -> Graph:
    model = onnx.parser.parse_model(_CHAIN)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    return Evaluator(open_source(model, False, None), read_options(Request(policy="aggressive"))).graph


@pytest.mark.parametrize(
    ("levels", "alone"),
    [
        ({}, []),
        ({"near": 1}, ["near"]),
        ({"near": 1, "far": 1}, ["near", "far"]),
        ({"near": 1, "far": 2}, ["far"]),  # numbers of level 2 are the coarser ones
        ({"one": 1, "near": 1}, []),
        ({"far": 1, "two": 1}, []),
        ({"near": 1, "two": 1}, ["near"]),  # a mover at the base stands between
        ({"near": 1, "far": 1, "two": 1}, []),
        ({"near": 1, "far": 1, "other": 1}, []),  # far is fed what near has rounded
        ({"near": 2, "one": 1}, ["near"]),
        ({"near": 1, "one": 2}, []),
        ({"far": 1, "w": 1}, ["far"]),  # a weight follows what reads it
        ({"near": 2, "far": 1, "two": 1}, ["near"]),
    ],
)
def test_mover_is_alone_where_nothing_as_coarse_is_reached_through_movers(
    levels: Mapping[str, int], alone: list[str]
) -> None:
    graph = chain()
    names = {node.name: node.id for node in graph.nodes} | {
        "w": next(node.id for node in graph.nodes if node.kind is Kind.SOURCE)
    }
    assigned = [0] * len(graph.nodes)
    for name, level in levels.items():
        assigned[names[name]] = level
    judged = {(names[name], level) for name in ("one", "two", "other") for level in (1, 2)}
    assert lonely_movers(graph, 0, assigned, judged) == sorted((names[name], levels[name]) for name in alone)


def test_the_base_may_have_levels_on_both_sides() -> None:
    graph = chain()
    names = {node.name: node.id for node in graph.nodes}
    judged = {(names["one"], level) for level in (0, 2)}
    for one, alone in ((0, []), (2, [(names["near"], 0)])):
        assigned = [1] * len(graph.nodes)
        assigned[names["one"]], assigned[names["near"]] = one, 0
        assert lonely_movers(graph, 1, assigned, judged) == alone


def test_a_graph_input_that_is_stored_low_has_rounded_already() -> None:
    text = _CHAIN.replace("MatMul(x, w)", "Transpose<perm=[1,0]>(x)", 1)
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
    graph = Evaluator(open_source(model, False, None), read_options(Request(policy="aggressive"))).graph
    names = {node.name: node.id for node in graph.nodes}
    assigned = [0] * len(graph.nodes)
    assigned[names["one"]] = 1
    assert lonely_movers(graph, 0, assigned, ()) == [(names["one"], 1)]
    assigned[next(node.id for node in graph.nodes if node.kind is Kind.INPUT)] = 1
    assert not lonely_movers(graph, 0, assigned, ())


_POOLED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,4,16,16] x) => (float[N,8,8,8] y) {
    [one]  a = Conv<pads=[1,1,1,1]>(x, w1)
    [act]  b = Relu(a)
    [pool] c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
    [two]  y = Conv<pads=[1,1,1,1]>(c, w2)
}"""


def test_a_budget_that_no_plan_holds_quantizes_no_pooling_for_its_own_sake() -> None:
    """OpenVINO quantizes inside of the kernel before a pooling, so the pooling alone would gain time, and err."""
    rng = np.random.default_rng(0)
    model = onnx.parser.parse_model(_POOLED)
    for name, shape in {"w1": (32, 4, 3, 3), "w2": (8, 32, 3, 3)}.items():
        model.graph.initializer.append(
            onnx.numpy_helper.from_array((rng.normal(size=shape) / 6).astype(np.float32), name)
        )
    data = [{"x": rng.normal(size=(8, 4, 16, 16)).astype(np.float32)} for _ in range(4)]
    tuned = mezzo.tune(model, data=data, max_error=1e-9, to="int8", target="openvino-cpu", correct="none")
    assert tuned.summary.low_nodes == 0
    assert tuned.measured.search.is_within_budget
    pool = tuned.plan.by_name["pool"]
    assert pool.rule == "error-budget"
    assert pool.because == ("it only moves data, and no neighbour runs in int8: its values would be rounded for it")


def convolutions(rng: random.Random) -> onnx.ModelProto:
    """Convolutions, sums and activations with poolings and transpositions between."""
    lines = {
        "conv": "Conv<pads=[1,1,1,1]>({}, w)",
        "relu": "Relu({})",
        "pool": "MaxPool<kernel_shape=[3,3], pads=[1,1,1,1]>({})",
        "turn": "Transpose<perm=[0,1,3,2]>({})",
        "sum": "Add({}, {})",
    }
    body, values = "[first] v0 = Conv<pads=[1,1,1,1]>(x, w)", ["v0"]
    for at in range(1, 9):
        line = lines[rng.choice([*lines, "conv", "pool"])]
        operands = [values[-1], rng.choice(values)][: line.count("{}")]
        values.append(f"v{at}")
        body += f" [n{at}] v{at} = {line.format(*operands)}"
    text = (
        f"g (float[N,8,12,12] x) => (float[N,8,12,12] y) {{ {body} [last] y = Conv<pads=[1,1,1,1]>({values[-1]}, w) }}"
    )
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    weight = np.random.default_rng(rng.randrange(1 << 30)).normal(size=(8, 8, 3, 3)) / 8
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight.astype(np.float32), "w"))
    return model


@pytest.mark.parametrize("to", ["int8", "int8,bf16"])
@pytest.mark.parametrize("seed", range(8))
def test_a_budget_that_only_the_base_holds_gives_the_base(seed: int, to: str) -> None:
    rng = random.Random(seed)
    model, numbers = convolutions(rng), np.random.default_rng(seed)
    data = [{"x": numbers.normal(size=(4, 8, 12, 12)).astype(np.float32)} for _ in range(4)]
    tuned = mezzo.tune(model, data=data, max_error=1e-12, to=to, target="openvino-cpu", correct="none")
    assert tuned.measured.search.is_within_budget
    assert tuned.summary.low_nodes == 0
