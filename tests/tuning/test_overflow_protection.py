"""Conversion on data: what it lifts, what it says of it, and how protection comes back where the outputs need it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from model_texts import CANCELS, OFFSET
from problems import Case, cases
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.formats.precision_line import Precision
from mezzo.io import planfile
from mezzo.numerics.measures import Ruling
from mezzo.planner.planner import judge
from mezzo.tables.policy import Category, Evidence

_F16 = Precision(DType.FLOAT16, DType.FLOAT16, DType.FLOAT16)


def model_of(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def batches(seed: int, count: int = 3, **shapes: tuple[int, ...]) -> list[dict[str, np.ndarray]]:
    random = np.random.default_rng(seed)
    return [
        {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} for _ in range(count)
    ]


def low_nodes(made: mezzo.Converted) -> set[str]:
    return {node.name for node in made.plan.nodes if node.kind == "op" and node.precision == _F16}


# What a product makes of a constant past the range is divided by as much: the followers' values fit.
_FAR_CONSTANT = """<ir_version: 10, opset_import: ["" : 21]>
g (float[8,8] x, float[8,8] w) => (float[8,8] y) <float big = {200000}, float small = {0.000005}> {
    [above]  a = Mul(x, big)
    [below]  b = Mul(a, small)
    [first]  c = MatMul(b, w)
    [second] y = MatMul(c, w)
}"""


def test_a_constant_past_the_range_protects_only_whom_it_reaches() -> None:
    model, data = model_of(_FAR_CONSTANT), batches(0, x=(8, 8), w=(8, 8))
    assert low_nodes(mezzo.convert(model)) == set()
    made = mezzo.convert(model, data=data, out_of_range="protect")
    assert low_nodes(made) == {"first", "second"}
    text = next(node.because for node in made.plan.nodes if node.name == "second")
    assert "lifted 'constant-out-of-range': '" in text and text.endswith(" in 24 samples")


_SOFTMAX = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,8] x, float[8,8] w) => (float[4,8] y) {
    [logits]  l = MatMul(x, w)
    [softmax] p = Softmax(l)
    [last]    y = MatMul(p, w)
}"""


def test_a_softmax_whose_logits_fit_is_lifted_and_the_account_says_so() -> None:
    model, data = model_of(_SOFTMAX), batches(1, x=(4, 8), w=(8, 8))
    assert "softmax" not in low_nodes(mezzo.convert(model))
    made = mezzo.convert(model, data=data)
    assert "softmax" in low_nodes(made)
    assert made.measured is not None
    assert made.measured.notes[0] == "calibration data cleared 1 suspected node (softmax 1)"


def test_zeros_lift_nothing() -> None:
    nothing = [{"x": np.zeros((4, 8), np.float32), "w": np.zeros((8, 8), np.float32)}]
    assert "softmax" not in low_nodes(mezzo.convert(model_of(_SOFTMAX), data=nothing))


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_data_that_cannot_tell_lifts_nothing(strange: float) -> None:
    """An infinite number makes the softmax NaN; whatever runs low then passes for the same."""
    data = batches(1, x=(4, 8), w=(8, 8))
    data[1]["x"][0, 0] = strange
    assert "softmax" not in low_nodes(mezzo.convert(model_of(_SOFTMAX), data=data))


def test_an_output_that_never_changes_lifts_nothing() -> None:
    text = _SOFTMAX.replace("y = MatMul(p, w)", "y = Mul(p, zero)").replace(
        "=> (float[4,8] y) {", "=> (float[4,8] y) <float zero = {0}> {"
    )
    made = mezzo.convert(model_of(text), data=batches(1, x=(4, 8), w=(8, 8)))
    assert "softmax" not in low_nodes(made)


def test_what_the_user_keeps_is_never_lifted() -> None:
    data = batches(1, x=(4, 8), w=(8, 8))
    assert "softmax" not in low_nodes(mezzo.convert(model_of(_SOFTMAX), data=data, exclude=["softmax"]))
    assert "softmax" not in low_nodes(mezzo.convert(model_of(_SOFTMAX), data=data, policy="conservative"))


def test_the_verdict_is_on_samples_that_decided_nothing() -> None:
    made = mezzo.convert(model_of(_SOFTMAX), data=batches(1, count=24, x=(4, 8), w=(8, 8)))
    measured = made.measured
    assert measured is not None and measured.comparison is not None and measured.data is not None
    assert "softmax" in low_nodes(made) and not measured.shares_data
    assert (measured.data.batches, measured.comparison.data.batches) == (18, 6)
    assert measured.notes[-1].endswith("every fourth batch of batches judged and decided nothing")
    assert "held back" in str(made) and "none seen" in str(made)


def test_where_data_held_back_shows_more_all_of_it_decides_and_the_risk_is_told() -> None:
    """Every fourth batch has numbers whose squares FP16 cannot hold."""
    text = """<ir_version: 10, opset_import: ["" : 21]>
    g (float[4,8] x, float[8,8] w) => (float[4,8] y) <float a = {0.001}> {
        [square] s = Mul(x, x)
        [scale]  t = Mul(s, a)
        [last]   y = MatMul(t, w)
    }"""
    data = batches(1, count=8, x=(4, 8), w=(8, 8))
    for batch in data[3::4]:
        batch["x"] *= 400.0
    made = mezzo.convert(model_of(text), data=data)
    assert "square" not in low_nodes(made)
    assert made.measured is not None and made.measured.comparison is not None and made.measured.shares_data
    assert made.measured.comparison.verdict.is_same and made.measured.comparison.data.batches == 8
    assert made.measured.notes[-1].startswith("every fourth batch of batches gave other answers than three batches")
    assert "judged on the data that decided: other data may be worse" in str(made)


def test_where_what_is_held_back_cannot_judge_alone_all_of_it_judges() -> None:
    made = mezzo.convert(model_of(_SOFTMAX), data=batches(1, count=8, x=(4, 8), w=(8, 8)))
    assert made.measured is not None and made.measured.comparison is not None and made.measured.shares_data
    assert made.measured.comparison.verdict.is_same and made.measured.comparison.data.batches == 8
    assert made.measured.notes[-1].startswith("a part of batches does not judge alone (output 'y' differs most")
    assert "judged on the data that decided: other data may be worse" in str(made)


def test_data_too_little_to_be_parted_is_told() -> None:
    made = mezzo.convert(model_of(_SOFTMAX), data=batches(1, x=(4, 8), w=(8, 8)))
    assert made.measured is not None and made.measured.shares_data
    assert made.measured.notes[-1].startswith("no part of batches can be held back")
    assert "none seen" not in str(made) and "judged on the data that decided" in str(made)


_BRANCHES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,8] x, float[8,8] w, bool which) => (float[4,8] y) {
    [choice] p = If(which) <
        then_branch = t () => (float[4,8] a) { [taken] a = Softmax(x) },
        else_branch = e () => (float[4,8] b) { [other] b = Softmax(x) }
    >
    [last]   y = MatMul(p, w)
}"""


def test_a_body_that_never_ran_stays_suspected() -> None:
    data = [{**batch, "which": np.array(True)} for batch in batches(2, x=(4, 8), w=(8, 8))]
    made = mezzo.convert(model_of(_BRANCHES), data=data)
    high = {node.name.rpartition("/")[2]: node.rule for node in made.plan.nodes if node.rule == "softmax"}
    assert high == {"other": "softmax"}


def test_protection_comes_back_by_what_errors_cost_and_says_so() -> None:
    """The softmax is lifted with the rest; what the answers cannot bear goes back, and nothing else has to."""
    model = model_of(CANCELS)
    made = mezzo.convert(model, data=batches(3, x=(4, 8), w=(8, 8)))
    assert {"shift", "back"}.isdisjoint(low_nodes(made)) and "last" in low_nodes(made)
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.is_same
    assert made.measured.sensitivity is not None
    assert made.measured.notes[0].startswith("calibration data cleared")
    assert made.measured.notes[1].startswith("with all of that lifted the answers were off (")
    fresh = mezzo.compare(model, made.model, batches(4, x=(4, 8), w=(8, 8)))
    assert fresh.verdict.is_same, fresh.verdict.because


def test_a_result_that_is_wrong_with_all_protection_is_repaired() -> None:
    """Nothing is suspected, so nothing is lifted, and ranges know nothing of differences; the outputs tell."""
    data = batches(3, x=(4, 8), w=(8, 8))
    for batch in data:
        batch["x"] = (3 + 0.01 * batch["x"]).astype(np.float32)
    made = mezzo.convert(model_of(OFFSET), data=data)
    assert low_nodes(made) == {"last"}
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.is_same
    assert made.measured.notes[0].startswith("by the ranges alone the answers were off (")


def test_a_result_in_floats_that_stays_wrong_is_told_as_wrong() -> None:
    """Colourings of the reference systems know no prices, so nothing is repaired."""
    data = batches(3, x=(4, 8), w=(8, 8))
    for batch in data:
        batch["x"] = (3 + 0.01 * batch["x"]).astype(np.float32)
    made = mezzo.convert(model_of(OFFSET), data=data, strategy="forward")
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.ruling is Ruling.DIFFERENT


# Numbers that vanish in FP16, beside others that do not: whether they matter, the outputs tell.
_VANISHES = """<ir_version: 10, opset_import: ["" : 21]>
g (float[4,8] x, float[8,8] w) => (float[4,8] y) <float tiny = {0.0001}> {
    [product] l = MatMul(x, w)
    [small]   s = Mul(l, tiny)
    [smaller] t = Mul(s, tiny)
    [up]      u = Div(t, tiny)
    [further] v = Div(u, tiny)
    [sum]     z = Add(ADDED, x)
    [last]    y = MatMul(z, w)
}"""


def test_values_that_vanish_protect_only_where_the_output_shows_it() -> None:
    """Added as they are they are nothing beside the input; brought back to their size they are half of the sum."""
    data = batches(5, x=(4, 8), w=(8, 8))
    harmless = mezzo.convert(model_of(_VANISHES.replace("ADDED", "t")), data=data)
    assert "smaller" in low_nodes(harmless)
    needed = mezzo.convert(model_of(_VANISHES.replace("ADDED", "v")), data=data)
    assert "smaller" not in low_nodes(needed)
    assert needed.measured is not None and needed.measured.comparison is not None
    assert needed.measured.comparison.verdict.is_same


# A filter whose weights round away, beside one whose weights do not: what it adds is 1e-9 of the sum, or all of it.
_FAINT_WEIGHTS = """<ir_version: 10, opset_import: ["" : 21]>
g (float[8,8] x, float[8,8] w) => (float[8,8] y) <float[8,8] tiny> {
    [plain] a = MatMul(x, w)
    [faint] b = MatMul(x, tiny)
    [above] c = Mul(b, scale)
    [join]  y = Add(a, c)
}"""


@pytest.mark.parametrize(("scale", "is_low"), [(1.0, True), (1e9, False)])
def test_weights_that_vanish_keep_a_product_in_fp32_only_where_the_output_shows_it(scale: float, is_low: bool) -> None:
    model = model_of(_FAINT_WEIGHTS.replace("float[8,8] tiny", "float[8,8] tiny, float scale"))
    random = np.random.default_rng(3)
    weights = {"tiny": random.standard_normal((8, 8)) * 1e-9, "scale": np.array(scale)}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()
    )
    assert "faint" not in low_nodes(mezzo.convert(model)), "nothing but data says what becomes of it"
    made = mezzo.convert(model, data=batches(1, x=(8, 8), w=(8, 8)))
    assert ("faint" in low_nodes(made)) is is_low
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.error.estimate < 1e-3


def test_two_conversions_on_the_same_data_give_the_same_plan() -> None:
    data = batches(3, x=(4, 8), w=(8, 8))
    plans = [planfile.to_json(mezzo.convert(model_of(CANCELS), data=data).plan) for _ in range(2)]
    assert plans[0] == plans[1]


@settings(max_examples=swept(60), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(cases())
def test_lifting_denies_nobody_and_leaves_the_rest_alone(case: Case) -> None:
    """With every node lifted, what is denied was denied before; with none, nothing differs."""
    graph, planning = case.graph(), case.planning()
    before = judge(graph, planning).verdicts()
    everything = {node.name: Evidence("all of it fits", True) for node in graph.nodes}
    after = judge(graph, replace(planning, lifted={planning.low: everything})).verdicts()
    for node, old, new in zip(graph.nodes, before, after, strict=True):
        if new.category is Category.DENY:
            assert old.category is Category.DENY, (case, node.name)
            assert new.lift is None, (case, node.name)
        if old.category is Category.DENY and new.category is not Category.DENY:
            assert new.lift is not None and new.lift.because == "all of it fits", (case, node.name)


def _with_a_dead_channel() -> onnx.ModelProto:
    """A channel that is never above zero, multiplied by 30,000 before an activation that saturates."""
    random = np.random.default_rng(0)
    first, last = (random.standard_normal((16, 16, 1, 1)).astype(np.float32) / 4 for _ in range(2))
    each = np.ones((16, 1, 1, 1), np.float32)
    first[0], each[0] = -np.abs(first[0]), 3e4
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,16,4,4] x) => (float[n,16,4,4] y) <float zero = {0}, float six = {6}> {
        [one]   a = Conv(x, first)
        [relu]  b = Relu(a)
        [two]   c = Conv<group = 16>(b, each)
        [clip]  d = Clip(c, zero, six)
        [three] y = Conv(d, last)
    }"""
    model = model_of(text)
    named = {"first": first, "each": each, "last": last}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in named.items())
    return model


@pytest.mark.parametrize("to", ["int8", "int8,bf16"])
def test_what_data_lifts_of_int8_has_scales_too(to: str) -> None:
    """Suspicion falls on all of it; values that it kept in FP32 have to be watched all the same."""
    model = _with_a_dead_channel()
    suspected = mezzo.plan(model, to=to, target="openvino-cpu")
    assert [node.rule for node in suspected.nodes if node.name == "one"] == ["too-coarse"]
    data = [{"x": np.abs(batch["x"])} for batch in batches(5, count=8, x=(8, 16, 4, 4))]
    made = mezzo.convert(model, to=to, target="openvino-cpu", data=data)
    products = [str(node.precision.compute) for node in made.plan.nodes if node.name in ("one", "two", "three")]
    assert len(products) == 3 and {*products} <= {*to.split(",")}
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.is_same, made.measured.comparison.verdict.because


def test_convolution_that_several_read_gets_zeros_to_run_on_integers(tmp_path: Path) -> None:
    """OpenVINO answers wrong where it has no bias; with `fuse` at none it stays in floats."""
    model = model_of("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,2,4,4] x) => (float[n,2,4,4] y) <float[2,2,1,1] w = {1, 2, -3, 4}> {
        [conv] c = Conv(x, w)
        [tanh] t = Tanh(c)
        [sum]  y = Add(c, t)
    }""")
    data = batches(1, count=8, x=(8, 2, 4, 4))
    runs = {}
    for fuse in ("standard", "none"):
        made = mezzo.convert(model, to="int8", target="openvino-cpu", data=data, fuse=fuse)
        runs[fuse] = {str(node.precision.compute) for node in made.plan.nodes if node.name == "conv"}
        planfile.save_plan(made.plan, tmp_path / "plan.json")
        again = mezzo.convert(model, plan=tmp_path / "plan.json")
        assert again.model.graph.SerializeToString() == made.model.graph.SerializeToString()
    assert runs == {"standard": {"int8"}, "none": {"f32"}}


def test_what_stays_wrong_where_it_decides_is_wrong_whatever_is_held_back() -> None:
    """Inputs in FP16 lose what a difference is of, whatever nodes run in; in every fourth batch they lose nothing."""
    text = """<ir_version: 10, opset_import: ["" : 20]>
    g (float[N,8] x, float[N,8] u) => (float[N,8] y) { [less] d = Sub(x, u) [bend] y = Tanh(d) }"""
    data = batches(3, count=32, x=(4, 8), u=(4, 8))
    for number, batch in enumerate(data):
        batch["u"] = batch["x"] + batch["u"] if number % 4 == 3 else 1e3 * batch["x"] + batch["u"]
        batch["x"] = batch["x"] if number % 4 == 3 else 1e3 * batch["x"]
    made = mezzo.convert(model_of(text), to="fp16", io="low", data=data)
    assert made.measured is not None and made.measured.comparison is not None and made.measured.shares_data
    assert made.measured.comparison.verdict.ruling is Ruling.DIFFERENT
    assert made.measured.comparison.data.batches == 32
    assert made.measured.notes[-1].startswith("a part of batches does not judge alone (output 'y'")
