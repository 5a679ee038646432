"""What cannot be told is said, what is wrong is wrong beside it, and each output is held to its own standard."""

import random
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from random_models import random_feeds, random_model
from sweeps import swept

import mezzo
from mezzo.formats.dtypes import DType
from mezzo.numerics.measures import Comparison, Ruling
from mezzo.onnx.measure.reach import find_reached

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
DENSE = """g (float[N,4] x) => (float[N,3] y) <float[4,3] w = {1,2,3,4,5,6,7,8,9,1,2,3.5}>
    { h = MatMul(x, w)  r = Relu(h)  y = Softmax<axis=-1>(r) }"""


def model(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f"{HEAD} {body}")


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Any:
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def with_number(values: Any, place: tuple[int, ...], number: float) -> Any:
    values = values.copy()
    values[place] = number
    return values


def judge(body: str, feeds: dict[str, Any], **options: Any) -> Comparison:
    """A model against its conversion."""
    source = model(body)
    return mezzo.compare(source, mezzo.convert(source, target="any").model, feeds, **options)


SATURATED = """g (float[N,4] x) => (float[N,4] y) <float big = {1000}, float one = {1}>
    { a = Abs(x)  b = Mul(a, big)  c = Add(b, big)  y = Sigmoid(c) }"""
TELLS = {
    "NaN": (DENSE, {"x": with_number(normal(8, 4), (3, 1), np.nan)},
            "input 'x' holds NaN in sample 3 of batch 0 (1 of 32 numbers)"),
    "infinity": (DENSE, {"x": with_number(normal(8, 4), (5, 0), np.inf)},
                 "input 'x' holds infinities in sample 5 of batch 0 (1 of 32 numbers)"),
    "past FP32": (DENSE, {"x": with_number(normal(8, 4).astype(np.float64), (2, 2), 1e300)},
                  "input 'x' holds infinities in sample 2 of batch 0 (1 of 32 numbers)"),
    "-inf among numbers": (DENSE, {"x": with_number(normal(8, 4), (0, 0), -np.inf)},
                           "input 'x' holds infinities in sample 0 of batch 0 (1 of 32 numbers)"),
    "no sample": (DENSE, {"x": np.zeros((0, 4), np.float32)}, "the data holds no sample"),
    "constant inputs": (DENSE, {"x": np.ones((8, 4), np.float32)},
                        "output 'y' never changes in the reference, as no input does: 'x' is 1 everywhere"),
    "log of negatives": ("g (float[N,4] x) => (float[N,4] y) { y = Log(x) }", {"x": normal(8, 4)},
                         "output 'y' holds NaN in sample 0 of batch 0"),
    "overflow of FP32": ("g (float[N,4] x) => (float[N,4] y) { y = Exp(x) }",
                         {"x": with_number(normal(8, 4), (6, 1), 200.0)},
                         "output 'y' holds infinities in sample 6 of batch 0 (1 of 32 numbers) in the reference"),
    "saturated": (SATURATED, {"x": normal(8, 4)}, "output 'y' is 1 everywhere in the reference"),
    "dead Relu": ("g (float[N,4] x) => (float[N,4] y) { a = Abs(x)  b = Neg(a)  y = Relu(b) }", {"x": normal(8, 4)},
                  "output 'y' is zero everywhere in the reference"),
    "one class": ("g (float[N,4] x) => (int64[N,1] y) { y = ArgMax<axis=1>(x) }",
                  {"x": with_number(normal(8, 4), (slice(None), 2), 99.0)}, "output 'y' is 2 everywhere"),
    "truth values": ("g (float[N,4] x) => (bool[N,4] y) <float z = {0}> { a = Abs(x)  y = Less(a, z) }",
                     {"x": normal(8, 4)}, "output 'y' is False everywhere"),
    "a bias alone": ("g (float[N,4] x) => (float[N,4] y) <float z = {0}, float[4] b = {0.1, 0.7, 1.3, -2}>"
                     "{ a = Mul(x, z)  y = Add(a, b) }", {"x": normal(8, 4)},
                     "output 'y' never changes in the reference, over 8 samples that differ"),
    "an empty output": ("g (float[N,4] x) => (float[A,B] y) <int64[1] e = {4}, int64[1] f = {9}, int64[1] k = {1}>"
                        "{ y = Slice(x, e, f, k) }", {"x": normal(8, 4)}, "output 'y' is empty in every sample"),
    "noise": ("g (float[N,64] x) => (float[1,64] y) <int64[1] k = {0}>"
              "{ m = ReduceMean(x, k)  d = Sub(x, m)  y = ReduceMean(d, k) }", {"x": normal(256, 64)},
              "when the reference's numbers move by half a unit in the last place: it is noise"),
}  # fmt: skip


@pytest.mark.parametrize("name", TELLS)
def test_what_cannot_be_told_is_said_with_the_place(name: str) -> None:
    body, feeds, because = TELLS[name]
    verdict = judge(body, feeds).verdict
    assert verdict.ruling is Ruling.UNKNOWN, verdict
    assert verdict.because.startswith(verdict.unknown[0]), verdict
    assert any(because in reason for reason in verdict.unknown), verdict


CONTROLS = {
    "one sample": (DENSE, {"x": normal(1, 4)}),
    "one number": ("g (float[N] x) => (float[N] y) { y = Tanh(x) }", {"x": normal(1)}),
    "a mask of 0 and -inf": (
        "g (float[N,4] x, float[4] m) => (float[N,4] y) { s = Add(x, m)  y = Softmax<axis=-1>(s) }",
        {"x": normal(8, 4), "m": np.array([0, 0, -np.inf, 0], np.float32)}),
    "-inf in one place of all": (
        "g (float[N,4] x, float[4] m) => (float[N,4] y) { y = Add(x, m) }",
        {"x": normal(8, 4), "m": np.array([0, 0, -np.inf, 0], np.float32)}),
    "a mask of ones": ("g (float[N,4] x, float[N,4] m) => (float[N,4] y) { y = Mul(x, m) }",
                       {"x": normal(8, 4), "m": np.ones((8, 4), np.float32)}),
    "an output that no data reaches": (
        "g (float[N,4] x) => (float[N,4] y, float[2] anchors, int64[2] shape) <float[2] a = {0.5, 0.5}>"
        "{ y = Relu(x)  anchors = Identity(a)  shape = Shape(x) }", {"x": normal(8, 4)}),
    "one sample in many steps": (
        "g (float[N,4] x) => (float[N,4] y) <int64 k = {0}> { y = CumSum(x, k) }", {"x": np.ones((9, 4), np.float32)}),
    "zeros in places": ("g (float[N,4] x) => (float[N,4] y) { y = Relu(x) }", {"x": normal(8, 4)}),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTROLS)
def test_what_can_be_told_is_told(name: str) -> None:
    body, feeds = CONTROLS[name]
    verdict = judge(body, feeds).verdict
    assert verdict.ruling is Ruling.SAME, verdict


def test_samples_that_are_one_and_the_same_count_as_one() -> None:
    x = normal(1, 4)
    one, many = (judge(DENSE, {"x": feeds}) for feeds in (x, np.repeat(x, 50, axis=0)))
    assert one.verdict.error.high == pytest.approx(many.verdict.error.high)
    assert many.notes == ("all 50 samples are one and the same, so they count as one",)


def test_too_few_samples_are_undecided_and_no_more() -> None:
    source = model(DENSE)
    low = mezzo.convert(source, target="any", policy="aggressive").model
    error = mezzo.compare(source, low, {"x": normal(1, 4)}).verdict.error.estimate
    assert mezzo.compare(source, low, {"x": normal(1, 4)}, max_error=error * 2).verdict.ruling is Ruling.UNDECIDED


TWO = """g (float[N,16] x) => (float[N,4] logits, float[1,16] rest) <int64[1] k = {0}, float f = {FACTOR}>
    { a = MatMul(x, w)  b = Tanh(a)  c = MatMul(b, u)  d0 = Tanh(c)  e = MatMul(d0, v)  logits = Mul(e, f)
    m = ReduceMean(x, k)  d = Sub(x, m)  rest = ReduceMean(d, k) }"""


def two_outputs(factor: float) -> onnx.ModelProto:
    made = model(TWO.replace("FACTOR", repr(factor)))
    for name, shape in {"w": (16, 64), "u": (64, 64), "v": (64, 4)}.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(normal(*shape, seed=3) / shape[0] ** 0.5, name))
    return made


@pytest.mark.parametrize("factor", [0.5, 0.0, 0.9, 1.2, -1.0])
@pytest.mark.parametrize("max_error", [None, 1e-3])
def test_an_ill_conditioned_output_excuses_no_other(factor: float, max_error: float | None) -> None:
    feeds = {"x": normal(64, 16)}
    found = mezzo.compare(two_outputs(1.0), two_outputs(factor), feeds, max_error=max_error)
    assert found.verdict.ruling is Ruling.DIFFERENT and "'logits'" in found.verdict.because
    logits, rest = found.outputs
    assert logits.budget is not None and logits.noise is not None and rest.noise is not None
    assert logits.budget <= 1e-3 and logits.noise < 1e-5 < rest.noise


def test_beside_noise_the_other_output_is_still_judged_and_named() -> None:
    source = two_outputs(1.0)
    found = mezzo.compare(source, mezzo.convert(source, target="any").model, {"x": normal(64, 16)})
    assert found.verdict.ruling is Ruling.UNKNOWN
    assert found.verdict.because.endswith("; 'logits' could be judged: the same")
    assert [output.ruling for output in found.outputs] == [Ruling.SAME, Ruling.UNKNOWN]


BRANCHES = {
    "a dead cast": "{ k = Cast<to=16>(x)  y = Tanh(x)  z = Tanh(x) }",
    "a dead weight": "{ y = Tanh(x)  z = Tanh(x)  u = Cast<to=1>(unused) }",
    "a cast whose shape is read": "{ k = Cast<to=16>(x)  s = Shape(k)  r = Reshape(x, s)  y = Tanh(r)  z = Tanh(x) }",
    "a cast on the way to another": "{ k = Cast<to=16>(x)  l = Cast<to=1>(k)  z = Tanh(l)  y = Tanh(x) }",
    "a dead cast in a body": """{ c = Cast<to=9>(one)
        y = If (c) <then_branch = t () => (float[N,4] a) { d = Cast<to=16>(x)  a = Tanh(x) },
                    else_branch = e () => (float[N,4] b) { b = Tanh(x) }>
        z = Tanh(x) }""",
    "another state of a loop": """{ n = Cast<to=7>(three)  c = Cast<to=9>(one)
        y, z = Loop (n, c, x, x) <body = b (int64 i, bool go, float[N,4] s, float[N,4] t)
            => (bool on, float[N,4] u, float[N,4] v) { on = Identity(go)  u = Tanh(s)  l = Cast<to=16>(t)
            v = Cast<to=1>(l) }> }""",
}


@pytest.mark.parametrize("name", BRANCHES)
def test_only_what_an_output_depends_on_gives_it_its_budget(name: str) -> None:
    header = """g (float[N,4] x) => (float[N,4] y, float[N,4] z)
        <bfloat16[2] unused = {0, 0}, float one = {1}, float three = {3}>"""
    candidate = model(f"{header} {BRANCHES[name]}")
    reached = find_reached(candidate, {"x"})
    assert reached["y"].formats & {DType.FLOAT16, DType.BFLOAT16} == set()
    assert reached["y"].reads_data
    if "another" in name:
        assert DType.BFLOAT16 in reached["z"].formats


def test_a_cast_that_reaches_goes_through_state_and_captures() -> None:
    body = """g (float[N,4] x) => (float[N,4] y) <float one = {1}, float three = {3}>
        { n = Cast<to=7>(three)  c = Cast<to=9>(one)  h = Cast<to=10>(x)
        y = Loop (n, c, x) <body = b (int64 i, bool go, float[N,4] s) => (bool on, float[N,4] u)
            { on = Identity(go)  k = Cast<to=1>(h)  u = Add(s, k) }> }"""
    assert find_reached(model(body), {"x"})["y"].formats == {DType.FLOAT16, DType.FLOAT32}


def test_halved_logits_beside_a_dead_cast_are_wrong_by_default() -> None:
    body = "g (float[N,4] x) => (float[N,4] y) <float f = {FACTOR}> { k = Cast<to=16>(x)  t = Tanh(x)  y = Mul(t, f) }"
    found = mezzo.compare(
        model(body.replace("FACTOR", "1")), model(body.replace("FACTOR", "1.01")), {"x": normal(8, 4)}
    )
    assert found.verdict.ruling is Ruling.DIFFERENT and found.outputs[0].budget_source == "16 times the noise of FP32"


def corrupt(feeds: dict[str, Any], rng: random.Random) -> tuple[str, dict[str, Any]]:
    """Feeds that show nothing: a number that is none in one float input, constants, or no sample."""
    floats = [name for name, value in feeds.items() if getattr(value, "dtype", None) == np.float32 and value.size]
    kind = rng.choice(["nan", "inf", "-inf", "constant"] if floats else ["constant"])
    if kind == "constant":
        return kind, {name: np.zeros_like(value) for name, value in feeds.items()}
    chosen = rng.choice(floats)
    place = np.unravel_index(rng.randrange(feeds[chosen].size), feeds[chosen].shape)
    return kind, {**feeds, chosen: with_number(feeds[chosen], tuple(map(int, place)), float(kind))}


@pytest.mark.parametrize("seed", range(swept(24)))
def test_on_data_that_shows_nothing_no_random_model_is_the_same(seed: int) -> None:
    source = random_model(random.Random(seed), 10)
    kind, feeds = corrupt(random_feeds(source, random.Random(seed)), random.Random(seed))
    if not feeds:
        return
    made = mezzo.convert(source, target="any")
    found = mezzo.compare(source, made.model, feeds)
    if kind == "constant":
        # What the sums of a model make of one number may change from place to place, and be compared there.
        changes = {output.name for output in found.outputs if output.unknown is None}
        assert found.verdict.ruling is not Ruling.SAME or changes, f"seed {seed}"
    else:
        assert found.verdict.ruling is not Ruling.SAME, f"seed {seed}, {kind}: {found.verdict}"
        assert found.verdict.unknown, f"seed {seed}, {kind}"


@pytest.mark.parametrize("name", ["NaN", "infinity", "no sample", "dead Relu", "saturated", "constant inputs"])
def test_conversion_and_tuning_say_so_and_give_a_result(name: str) -> None:
    body, feeds, _ = TELLS[name]
    source = model(body)
    made = mezzo.convert(source, data=feeds)
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.ruling is Ruling.UNKNOWN
    without = mezzo.convert(source)
    low = {node.name for node in made.plan.nodes if node.precision.compute is made.plan.low}
    assert low <= {node.name for node in without.plan.nodes if node.precision.compute is without.plan.low}
    tuned = mezzo.tune(source, data=feeds, max_error=1e-2)
    assert tuned.measured is not None and tuned.measured.search is not None
    assert tuned.measured.search.unknown and not tuned.measured.search.is_within_budget
    onnx.checker.check_model(tuned.model, full_check=True)


def test_what_reaches_only_an_output_of_which_nothing_shows_stays_high() -> None:
    source = two_outputs(1.0)
    tuned = mezzo.tune(source, data={"x": normal(64, 16)}, max_error=0.5)
    assert tuned.measured is not None and tuned.measured.search is not None
    high = {node.name: node.because for node in tuned.plan.nodes if node.precision.compute is tuned.plan.high}
    low = [node.op for node in tuned.plan.nodes if node.precision.compute is tuned.plan.low]
    assert "Tanh" in low and not {"ReduceMean", "Sub"} & set(low)
    assert "the data shows nothing of what it reaches" in high.values()
    assert any("'rest'" in reason for reason in tuned.measured.search.unknown)


def test_ranges_and_sensitivity_say_what_the_data_cannot_tell() -> None:
    bad = {"x": with_number(normal(8, 4), (3, 1), np.nan)}
    assert mezzo.ranges(model(DENSE), bad).unknown == ("input 'x' holds NaN in sample 3 of batch 0 (1 of 32 numbers)",)
    nothing = mezzo.ranges(model(DENSE), {"x": np.zeros((0, 4), np.float32)})
    assert (nothing.unknown, nothing.values) == (("the data holds no sample",), ())
    assert mezzo.sensitivity(model(DENSE), bad).unknown
    dead = mezzo.sensitivity(model(TELLS["dead Relu"][0]), {"x": normal(8, 4)})
    assert (dead.units, dead.runs) == ((), 0)
    assert dead.unknown == ("output 'y' is zero everywhere in the reference",)
