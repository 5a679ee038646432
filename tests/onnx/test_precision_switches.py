"""Laws of the emulator: any plan under switches is the model that the plan makes; switched off, it is the model."""

import random
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from random_models import random_feeds, random_model
from sweeps import swept
from switch_models import differing, is_same, open_and_read, operators, read

from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, DType
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.run.runtime import JUDGING
from mezzo.onnx.run.session import native_session
from mezzo.plugins.discovery import policies, strategies

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
_LAW = settings(
    max_examples=swept(120), derandomize=True, deadline=None, database=None, phases=(Phase.generate,),
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
_X = (np.random.default_rng(31).standard_normal((4, 4)) * 3).astype(np.float32)
_WEIGHT = "float[4,4] w = {1.1,2.2,3.3,4.4,5,6,7,8,9,10,11,12,13.7,14,1500.3,-16e6}"


@_LAW
@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 14),
    to=st.sampled_from(sorted(LOW_DTYPES)),
    policy=st.sampled_from(sorted(policies())),
    strategy=st.sampled_from(["mincut", *strategies()]),
    io=st.sampled_from(["keep", "low"]),
    tile=st.sampled_from([None, None, 1, 2]),
)
def test_any_plan_of_a_random_model_runs_as_the_model_it_makes(
    seed: int, size: int, to: str, policy: str, strategy: str, io: str, tile: int | None
) -> None:
    model = random_model(random.Random(seed), size)
    accumulation = None if tile is None else Accumulation(LOW_DTYPES[to], tile)
    feeds = random_feeds(model, random.Random(seed))
    assert not differing(model, feeds, to, accumulation, policy=policy, strategy=strategy, io=io, fuse="none")


_MODELS: dict[str, tuple[onnx.ModelProto, dict[str, Any]]] = {
    "if": (
        read("""g (float[4,4] x, bool c) => (float[4,4] y) { a = Exp(x)
            b = If(c)<then_branch = t () => (float[4,4] p) { p = Mul(a, a) },
                      else_branch = u () => (float[4,4] q) { q = Identity(a) }>  y = Add(b, x) }"""),
        {"x": _X, "c": np.bool_(False)},
    ),
    "loop": (
        read("""g (float[4,4] x, int64 n) => (float[4,4] y, float[N,4,4] s) {
            b, s = Loop(n, , x)<body = t (int64 i, bool c, float[4,4] p) => (bool d, float[4,4] q, float[4,4] z) {
                d = Identity(c)  k = Mul(p, p)  q = Sigmoid(k)  z = Add(q, x) }>  y = MatMul(b, x) }"""),
        {"x": _X, "n": np.int64(3)},
    ),
    "scan": (
        read("""g (float[4,4] x) => (float[4] y, float[4,4] z) <float[4] i = {0,0,0,0}> {
            y, z = Scan<num_scan_inputs = 1, body = t (float[4] p, float[4] v) => (float[4] q, float[4] r) {
                q = Add(p, v)  r = Mul(q, q) }>(i, x) }"""),
        {"x": _X},
    ),
    "sequence": (
        read("""g (float[4,4] x) => (seq(float[1,4]) t) { s = SplitToSequence<axis = 0>(x)
            one = Constant<value_int = 1>()  a = SequenceAt(s, one)  b = Mul(a, a)  t = SequenceInsert(s, b) }"""),
        {"x": _X},
    ),
    "function": (
        onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "local": 1]>
            g (float[4,4] x) => (float[4,4] y) { a = local.f(x)  b = local.f(a)  y = local.h(b) }
            <domain: "local", opset_import: ["": 21]> f (x) => (y) { h = Sigmoid(x)  y = MatMul(h, x) }
            <domain: "local", opset_import: ["": 21, "local": 1]> h (x) => (y) { y = local.f(x) }"""),
        {"x": _X},
    ),
    "opset 7, weights among the inputs": (
        read(
            f"""g (float[4,4] x, float[4,4] w) => (float[4,4] y) <{_WEIGHT}> {{ a = MatMul(x, w)  y = Add(a, x) }}""",
            7,
            3,
        ),
        {"x": _X},
    ),
    "a weight that the caller overrides": (
        read(f"g (float[4,4] x, float[4,4] w) => (float[4,4] y) <{_WEIGHT}> {{ a = MatMul(x, w)  y = Add(a, x) }}"),
        {"x": _X, "w": _X.T.copy()},
    ),
    "a wide source": (
        read("g (float[4,4] x, double[4,4] i) => (float[4,4] y) { f = Cast<to=1>(i)  y = Mul(x, f) }"),
        # Beside a tie of FP16 and of BF16, by less than FP32 shows: rounding by way of FP32 would take the tie.
        {"x": _X, "i": np.tile([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-8 + 2.0**-40, 1.5, 3.0], (4, 1))},
    ),
    "no float": (read("g (int64[4,4] x) => (int64[4,4] y) { y = Add(x, x) }"), {"x": _X.astype(np.int64)}),
    "no rows": (read("g (float[N,4] x) => (float[N,4] y) { y = Mul(x, x) }"), {"x": _X[:0]}),
    "values shown twice": (
        read("g (float[4,4] x) => (float[4,4] x, float[4,4] y, float[4,4] z) { y = Mul(x, x)  z = Identity(y) }"),
        {"x": _X},
    ),
    "a mixed model": (
        read("""g (float[4,4] x) => (float[4,4] y, float16[4,4] z) { h = Cast<to=10>(x)  k = Mul(h, h)
            f = Cast<to=1>(k)  y = Exp(f)  z = Cast<to=10>(y) }"""),
        {"x": _X},
    ),
}


@pytest.mark.parametrize("policy", ["aggressive", "balanced"])
@pytest.mark.parametrize("to", sorted(LOW_DTYPES))
@pytest.mark.parametrize("name", list(_MODELS))
def test_a_plan_runs_as_the_model_it_makes(name: str, to: str, policy: str) -> None:
    model, feeds = _MODELS[name]
    before = model.SerializeToString(deterministic=True)
    assert not differing(model, feeds, to, policy=policy)
    assert not differing(model, feeds, to, policy=policy, io="low")
    assert model.SerializeToString(deterministic=True) == before


@pytest.mark.parametrize("to", sorted(LOW_DTYPES))
def test_clamped_weights_are_clamped_where_they_are_rounded(to: str) -> None:
    model = read(f"g (float[4,4] x) => (float[4,4] y) <{_WEIGHT}> {{ y = MatMul(x, w) }}")
    assert not differing(model, {"x": _X}, to, policy="aggressive", out_of_range="clamp")


def test_switched_off_the_emulator_gives_the_bits_of_the_plain_model() -> None:
    model = read(f"g (float[4,4] x) => (float[4,4] y) <{_WEIGHT}> {{ a = MatMul(x, w)  b = Erf(a)  y = Add(b, x) }}")
    opened, reading = open_and_read(model)
    got = OnnxEmulator(opened, reading, list(LOW_DTYPES.values()), settings=JUDGING).run({"x": _X}, {})
    from mezzo.onnx.run.session import Session

    assert is_same(got["y"], Session(model, model.graph.input, None, JUDGING).run({"x": _X})["y"])


def test_each_node_runs_in_its_own_format() -> None:
    model = read("g (float[N] x) => (float[N] y) { a = Mul(x, x)  b = Add(a, x)  y = Sub(b, a) }")
    opened, reading = open_and_read(model)
    emulator = OnnxEmulator(opened, reading, [DType.FLOAT16, DType.BFLOAT16], settings=JUDGING)
    first, second, third = operators(reading)
    x = np.random.default_rng(7).standard_normal(1000).astype(np.float32)
    half, brain = (lambda v: v.astype(np.float16).astype(np.float32)), _brain
    got = emulator.run({"x": x}, {first: DType.FLOAT16, second: DType.BFLOAT16, third: HIGH})["y"]
    a = half(half(x) * half(x))
    assert is_same(got, brain(brain(a) + brain(x)) - a)
    a = brain(brain(x) * brain(x))
    assert is_same(emulator.run({"x": x}, {first: DType.BFLOAT16})["y"], a + x - a)


def _brain(values: np.ndarray) -> np.ndarray:
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def test_inputs_outputs_and_ties_have_switches() -> None:
    model = read("""g (float[N] x, int64 n) => (float[N] y) {
        y = Loop(n, , x)<body = t (int64 i, bool c, float[N] p) => (bool d, float[N] q) {
            d = Identity(c)  q = Add(p, x) }> }""")
    x = np.float32([1 + 2.0**-9, 1 / 3])
    for kind, expected in (
        (Kind.INPUT, _brain(x) * 3), (Kind.OUTPUT, _brain(x + x + x)), (Kind.TIE, _brain(_brain(_brain(x) + x) + x)),
    ):  # fmt: skip
        opened, reading = open_and_read(model)
        number = next(n.id for n in reading.graph.nodes if n.kind is kind and n.signature.dtype is HIGH)
        emulator = OnnxEmulator(opened, reading, [DType.BFLOAT16], settings=JUDGING)
        got = emulator.run({"x": x, "n": np.int64(2)}, {number: DType.BFLOAT16})["y"]
        # k = 2: 3 x was summed as x + x + x, with two roundings.
        np.testing.assert_allclose(got, expected, rtol=2 * 2.0**-23, atol=0)
        assert not np.array_equal(got, x + x + x)


def test_wrong_assignments_say_which_node() -> None:
    model = read("g (float16[N] x) => (float[N] y, int64[1] s) { c = Cast<to=1>(x)  y = Mul(c, c)  s = Shape(c) }")
    opened, reading = open_and_read(model)
    graph = reading.graph
    emulator = OnnxEmulator(opened, reading, [DType.FLOAT16], settings=JUDGING)
    feeds = {"x": np.float16([1])}
    by_op = {node.op: node.id for node in graph.nodes if node.kind is Kind.OP}
    with pytest.raises(InputError, match=r"^node 'Mul:y': this emulator was not made for bf16; its formats are f16$"):
        emulator.run(feeds, {by_op["Mul"]: DType.BFLOAT16})
    with pytest.raises(InputError, match=r"^node 'Shape:s' computes no floats, so it cannot run in f16; leave it out$"):
        emulator.run(feeds, {by_op["Shape"]: DType.FLOAT16})
    with pytest.raises(InputError, match=r"^the model has no node 99; ids go from 0 to \d+$"):
        emulator.run(feeds, {99: DType.FLOAT16})
    given = next(node.id for node in graph.nodes if node.kind is Kind.INPUT)
    with pytest.raises(
        InputError, match=r"^node 'input x' is f16 in the model already, so it cannot run in f32; leave"
    ):
        emulator.run(feeds, {given: HIGH})


def test_an_opset_without_the_cast_is_raised_or_refused() -> None:
    model = read("g (float[N] x) => (float[N] y) { y = Mul(x, x) }", opset=9, ir_version=4)
    opened, reading = open_and_read(model)
    x = np.float32([1.07])  # 1.125 in the format, its square 1.265625
    low = dict.fromkeys(operators(reading), DType.FLOAT8E4M3FN)
    assert OnnxEmulator(opened, reading, [DType.FLOAT8E4M3FN], settings=JUDGING).run({"x": x}, low)["y"] == [1.25]
    stuck = read("g (float[2,2] x) => (float[2,2] y) { h, m = Dropout(x) y = Mul(h, m) }", 9, 4)  # what m holds is open
    native_session(stuck)  # a sound model
    opened, reading = open_and_read(stuck)
    with pytest.raises(ContractError, match=r"^the model has opset 9 and emulating bf16 takes opset 13, but node 'h' "):
        OnnxEmulator(opened, reading, [DType.BFLOAT16])


def test_names_of_the_model_cannot_clash_with_those_of_switches() -> None:
    model = read("""g (float[N] switch_1, float[N] twin_1, float[N] border_1) => (float[N] switch_f16) {
        switch_f16_0 = Add(switch_1, twin_1)  switch_f16 = Mul(switch_f16_0, border_1) }""")
    feeds = {name: np.float32([1.1, 2.3]) for name in ("switch_1", "twin_1", "border_1")}
    assert not differing(model, feeds, "fp16", policy="aggressive")
