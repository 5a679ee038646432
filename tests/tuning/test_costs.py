"""Costs from times. The times are made up, so every figure is known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx.parser
import pytest

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.options.request import Request
from mezzo.contracts.problem import Problem
from mezzo.contracts.profiles import CastTime, Effort, NodeTimes
from mezzo.contracts.strategy import casts_of
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.model import OnnxModel
from mezzo.onnx.opening import open_model
from mezzo.onnx.profile import nodes
from mezzo.planner.options import Options, read_options
from mezzo.quantize.calibration import without_data
from mezzo.tuning import measured_costs as measuring
from mezzo.tuning.costs import (
    CastLine,
    CastSample,
    Ran,
    Times,
    agreed,
    all_at,
    derive_costs,
    fit_casts,
    heavy_at,
    predict_ns,
    table_weights,
)

CHAIN = """<ir_version: 9, opset_import: ["": 17]>
    g (float[64,256] x, float[256,256] w) => (float[64,256] y) {
        [one] a = MatMul(x, w)
        [two] b = Relu(a)
        [three] y = MatMul(b, w)
    }"""
FEEDS = {"x": np.ones((64, 256), np.float32), "w": np.ones((256, 256), np.float32)}


def chain(to: str = "bf16", target: str = "openvino-cpu") -> tuple[OnnxModel, Options, Problem]:
    model, options = open_model(onnx.parser.parse_model(CHAIN)), read_options(Request(to=to, target=target))
    return model, options, judge_model(model, options)[1].problem


def times(problem: Problem, by_name: Mapping[str, float], spread: float = 0.0) -> Times:
    by_id = {problem.graph.by_name[name]: time for name, time in by_name.items()}
    return Times(by_id, dict.fromkeys(by_id, spread))


def names_of(problem: Problem, levels: Sequence[int]) -> set[str]:
    nodes = zip(problem.graph.nodes, levels, strict=True)
    return {node.name for node, level in nodes if level and node.kind is Kind.OP}


# -- derivation -------------------------------------------------------------------------------------------------------


def test_gain_is_the_difference_of_times() -> None:
    _, _, problem = chain()
    high = times(problem, {"one": 1000.0, "two": 100.0, "three": 1000.0})
    low = times(problem, {"one": 400.0, "two": 150.0, "three": 1000.0})
    costs, nodes = derive_costs(problem, high, [Ran(all_at(problem, 1), low)], [CastLine(10.0, 0.0)])
    gains = {node.name: costs.gains[1][node.id] for node in problem.graph.nodes if node.kind is Kind.OP}
    assert gains == {"one": 600, "two": -50, "three": 0}
    assert {(cost.node, cost.high, cost.low) for cost in nodes} == {
        ("one", 1000.0, 400.0), ("two", 100.0, 150.0), ("three", 1000.0, 1000.0)
    }  # fmt: skip


@pytest.mark.parametrize(("spread", "gain"), [(60.0, 100), (80.0, 0)])
def test_difference_within_the_spread_is_none(spread: float, gain: int) -> None:
    """Two times off by s each differ by s times the root of 2: 60 gives 85, 80 gives 113, around the 100 measured."""
    _, _, problem = chain()
    high, low = times(problem, {"one": 1000.0}, spread), times(problem, {"one": 900.0}, spread)
    costs, _ = derive_costs(problem, high, [Ran(all_at(problem, 1), low)], [CastLine(10.0, 0.0)])
    assert costs.gains[1][problem.graph.by_name["one"]] == gain


def test_node_that_never_ran_low_gains_as_the_others_do() -> None:
    _, _, problem = chain()
    high = times(problem, {"one": 1000.0, "three": 400.0})
    ran_low = [int(node.name == "one") for node in problem.graph.nodes]
    costs, _ = derive_costs(
        problem, high, [Ran(ran_low, times(problem, {"one": 250.0, "three": 400.0}))], [CastLine(10.0, 0.0)]
    )
    assert costs.gains[1][problem.graph.by_name["three"]] == 300


def test_two_profiles_of_one_model_tell_the_noise() -> None:
    _, _, problem = chain()
    first, second = times(problem, {"one": 900.0, "two": 100.0}), times(problem, {"one": 1100.0, "two": 100.0})
    both = agreed(first, second)
    one, two = problem.graph.by_name["one"], problem.graph.by_name["two"]
    assert both.times_ns == {one: 1000.0, two: 100.0}
    assert both.spreads_ns[one] == 200.0
    assert both.spreads_ns[two] == pytest.approx(100.0 * 200 / 1100)


def test_cast_line_is_found_and_never_falls() -> None:
    exact = fit_casts([CastSample(n, 500.0 + 0.25 * n) for n in (16, 4000, 10**6)])
    assert exact is not None and (exact.launch_ns, exact.element_ns) == (pytest.approx(500.0), pytest.approx(0.25))
    assert fit_casts([CastSample(100, 50.0), CastSample(100, 50.0)]) == CastLine(50.0, 0.0)
    falling = fit_casts([CastSample(10, 900.0), CastSample(10_000, 300.0)])
    assert falling is not None and falling.element_ns == 0.0 and 300.0 <= falling.launch_ns <= 900.0
    through_nothing = fit_casts([CastSample(1, 0.5), CastSample(1000, 1000.0)])
    assert through_nothing is not None and through_nothing.launch_ns == 0.0
    assert fit_casts([CastSample(10, 0.0)]) is None


def test_casts_cost_something_even_where_none_was_seen() -> None:
    _, _, problem = chain()
    high = times(problem, {"one": 1000.0})
    costs, _ = derive_costs(problem, high, [Ran(all_at(problem, 1), high)], [None])
    (prices,) = costs.cast_prices
    assert min(prices) >= 1
    assert len(prices) == len(problem.graph.values)


def test_profile_of_nothing_gives_costs_of_nothing() -> None:
    _, _, problem = chain()
    costs, nodes = derive_costs(problem, Times({}, {}), [Ran(all_at(problem, 1), Times({}, {}))], [None])
    assert [set(gains) for gains in costs.gains] == [{0}, {0}]
    assert {cost.high for cost in nodes} == {0.0}


def test_prediction_adds_up() -> None:
    _, _, problem = chain()
    high = times(problem, {"one": 1000.0, "two": 100.0, "three": 1000.0})
    low = times(problem, {"one": 400.0, "two": 150.0, "three": 500.0})
    costs, _ = derive_costs(problem, high, [Ran(all_at(problem, 1), low)], [CastLine(10.0, 0.0)])
    problem = replace(problem, measured=costs)
    levels = all_at(problem, 1)
    assert predict_ns(problem, [0] * len(levels), 2100.0) == 2100.0
    assert predict_ns(problem, levels, 2100.0) == 400.0 + 150.0 + 500.0 + 10 * len(casts_of(problem, levels))


def test_only_heavy_operators_run_low_in_the_mixed_profile() -> None:
    _, _, problem = chain()
    assert names_of(problem, all_at(problem, 1)) == {"one", "two", "three"}
    assert names_of(problem, heavy_at(problem, 1)) == {"one", "three"}
    assert len(casts_of(problem, heavy_at(problem, 1))) > len(casts_of(problem, all_at(problem, 1)))


# -- three levels -----------------------------------------------------------------------------------------------------

KERNELS = """<ir_version: 10, opset_import: ["": 22]>
    g (float[1,2,8,8] x) => (float[1,2,4,4] y)
    <float[2,2,1,1] w = {1,2,3,4}, float[2,2,1,1] v = {1,2,3,4}>
    {
        [one] a = Conv(x, w)
        [relu] b = Relu(a)
        [pool] c = MaxPool<kernel_shape=[2,2], strides=[2,2]>(b)
        [two] y = Conv(c, v)
    }"""


def kernels() -> Problem:
    options = read_options(Request(to="int8,bf16", target="openvino-cpu"))
    model, options = without_data(open_model(onnx.parser.parse_model(KERNELS)), options)
    return judge_model(model, options)[1].problem


def test_each_level_gains_what_its_own_profile_shows() -> None:
    problem = kernels()
    low, base, integers = 0, problem.line.base, problem.line.quantized
    assert (problem.line.dtypes[low], base, integers) == (DType.BFLOAT16, 1, 2)
    high = times(problem, {"one": 1000.0, "relu": 100.0, "pool": 200.0, "two": 500.0})
    in_bf16 = times(problem, {"one": 600.0, "relu": 100.0, "pool": 250.0, "two": 500.0})
    in_int8 = times(problem, {"one": 300.0, "relu": 40.0, "pool": 90.0, "two": 700.0})
    runs = [Ran(all_at(problem, integers), in_int8), Ran(all_at(problem, low), in_bf16)]
    costs, table = derive_costs(problem, high, runs, [CastLine(10.0, 0.0), CastLine(70.0, 0.0)])
    gains = {node.name: [level[node.id] for level in costs.gains] for node in problem.graph.nodes}
    assert gains["one"] == [400, 0, 700]
    assert gains["relu"] == [0, 0, 60]
    assert gains["pool"] == [-50, 0, 110]
    assert gains["two"] == [0, 0, -200]
    assert [set(prices) for prices in costs.cast_prices] == [{10}, {70}]
    assert {cost.node: cost.low for cost in table} == {"one": 300.0, "relu": 40.0, "pool": 90.0, "two": 500.0}


@pytest.mark.parametrize(("spread", "gains"), [(20.0, (30, 30)), (22.0, (0, 0))])
def test_kernel_is_told_from_noise_as_one(spread: float, gains: tuple[int, int]) -> None:
    """Conv and Relu of one kernel gain 60; each is off by s in both profiles, so both by 2 s each time: 2.83 s."""
    problem = kernels()
    assert problem.line.quantized is not None
    high = times(problem, {"one": 100.0, "relu": 100.0}, spread)
    low = times(problem, {"one": 70.0, "relu": 70.0}, spread)
    runs = [Ran(all_at(problem, problem.line.quantized), low)]
    costs, _ = derive_costs(problem, high, runs, [CastLine(10.0, 0.0)] * 2)
    by_name = problem.graph.by_name
    assert tuple(costs.gains[problem.line.quantized][by_name[name]] for name in ("one", "relu")) == gains


def test_heavy_operators_take_their_kernels_along() -> None:
    problem = kernels()
    assert problem.line.quantized is not None
    assert ran(problem, all_at(problem, problem.line.quantized)) == {"one", "relu", "pool", "two"}
    assert ran(problem, heavy_at(problem, problem.line.quantized)) == {"one", "relu", "two"}


def ran(problem: Problem, levels: Sequence[int]) -> set[str]:
    nodes = problem.graph.nodes
    return {node.name for node in nodes if node.kind is Kind.OP and levels[node.id] != problem.line.base}


def test_weights_follow_bytes_and_never_vanish() -> None:
    _, _, problem = chain()
    weights = table_weights(problem)
    one, two = (int(weights[problem.graph.by_name[name]]) for name in ("one", "two"))
    assert two == 4 * (64 * 256 + 64 * 256)
    assert one == 4 * (64 * 256 + 256 * 256 + 64 * 256) * problem.prices.linear_factor
    assert weights.min() >= 1


# -- the whole way, on made-up profiles -------------------------------------------------------------------------------


class Target:
    """Stands in for a runtime: gives every operator a time, by whether it is low in the model it gets."""

    def __init__(self, high: float, low: float, refuses: int | None = None) -> None:
        self.high, self.low, self.refuses, self.calls = high, low, refuses, 0

    def __call__(self, models, target, feeds, label, weights, effort, write):  # type: ignore[no-untyped-def]
        self.calls += 1
        if self.calls == self.refuses:
            raise ContractError("target 'openvino-cpu' does not run the model: no kernel")
        return tuple(self._times(model, label) for model in models)

    def _times(self, model, label) -> NodeTimes:  # type: ignore[no-untyped-def]
        is_low = any(node.op_type == "Cast" for node in model.graph.node)
        labels = [label(node) for node in model.graph.node]
        by_node = {each: self.low if is_low else self.high for each in labels if each is not None}
        casts = (CastTime(source="x", position=0, time_ns=40.0, spread_ns=1.0),) if is_low else ()
        return NodeTimes(
            total_ns=9999.0,
            by_node=by_node,
            spread_ns=dict.fromkeys(by_node, 1.0),
            casts=casts,
            mapped_share=1.0,
            kernels_ns=1.0,
            kernel_runs=len(by_node),
            between_ns=30.0,
        )


def planned(monkeypatch: pytest.MonkeyPatch, target: Target) -> tuple[set[str], measuring.Measurement]:
    monkeypatch.setattr(nodes, "profile_models", target)
    monkeypatch.setattr(measuring, "check_measurable", lambda model, options: "measured on nothing")
    model, options, problem = chain()
    found = measuring.measure(model, options, FEEDS, Effort())
    problem = replace(problem, measured=found.costs)
    return names_of(problem, options.planning.strategy.assign(problem)), found


def test_what_gains_runs_low(monkeypatch: pytest.MonkeyPatch) -> None:
    low, found = planned(monkeypatch, Target(1000.0, 400.0))
    assert low == {"one", "two", "three"}
    assert (found.table.unit, found.table.source) == ("ns", "measured on nothing")
    assert found.costs.cast_prices[0][0] == 50  # 40 as seen, 10 for one kernel more: 30 between 3 kernels


@pytest.mark.parametrize("low_ns", [1000.0, 999.0, 1300.0])
def test_nothing_runs_low_where_nothing_gains(monkeypatch: pytest.MonkeyPatch, low_ns: float) -> None:
    low, found = planned(monkeypatch, Target(1000.0, low_ns))
    assert low == set()
    assert any(note.startswith("nothing gains here") for note in found.notes)


def test_target_that_refuses_all_low_is_measured_with_the_plan_from_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(1000.0, 400.0, refuses=1)
    low, found = planned(monkeypatch, target)
    assert target.calls == 2
    assert low == {"one", "two", "three"}
    assert "the plan from the table was measured instead" in found.notes[0]


def test_target_that_cannot_be_measured_is_refused_before_any_work() -> None:
    model, options, _ = chain("fp16", "tensorrt")
    with pytest.raises(InputError, match="target 'tensorrt' cannot be measured here"):
        measuring.measure(model, options, FEEDS)


@pytest.mark.parametrize("target", ["onnxruntime-cpu", "openvino-cpu"])
def test_costs_are_measured_at_three_levels(target: str) -> None:
    if target == "openvino-cpu":
        pytest.importorskip("openvino", reason="openvino is not installed")
    options = read_options(Request(to="int8,fp16", target=target))
    model, options = without_data(open_model(onnx.parser.parse_model(KERNELS)), options)
    feeds = {"x": np.ones((1, 2, 8, 8), np.float32)}
    found = measuring.measure(model, options, feeds, Effort(runs=4, calls=2, pause_s=0.0))
    graph = judge_model(model, options)[1].problem.graph
    assert [len(gains) for gains in found.costs.gains] == [len(graph.nodes)] * 3
    assert [len(prices) for prices in found.costs.cast_prices] == [len(graph.values)] * 2
    assert found.mapped_share == 1.0


@pytest.mark.parametrize(("to", "target"), [("fp16", "onnxruntime-cpu"), ("bf16", "openvino-cpu")])
def test_costs_are_measured_for_every_node_and_value(to: str, target: str) -> None:
    if target == "openvino-cpu":
        pytest.importorskip("openvino", reason="openvino is not installed")
    model, options, problem = chain(to, target)
    found = measuring.measure(model, options, FEEDS, Effort(runs=4, calls=2, pause_s=0.0))
    costs, table = found.costs, found.table
    assert [len(gains) for gains in costs.gains] == [len(problem.graph.nodes)] * 2
    assert [len(prices) for prices in costs.cast_prices] == [len(problem.graph.values)]
    assert {node.node for node in table.nodes} == {"one", "two", "three"}
    assert target.removesuffix("-cpu") in table.source
