"""What is kept in reserve for data that nobody has seen: the headroom of ranges and the margin of tuning."""

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

import mezzo
from mezzo.tuning.goals import Goal, RunScore

_SCALED = """<ir_version: 10, opset_import: ["" : 21]>
g (float[N,2] x) => (float[N,2] y) <float[2,2] u = {1,0,0,1}, float[2,2] v = {0.001,0,0,0.001}> {
    [first]  h = MatMul(x, u)
    [second] y = MatMul(h, v)
}"""


@pytest.mark.parametrize(("largest", "is_kept"), [(32767.0, True), (32752.0, False), (65519.0, True)])
def test_values_within_twice_of_the_limit_are_protected(largest: float, is_kept: bool) -> None:
    """FP16 overflows from 65,520; data of which half has been seen may hold a number twice as large."""
    data = [{"x": np.array([[largest, 1.0], [-1.0, 0.5]], np.float32)}]
    plan = mezzo.convert(onnx.parser.parse_model(_SCALED), data=data, out_of_range="protect").plan
    rules = {name: plan.by_name[name].rule for name in ("first", "second")}
    assert rules == dict.fromkeys(rules, "data-overflow" if is_kept else "linear")


def _layers() -> onnx.ModelProto:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21]>
        g (float[N,64] x) => (float[N,64] y) { a = MatMul(x, u)  b = Tanh(a)  y = MatMul(b, v) }""")
    rng = np.random.default_rng(11)
    for name in ("u", "v"):
        model.graph.initializer.append(onnx.numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), name))
    return model


@pytest.mark.parametrize(("has_held_out", "margin"), [(True, 1.25), (False, 1.5)])
def test_tuning_stays_below_its_budget_by_the_margin(has_held_out: bool, margin: float) -> None:
    """The cheapest plan of all is taken once the budget is its error times the margin, and not before. The margin is
    larger where no data is held out that would notice."""
    batch = {"x": np.random.default_rng(5).normal(size=(32, 64)).astype(np.float32)}
    held_out = [batch] if has_held_out else None
    data = [batch] if has_held_out else [{"x": batch["x"][:1]}]  # one sample: nothing can be held out of it
    widest = mezzo.tune(_layers(), data=data, held_out=held_out, max_error=1.0)
    error = widest.measured.search.error
    assert (widest.summary.low_nodes, widest.measured.search.margin) == (3, margin)
    for budget, is_held in ((error * margin * 1.001, True), (error * margin * 0.999, False)):
        found = mezzo.tune(_layers(), data=data, held_out=held_out, max_error=budget)
        assert (found.summary.low_nodes == 3) is is_held


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("count", [1, 2, 5, 24])
def test_held_out_samples_hold_the_budget_by_their_interval(count: int, seed: int) -> None:
    """A plan is kept if the upper end of the interval over held-out samples is within the budget, which is no more
    than 1.5 times the error that was measured: of one sample or two the interval says nothing."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-2, 1, (count, 1))  # samples of other sizes: their errors differ
    data = [{"x": rng.normal(size=(32, 64)).astype(np.float32)}]
    held_out = [{"x": (sizes * rng.normal(size=(count, 64))).astype(np.float32)}]
    widest = mezzo.tune(_layers(), data=data, held_out=held_out, max_error=1.0)
    (output,) = widest.measured.comparison.outputs
    interval = output.relative_l2
    bound = max(1.25 * widest.measured.search.error, min(interval.high, 1.5 * interval.estimate))
    for budget, is_held in ((bound * 1.001, True), (bound * 0.999, False)):
        found = mezzo.tune(_layers(), data=data, held_out=held_out, max_error=budget)
        assert (found.summary.low_nodes == 3) is is_held, f"seed {seed}: {interval}"
        assert found.measured.search.is_within_budget


@pytest.mark.parametrize(("error", "holds"), [(0.0, True), (0.5, True), (0.500001, False), (float("nan"), False)])
def test_a_goal_holds_up_to_its_bound_and_the_slack_with_it(error: float, holds: bool) -> None:
    assert Goal(max_error=0.5, margin=7.0).holds(RunScore(error)) is holds
    assert Goal(max_error=1.0, margin=7.0).holds(RunScore(error), slack=2.0) is holds
