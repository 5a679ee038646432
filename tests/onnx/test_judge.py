"""The judge of conversions computes what a device with true FP16 and BF16 values computes, bit by bit.

The oracle is numpy: each operator in FP32, then one rounding by numpy.float16 or ml_dtypes.bfloat16.
"""

import numpy as np
import onnx
import pytest
from judge_models import ALL, EACH_LOW, ELEMENT, LOW, assert_same_bits, judge, read, rounded
from onnx import helper, numpy_helper

from mezzo.common.errors import ContractError
from mezzo.onnx.emulate.fp32_simulation import twin
from mezzo.onnx.run.emulation import check_rounding_survives, emulated_session
from mezzo.onnx.run.session import Engine, native_session
from mezzo.onnx.schema.value_types import value_types

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow is what these tests are about


@EACH_LOW
@pytest.mark.parametrize(
    ("op", "compute"),
    [("Sqrt", np.sqrt), ("Relu", lambda x: np.where(x < 0, np.float32(0), x)), ("Neg", np.negative), ("Abs", np.abs),
     ("Reciprocal", lambda x: np.float32(1) / x), ("Floor", np.floor), ("Ceil", np.ceil)],
)  # fmt: skip
def test_unary_operators_round_every_number_as_numpy_does(low: str, op: str, compute: np.ufunc) -> None:
    model = read(f"g ({low}[N] x) => ({low}[N] y) {{ y = {op}(x) }}")
    assert_same_bits(judge(model, x=ALL[low]), rounded(compute(ALL[low]), low))


@EACH_LOW
@pytest.mark.parametrize(
    ("op", "compute"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]
)
def test_binary_operators_round_as_numpy_does(low: str, op: str, compute: np.ufunc) -> None:
    generator = np.random.default_rng(11)
    near = rounded(generator.standard_normal((2, 50_000)) * 4, low)  # random bits alone are seldom of like size
    a, b = (np.concatenate([generator.permutation(ALL[low]), near[side]]) for side in (0, 1))
    model = read(f"g ({low}[N] a, {low}[N] b) => ({low}[N] y) {{ y = {op}(a, b) }}")
    assert_same_bits(judge(model, a=a, b=b), rounded(compute(a, b), low))


@EACH_LOW
@pytest.mark.parametrize("engine", list(Engine))
def test_every_operator_of_a_chain_rounds_in_both_engines(low: str, engine: Engine) -> None:
    model = read(f"g ({low}[N] x) => ({low}[N] y) {{ a = Mul(x, x)  b = Add(a, x)  c = Sqrt(b)  y = Sub(c, x) }}")
    x = rounded(np.random.default_rng(12).standard_normal(20_000) * 8, low)
    root = rounded(np.sqrt(rounded(rounded(x * x, low) + x, low)), low)
    expected = rounded(root - x, low)
    assert not np.array_equal(expected, rounded(np.sqrt(x * x + x) - x, low), equal_nan=True)
    assert_same_bits(judge(model, engine, x=x), expected)


@pytest.mark.parametrize(
    ("low", "given", "wanted"),
    [("float16", 65519.0, 65504.0), ("float16", 65520.0, np.inf), ("float16", -65520.0, -np.inf),
     ("float16", 2049.0, 2048.0), ("float16", 2051.0, 2052.0), ("float16", 2.0**-25, 0.0),
     ("float16", 1.5 * 2.0**-24, 2.0**-23), ("float16", -(2.0**-24), -(2.0**-24)), ("float16", np.nan, np.nan),
     ("bfloat16", 65520.0, 65536.0), ("bfloat16", 257.0, 256.0), ("bfloat16", 259.0, 260.0),
     ("bfloat16", 3.4e38, np.inf), ("bfloat16", 2.0**-133, 2.0**-133), ("bfloat16", 2.0**-134, 0.0)],
)  # fmt: skip
def test_casts_and_feeds_round_to_nearest_even(low: str, given: float, wanted: float) -> None:
    cast = f"g (float[1] x) => ({low}[1] y) {{ y = Cast<to={ELEMENT[low]}>(x) }}"
    for text in (cast, f"g ({low}[1] x) => ({low}[1] y) {{ y = Identity(x) }}"):
        assert_same_bits(judge(read(text), x=np.float32([given])), np.float32([wanted]))


def test_cast_chains_keep_every_step() -> None:
    model = read("""g (float[N] x) => (float[N] y, bfloat16[N] z) {
        a = Cast<to=10>(x)  b = Cast<to=1>(a)  c = Cast<to=16>(b)  d = Cast<to=10>(c)  y = Cast<to=1>(d)
        z = CastLike(a, c) }""")
    x = np.float32([1 + 2.0**-8 + 2.0**-12, 1e5, 1e-9, 1 / 3, np.nan, -7e-8])
    results = emulated_session(model, Engine.ONNXRUNTIME).run({"x": x})
    brain = rounded(rounded(x, "float16"), "bfloat16")
    assert_same_bits(results["y"], rounded(brain, "float16"))
    assert_same_bits(results["z"], brain)
    assert brain[0] != rounded(x, "bfloat16")[0]  # the number for which the order of roundings shows


def test_onnxruntime_keeps_the_casts_of_a_twin() -> None:
    check_rounding_survives.cache_clear()
    check_rounding_survives()


def test_fp16_layernorm_overflows_in_the_judge_but_not_in_the_native_runtime() -> None:
    model = read("""g (float16[N,64] x) => (float16[N,64] y) <int64[1] axes = {-1}> {
        mean = ReduceMean(x, axes)  d = Sub(x, mean)  s = Mul(d, d)
        v = ReduceMean(s, axes)  r = Sqrt(v)  y = Div(d, r) }""")
    x = (np.random.default_rng(13).choice([-1, 1], (8, 64)) * np.linspace(600, 1400, 64)).astype(np.float16)
    d = x.astype(np.float64) - x.astype(np.float64).mean(-1, keepdims=True)
    truth = d / np.sqrt((d * d).mean(-1, keepdims=True))
    assert np.array_equal(judge(model, x=x), np.zeros((8, 64)))  # 600 squared is inf, and finite / inf is 0
    native = native_session(model).run({"x": x})["y"]
    assert native.dtype == np.float16
    # k = 2: mean, difference, deviation and quotient may each be rounded to FP16, by half of its eps.
    np.testing.assert_allclose(native, truth, rtol=2 * 2.0**-10, atol=0)


@EACH_LOW
def test_low_inputs_and_outputs_keep_names_and_shapes_and_become_fp32(low: str) -> None:
    model = read(f"g ({low}[N,2] x, int64 k) => ({low}[N,2] y, {low}[N,2] x2) {{ y = Mul(x, x)  x2 = Identity(x) }}")
    before = model.SerializeToString()
    result = twin(model)
    assert model.SerializeToString() == before
    onnx.checker.check_model(result, full_check=True)
    wide = read("g (float[N,2] x, int64 k) => (float[N,2] y, float[N,2] x2) { y = Mul(x, x)  x2 = Identity(x) }")
    assert (list(result.graph.input), list(result.graph.output)) == (list(wide.graph.input), list(wide.graph.output))
    x = np.float32([[1.0004, 1.003]])  # their squares tell whether they were rounded first
    for judged in (judge(model, x=x, k=np.int64(1)), native_session(result).run({"x": x, "k": 1})["y"]):
        assert_same_bits(judged, rounded(rounded(x, low) ** 2, low))
    assert native_session(model).run({"x": x, "k": 1})["y"].dtype == LOW[low]


@EACH_LOW
def test_branches_of_if_round_values_captured_from_outside(low: str) -> None:
    model = read(f"""g (bool c, {low}[N] x) => ({low}[N] y) {{ s = Mul(x, x)  y = If(c) <
        then_branch = t () => ({low}[N] a) {{ a = Add(s, x) }},
        else_branch = e () => ({low}[N] b) {{ i = Div(s, x)  b = Sub(i, x) }}> }}""")
    x = rounded(np.random.default_rng(14).standard_normal(1000) + 3, low)
    square = rounded(x * x, low)
    assert_same_bits(judge(model, c=True, x=x), rounded(square + x, low))
    assert_same_bits(judge(model, c=False, x=x), rounded(rounded(square / x, low) - x, low))


@pytest.mark.parametrize(("low", "limit"), [("float16", 2048.0), ("bfloat16", 256.0)])
def test_carried_state_of_loop_and_scan_rounds_in_every_round(low: str, limit: float) -> None:
    loop = read(f"""g (int64 n, bool c, {low}[1] x, {low}[1] one) => ({low}[1] y, {low}[K,1] all) {{
        y, all = Loop(n, c, x) <body = b (int64 i, bool ci, {low}[1] s) => (bool co, {low}[1] t, {low}[1] u)
            {{ co = Identity(ci)  t = Add(s, one)  u = Identity(t) }}> }}""")
    scan = read(f"""g ({low}[1] x, {low}[K,1] ones) => ({low}[1] y, {low}[K,1] all) {{
        y, all = Scan<num_scan_inputs=1, body = b ({low}[1] s, {low}[1] e) => ({low}[1] t, {low}[1] u)
            {{ t = Add(s, e)  u = Identity(t) }}>(x, ones) }}""")
    for formal in (loop.graph.node[0].attribute[0].g.input[2], scan.graph.node[0].attribute[1].g.input[0]):
        formal.ClearField("type")  # bodies may leave types to their node
    start = np.float32([limit - 2])
    feeds = {"n": np.int64(5), "c": np.bool_(True), "one": np.float32([1]), "ones": np.ones((5, 1), np.float32)}
    for model in (loop, scan):  # FP32 state would end at limit + 3
        scope = value_types(model)
        assert {scope.types["y"], scope.types["all"], scope.bodies[0, "body"].types["s"]} == {f"tensor({low})"}
        wanted = {port.name: feeds.get(port.name, start) for port in model.graph.input}
        results = emulated_session(model, Engine.ONNXRUNTIME).run(wanted)
        assert results["y"].tolist() == [limit]
        assert results["all"].ravel().tolist() == [limit - 1, *[limit] * 4]


@EACH_LOW
def test_sequences_hold_rounded_tensors(low: str) -> None:
    model = read(f"""g (seq({low}[N]) x) => (seq({low}[N]) y) <int64 zero = {{0}}> {{
        a = SequenceAt(x, zero)  b = Mul(a, a)  s = SequenceConstruct(a, b)  c = SequenceAt(s, zero)  d = Add(c, b)
        m = SequenceMap(s) <body = f ({low}[N] e) => ({low}[N] o) {{ o = Add(e, e) }}>  y = SequenceInsert(m, d) }}""")
    assert value_types(model).types["s"] == f"seq(tensor({low}))"
    fed = np.float32([1.001, 300.7])
    a = rounded(fed, low)
    b = rounded(a * a, low)
    results = emulated_session(model, Engine.ONNXRUNTIME).run({"x": [fed]})["y"]
    for result, wanted in zip(results, [a + a, b + b, a + b], strict=True):
        assert_same_bits(result, rounded(wanted, low))


@EACH_LOW
def test_functions_round_inside_and_are_inlined(low: str) -> None:
    model = read(f"""g ({low}[N] x) => ({low}[N] y) {{ y = own.Outer<k: float = 3.0>(x) }}
        <domain: "own", opset_import: ["": 21, "own": 1]> Outer <k>(x) => (y)
            {{ c = Constant<value_float: float = @k>()  d = CastLike(c, x)  q = own.Inner(x, d)  y = Mul(q, d) }}
        <domain: "own", opset_import: ["": 21]> Inner (a, b) => (q) {{ q = Div(a, b) }}""")
    x = rounded(np.random.default_rng(15).standard_normal(1000), low)
    assert_same_bits(judge(model, x=x), rounded(rounded(x / 3, low) * 3, low))


@EACH_LOW
def test_low_constants_keep_their_values_in_every_form(low: str) -> None:
    values = np.array([1.1, 3e4, 6e-8, -0.3]).astype(LOW[low])
    raw, first = numpy_helper.from_array(values, "raw"), numpy_helper.from_array(values[:1])
    numbers = helper.make_tensor("numbers", ELEMENT[low], [4], values.astype(np.float32))
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(values, ""), numpy_helper.from_array(np.arange(4)), [4])
    model = read(f"""g ({low}[4] x, {low}[4] raw) => ({low}[4] y_raw, {low}[4] y_numbers, {low}[4] y_value,
        {low}[4] y_sparse, {low}[4] y_filled) <int64[1] four = {{4}}> {{
        y_raw = Add(raw, x)  y_numbers = Add(numbers, x)  y_value = Add(value, x)
        y_sparse = Add(sparse, x)  y_filled = Add(filled, x) }}""")
    model.graph.initializer.extend([raw, numbers])
    model.graph.node.insert(0, helper.make_node("Constant", [], ["value"], value=raw))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["sparse"], sparse_value=sparse))
    model.graph.node.insert(0, helper.make_node("ConstantOfShape", ["four"], ["filled"], value=first))
    x = rounded([5.0, 7e3, 0.0, 900.0], low)
    wide = values.astype(np.float32)
    session = emulated_session(model, Engine.ONNXRUNTIME)
    for name, result in session.run({"x": x}).items():
        assert_same_bits(result, rounded((wide[:1] if name == "y_filled" else wide) + x, low))
    replaced = np.float32([1.23456] * 4)  # an initializer that is also an input is only a default
    assert_same_bits(session.run({"x": x, "raw": replaced})["y_raw"], rounded(rounded(replaced, low) + x, low))


def test_bits_of_low_values_are_read_from_their_low_type() -> None:
    model = read("g (float16[N] x) => (int16[N] y) { a = Add(x, x)  y = BitCast<to=5>(a) }", opset=26)
    x = np.float32([0.5, -1.0, 40000.0])
    assert judge(model, engine=None, x=x).tolist() == np.float16([1, -2, np.inf]).view(np.int16).tolist()


def test_reference_steps_in_where_onnxruntime_has_no_kernel() -> None:
    model = read("""g (float r, int64 t, float16[1] x, float16[1] d, float16[1] v) => (float16[1] y, float16[1] w) {
        y, w = ai.onnx.preview.training.Momentum<alpha=0.5, beta=1.0, mode="standard", norm_coefficient=0.0>(
            r, t, x, d, v) }""")
    feeds = {"r": 0.5, "t": 1, "x": np.float32([1]), "d": np.float32([2.0**-10]), "v": np.float32([4])}
    session = emulated_session(model)
    assert session.engine is Engine.REFERENCE
    assert session.fallback and "\n" not in session.fallback
    # w = 2 + 2**-10 is a tie; y = 1 - 0.5 * (2 + 2**-10), because inside one operator nothing rounds.
    assert session.run(feeds) == {"y": np.float32([-(2.0**-11)]), "w": np.float32([2])}
    with pytest.raises(ContractError, match=r"^the model does not load in onnxruntime: "):
        emulated_session(model, Engine.ONNXRUNTIME)


def test_model_that_ran_does_not_fall_back_for_feeds_that_fail() -> None:
    """What other feeds fail with is theirs: the reference evaluator would hold the whole model to fail too."""
    session = native_session(read("g (float[N] x, int64[1] to) => (float[M] y) { y = Expand(x, to) }"))
    session.run({"x": np.ones(1, np.float32), "to": np.array([2])})
    with pytest.raises(ContractError, match=r"^the model does not run in onnxruntime: "):
        session.run({"x": np.ones(3, np.float32), "to": np.array([2])})
    assert session.engine is Engine.ONNXRUNTIME
