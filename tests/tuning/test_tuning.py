"""Tuning and conversion on data: the budget holds on data nobody has seen, at no more cost than is needed."""

import itertools
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.common.errors import InputError
from mezzo.contracts.options.request import Request
from mezzo.contracts.strategy import cost
from mezzo.conversion.results import open_source
from mezzo.evaluate.data_session import DataSession
from mezzo.evaluate.model_data import open_model_data
from mezzo.formats.dtypes import DType
from mezzo.numerics.data.splits import cut
from mezzo.onnx.run.emulation import emulated_session
from mezzo.onnx.run.session import native_session
from mezzo.planner.options import read_options
from mezzo.planner.plan_options import ErrorPrice
from mezzo.tuning.evaluator import Evaluator, units_of
from mezzo.tuning.frontier import trace
from mezzo.tuning.goals import Goal, ScoreCache, score
from mezzo.tuning.tuner import Tuner

_MLP = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,16] x) => (float[N,4] y) {
    [one]   a = MatMul(x, w1)
    [act]   b = Tanh(a)
    [two]   c = MatMul(b, w2)
    [scale] d = Mul(c, s)
    [three] y = MatMul(d, w3)
}"""


def mlp(scale: float = 1.0) -> onnx.ModelProto:
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(_MLP)
    weights = {"w1": (16, 64), "w2": (64, 64), "w3": (64, 4)}
    for name, shape in weights.items():
        numbers = rng.normal(size=shape).astype(np.float32) / math.sqrt(shape[0])
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, name))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(scale), "s"))
    return model


def batches(count: int = 8, seed: int = 0) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(size=(32, 16)).astype(np.float32)} for _ in range(count)]


def error_of(evaluator: Evaluator, low: Any, data: Any) -> float:
    """The largest relative L2 error of an output with these nodes low."""
    scored = score(evaluator, Goal(max_error=1.0, margin=1.0), low, DataSession(data=data))
    assert scored is not None
    return scored.error


def true_error(reference: onnx.ModelProto, model: onnx.ModelProto, data: list[dict[str, Any]]) -> float:
    """Relative L2 of the worst output over all data, by the judge's own runs."""
    first, second = native_session(reference), emulated_session(model)
    wrong: dict[str, float] = {}
    whole: dict[str, float] = {}
    for feeds in data:
        want, got = first.run(feeds), second.run(feeds)
        for name in want:
            wrong[name] = wrong.get(name, 0.0) + float(np.sum((got[name] - want[name]).astype(np.float64) ** 2))
            whole[name] = whole.get(name, 0.0) + float(np.sum(want[name].astype(np.float64) ** 2))
    return max(math.sqrt(wrong[name] / whole[name]) for name in wrong)


@pytest.mark.parametrize("budget", [1e-2, 1e-3, 3e-4, 1e-5])
@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_the_budget_holds_on_data_that_tuning_never_saw(to: str, budget: float) -> None:
    found = mezzo.tune(mlp(), data=batches(), max_error=budget, to=to)
    record = found.measured.search
    assert record.is_within_budget
    assert true_error(mlp(), found.model, batches(16, seed=99)) <= budget
    assert record.evaluations <= 12


def test_a_wide_budget_runs_everything_low_and_a_narrow_one_nothing() -> None:
    wide = mezzo.tune(mlp(), data=batches(), max_error=0.5)
    assert (wide.summary.low_nodes, wide.summary.high_nodes) == (5, 0)
    narrow = mezzo.tune(mlp(), data=batches(), max_error=1e-9)
    assert narrow.summary.low_nodes == 0
    assert narrow.measured.search.stopped_by == "only FP32 holds the budget"
    assert narrow.measured.search.costliest is not None


def test_a_plan_is_the_optimum_among_all_that_hold() -> None:
    """Five nodes: brute force over the 32 assignments finds nothing cheaper within the same margin."""

    found = mezzo.tune(mlp(), data=batches(), max_error=6e-4)
    evaluator = Evaluator(open_source(mlp(), False, None), read_options(Request(policy="aggressive")))
    problem = evaluator.judged.problem
    nodes = [unit.nodes[0] for unit in units_of(evaluator.judged, *evaluator.lows)]

    data = open_model_data(evaluator.model, batches())
    chosen = next(point for point in found.measured.frontier if point.is_chosen)
    cheaper = []
    for bits in itertools.product([False, True], repeat=len(nodes)):
        low = [False] * len(problem.graph.nodes)
        for node, bit in zip(nodes, bits, strict=True):
            low[node] = bit
        price = cost(problem, low)
        if (
            price < chosen.cost
            and error_of(evaluator, {n: evaluator.lows[0] for n in nodes if low[n]}, data) * 1.25 <= 6e-4
        ):
            cheaper.append((price, bits))
    # Optima for prices of error are corners of the convex hull: a plan between two corners may be cheaper, by less than
    # the step from one corner to the next.
    costs = sorted(point.cost for point in found.measured.frontier)
    below = max((c for c in costs if c < chosen.cost), default=chosen.cost)
    assert all(price >= below for price, _ in cheaper)


def test_frontier_has_the_same_plans_whatever_all_low_costs_beside_the_sum() -> None:
    """What all units cost together corrects predictions; the price at which two corners are equal is in the same unit,
    so no corner between them is passed over.
    """
    model = open_source(mlp(), False, None)
    goal, data = Goal(max_error=1e-9, margin=1.0), open_model_data(model, batches())
    tuner = Tuner(model, read_options(Request(policy="aggressive")), goal, DataSession(data=data), ScoreCache(None, {}))
    keys = [point.key for point in tuner.choose().points]
    assert len(keys) > 3
    for scale in (1e-3, 1.0, 1e3):
        tuner.scales = dict.fromkeys(tuner.scales, scale)
        assert [point.key for point in trace(tuner.solve, 48)] == keys


def test_what_has_a_price_before_a_search_keeps_it() -> None:
    """A product that was left in floats stays in floats, and the others still have a frontier between them."""
    model, low = open_source(mlp(), False, None), DType.FLOAT16
    options = read_options(Request(policy="aggressive"))
    left = {low: {"one": ErrorPrice(1 << 40, "left")}}
    options = replace(options, planning=replace(options.planning, error_prices=left))
    goal, data = Goal(max_error=1e-9, margin=1.0), open_model_data(model, batches())
    tuner = Tuner(model, options, goal, DataSession(data=data), ScoreCache(None, {}))
    choosing = tuner.choose()
    one = tuner.evaluator.graph.by_name["one"]
    assert len(choosing.points) > 2 and not any(point.levels[one] for point in choosing.points)
    price = choosing.options.planning.error_prices[low]["one"]
    assert price.cost >= 1 << 40 and price.because == "left"


def test_overflow_on_data_is_no_surprise() -> None:
    """The scale lifts a value past 65,504; ranges protect its group, the rest runs low."""
    model = mlp(scale=1e6)
    found = mezzo.convert(model, data=batches(), out_of_range="protect")
    kept = {node.name: node.rule for node in found.plan.nodes if node.precision.compute is found.plan.high}
    assert kept["scale"] == kept["three"] == "data-overflow"
    assert {"one", "two"} <= {n.name for n in found.plan.nodes if n.precision.compute is found.plan.low}
    assert "'d' holds" in found.plan.by_name["scale"].because
    assert found.measured.comparison.verdict.is_same
    assert true_error(model, found.model, batches(4, seed=5)) < 4e-3


def test_without_data_the_same_model_overflows() -> None:
    naive = mezzo.convert(mlp(scale=1e6), policy="aggressive", include=["*"])
    got = emulated_session(naive.model).run(batches(1)[0])["y"]
    assert not np.isfinite(got).all()


def test_a_metric_bounds_the_search() -> None:
    rng = np.random.default_rng(1)
    data = [{**feeds, "label": rng.integers(0, 4, 32)} for feeds in batches()]

    def accuracy(outputs: dict[str, Any], labels: dict[str, Any]) -> Any:
        return outputs["y"].argmax(axis=1) == labels["label"]

    found = mezzo.tune(mlp(), data=data, labels=["label"], metric=accuracy, max_drop="2%")
    assert found.measured.search.is_within_budget
    assert found.measured.comparison.metric.drop <= 0.02 * found.measured.comparison.metric.reference
    assert found.summary.low_nodes == 5


def test_a_search_that_ran_out_of_time_gives_what_it_has() -> None:
    found = mezzo.tune(mlp(), data=batches(), max_error=3e-4, time_limit_s=1e-9)
    assert found.measured.search.stopped_by == "the time limit"
    assert found.summary.low_nodes == 0
    assert found.measured.search.is_within_budget


def test_a_search_goes_on_where_it_stopped(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    first = mezzo.tune(mlp(), data=batches(), max_error=3e-4, resume=state)
    text = state.read_bytes()
    second = mezzo.tune(mlp(), data=batches(), max_error=3e-4, resume=state)
    assert state.read_bytes() == text, "nothing was run again"
    assert second.model.SerializeToString(deterministic=True) == first.model.SerializeToString(deterministic=True)
    with pytest.raises(InputError, match="the state is of a search with another max_error"):
        mezzo.tune(mlp(), data=batches(), max_error=2e-4, resume=state)


def test_two_searches_give_the_same_bytes() -> None:
    found = [mezzo.tune(mlp(), data=batches(), max_error=3e-4).model for _ in range(2)]
    assert found[0].SerializeToString(deterministic=True) == found[1].SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "say what must hold"),
        ({"max_error": 1e-3, "metric": len}, "say what must hold"),
        ({"metric": "scores:accuracy"}, "metric and max_drop go together"),
        ({"max_error": 1e-3, "max_drop": "1%"}, "metric and max_drop go together"),
        ({"max_error": 0.0}, "max_error is 0.0; give a relative error above 0"),
        ({"max_error": math.nan}, "max_error is nan"),
        ({"max_error": 1e-3, "strategy": "forward"}, "strategy 'forward' knows no price of error"),
        ({"metric": len, "max_drop": "much"}, "max_drop is 'much'"),
    ],
)
def test_what_cannot_be_asked_for_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        mezzo.tune(mlp(), data=batches(), **options)
    assert "\n" not in str(caught.value)


def test_data_cannot_change_a_plan() -> None:
    plan = mezzo.plan(mlp())
    with pytest.raises(InputError, match="data cannot change what a plan has decided"):
        mezzo.convert(mlp(), data=batches(), plan=plan)


def test_sensitivity_agrees_with_running_each_node_alone() -> None:

    found = mezzo.sensitivity(mlp(), batches(1))
    evaluator = Evaluator(open_source(mlp(), False, None), read_options(Request(policy="aggressive")))
    (batch,) = open_model_data(evaluator.model, batches(1))

    alone = {
        unit.name: error_of(evaluator, dict.fromkeys(unit.nodes, unit.dtype), [cut(batch, 0, 16)])
        for unit in units_of(evaluator.judged, *evaluator.lows)
    }
    assert {unit.name: unit.error for unit in found.units if unit.is_measured} == alone
    assert [unit.error for unit in found.units] == sorted((unit.error for unit in found.units), reverse=True)


@pytest.mark.parametrize("seed", range(swept(12)))
def test_random_models_with_bodies_and_functions_keep_their_budget(seed: int) -> None:
    model = random_model(random.Random(seed), 12)
    feeds = random_feeds(model, random.Random(seed))
    found = mezzo.tune(model, data=[feeds], max_error=2e-3)
    record = found.measured.search
    # Some of these models answer with infinities, which no budget says anything about.
    assert record.is_within_budget or record.unknown, f"seed {seed}: {record}"
    assert not any(output.fault for output in found.measured.comparison.outputs), f"seed {seed}"
    onnx.checker.check_model(found.model, full_check=True)
