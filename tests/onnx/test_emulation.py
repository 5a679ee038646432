"""Emulation against numpy and ml_dtypes in every bit, and runs of FP32 models under plans of any mix of formats."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import parser

import mezzo
from mezzo.api.emulate import emulate
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import HIGH, DType
from mezzo.formats.precision_line import uniform
from mezzo.io import planfile
from mezzo.ir.nodes import Kind
from mezzo.onnx.emulate.switch import OnnxEmulator
from mezzo.onnx.opening import open_model
from mezzo.onnx.run.emulation import check_fp8_survives, emulated_session
from mezzo.onnx.run.runtime import JUDGING
from mezzo.onnx.run.session import Engine, native_session

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
_NUMPY = {
    DType.FLOAT16: np.dtype(np.float16), DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.FLOAT8E4M3FN: np.dtype(ml_dtypes.float8_e4m3fn), DType.FLOAT8E5M2: np.dtype(ml_dtypes.float8_e5m2),
}  # fmt: skip
_EACH = pytest.mark.parametrize("dtype", list(_NUMPY), ids=str)


def _read(text: str, opset: int = 21) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]>\n{text}')


def _rounded(values: np.ndarray, dtype: DType) -> np.ndarray:
    return np.asarray(values).astype(_NUMPY[dtype]).astype(np.float32)


def _every_number(dtype: DType) -> np.ndarray:
    """Every number of the format, the ties between them, what lies beside the ties, and numbers far beyond."""
    bits = np.dtype(f"u{_NUMPY[dtype].itemsize}")
    every = np.arange(2 ** (8 * bits.itemsize), dtype=bits).view(_NUMPY[dtype]).astype(np.float32)
    numbers = np.unique(every[np.isfinite(every)]).astype(np.float64)
    ties = ((numbers[1:] + numbers[:-1]) / 2).astype(np.float32)
    edges = np.float32([464, 480, 496, 512, 57344, 61440, 65504, 65520, 65536, 3.4e38, 1e-45, np.inf])
    beside = [np.nextafter(a, np.float32(side)) for a in (ties, edges) for side in (-np.inf, np.inf)]
    return np.concatenate([every, ties, edges, -edges, *beside])


def _assert_same_bits(got: np.ndarray, expected: np.ndarray) -> None:
    is_nan = np.isnan(expected)
    assert np.array_equal(np.isnan(got), is_nan)
    differing = (got.view(np.uint32) != expected.view(np.uint32)) & ~is_nan
    assert not differing.any(), (got[differing][:5], expected[differing][:5])


def _run_low(model: onnx.ModelProto, dtype: DType, **feeds: np.ndarray) -> np.ndarray:
    opened = open_model(model)
    reading = opened.read(DType.FLOAT16)
    low = [n.id for n in reading.graph.nodes if n.kind is Kind.OP and n.signature.dtype is HIGH]
    emulator = OnnxEmulator(opened, reading, [dtype], settings=JUDGING)
    assert emulator.engine == Engine.ONNXRUNTIME.value
    result: np.ndarray = emulator.run(feeds, dict.fromkeys(low, dtype))["y"]
    return result


@_EACH
@pytest.mark.parametrize(
    ("op", "compute"),
    [("Identity", lambda x: x), ("Neg", np.negative), ("Sqrt", np.sqrt), ("Abs", np.abs), ("Floor", np.floor),
     ("Reciprocal", lambda x: np.float32(1) / x)],
)  # fmt: skip
def test_unary_operators_round_every_number_once(op: str, compute: np.ufunc, dtype: DType) -> None:
    x = _every_number(dtype)
    got = _run_low(_read(f"g (float[N] x) => (float[N] y) {{ y = {op}(x) }}"), dtype, x=x)
    _assert_same_bits(got, _rounded(compute(_rounded(x, dtype)), dtype))


@_EACH
@pytest.mark.parametrize(
    ("op", "compute"), [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)]
)
def test_binary_operators_round_operands_and_results(op: str, compute: np.ufunc, dtype: DType) -> None:
    generator = np.random.default_rng(51)
    every = _every_number(dtype)
    near = generator.standard_normal((2, 20_000)).astype(np.float32) * 4
    a, b = (np.concatenate([generator.permutation(every), near[side]]) for side in (0, 1))
    got = _run_low(_read(f"g (float[N] a, float[N] b) => (float[N] y) {{ y = {op}(a, b) }}"), dtype, a=a, b=b)
    _assert_same_bits(got, _rounded(compute(_rounded(a, dtype), _rounded(b, dtype)), dtype))


@pytest.mark.parametrize(
    ("dtype", "given", "wanted"),
    [(DType.FLOAT8E4M3FN, 464.0, 448.0), (DType.FLOAT8E4M3FN, 465.0, np.nan), (DType.FLOAT8E4M3FN, 490.0, np.nan),
     (DType.FLOAT8E4M3FN, -np.inf, np.nan), (DType.FLOAT8E4M3FN, 2.0**-10, 0.0), (DType.FLOAT8E4M3FN, -1e-9, -0.0),
     (DType.FLOAT8E5M2, 61439.0, 57344.0), (DType.FLOAT8E5M2, 61440.0, np.inf), (DType.FLOAT8E5M2, -65000.0, -np.inf),
     (DType.FLOAT8E5M2, 2.0**-17, 0.0), (DType.FLOAT8E5M2, 1.5 * 2.0**-16, 2.0**-15)],
)  # fmt: skip
def test_fp8_shows_overflow_and_rounds_ties_to_even(dtype: DType, given: float, wanted: float) -> None:
    x = np.float32([given])
    got = _run_low(_read("g (float[N] x) => (float[N] y) { y = Identity(x) }"), dtype, x=x)
    _assert_same_bits(got, np.float32([wanted]))
    element = {DType.FLOAT8E4M3FN: 17, DType.FLOAT8E5M2: 19}[dtype]
    typed = _read(f"g (float[N] x) => (float[N] y) {{ a = Cast<to={element}, saturate=0>(x)  y = Cast<to=1>(a) }}")
    _assert_same_bits(emulated_session(typed, Engine.ONNXRUNTIME).run({"x": x})["y"], np.float32([wanted]))


def test_fp8_self_test_passes_on_this_runtime() -> None:
    check_fp8_survives.cache_clear()
    check_fp8_survives()


@pytest.mark.parametrize(
    "nodes",
    ["a = Cast<to=17>(x)  b = Identity(a)  y = Cast<to=10>(b)",
     "a = Cast<to=19>(x)  b = Transpose(a)  c = Transpose(b)  y = Cast<to=10>(c)",
     "a = Cast<to=17>(x)  s = Shape(a)  b = Reshape(a, s)  y = Cast<to=10>(b)",
     "a = CastLike(x, k)  y = Cast<to=10>(a)",
     "a = QuantizeLinear(x, s, k)  y = DequantizeLinear(a, s, k)"],
)  # fmt: skip
def test_models_that_hold_fp8_are_emulated_as_onnxruntime_runs_them(nodes: str) -> None:
    """Casts to FP8, moves and Q/DQ with a power of two as scale round once each, so native FP16 is no different."""
    text = f"g (float16[N,4] x, float16 s, float8e4m3fn k) => (float16[N,4] y) {{ {nodes} }}"
    if " s = " in text:
        text = text.replace(", float16 s,", ",")
    model = _read(text)
    x = np.float16([[1, 0.3, -500, 448], [464, np.inf, -0.0, 1e-3]])
    feeds = {"x": x, "s": np.float16(0.5), "k": np.float32(0)}
    feeds = {port.name: feeds[port.name] for port in model.graph.input}
    got, native = (make(model, Engine.ONNXRUNTIME).run(feeds)["y"] for make in (emulated_session, native_session))
    assert (got.dtype, native.dtype) == (np.float32, np.float16)
    _assert_same_bits(got, native.astype(np.float32))


# -- plans ------------------------------------------------------------------------------------------------------------

_CHAIN = "g (float[N] x) => (float[N] y) { [a] a = Mul(x, x)  [b] b = Add(a, x)  [c] y = Sub(b, a) }"


def _with(plan: Plan, **formats: DType) -> Plan:
    lines = (n._replace(precision=uniform(formats[n.name])) if n.name in formats else n for n in plan.nodes)
    return plan.with_nodes(lines)


def test_a_plan_of_any_mix_is_emulated_and_survives_its_file(tmp_path: Path) -> None:
    model = _read(_CHAIN)
    plan = _with(mezzo.plan(model, policy="off"), a=DType.FLOAT8E4M3FN, b=DType.BFLOAT16, c=DType.FLOAT16)
    x = np.random.default_rng(52).standard_normal(500).astype(np.float32) * 8
    a = _rounded(_rounded(x, DType.FLOAT8E4M3FN) ** 2, DType.FLOAT8E4M3FN)
    b = _rounded(_rounded(a, DType.BFLOAT16) + _rounded(x, DType.BFLOAT16), DType.BFLOAT16)
    c = _rounded(_rounded(b, DType.FLOAT16) - _rounded(a, DType.FLOAT16), DType.FLOAT16)
    _assert_same_bits(emulate(model, {"x": x}, plan=plan)["y"], c)
    planfile.save_plan(plan, tmp_path / "plan.json")
    _assert_same_bits(emulate(model, {"x": x}, plan=tmp_path / "plan.json")["y"], c)
    with pytest.raises(
        InputError, match=r"^node 'a': the plan asks for f8e4m3fn; this model can be replayed in f32 and "
    ):
        mezzo.convert(model, plan=plan)


def test_without_a_plan_the_typed_model_runs_in_true_precision(tmp_path: Path) -> None:
    model = _read("g (float16[N] x) => (float16[N] y) { a = Mul(x, x)  y = Mul(a, x) }")
    onnx.save(model, tmp_path / "model.onnx")
    for source in (model, tmp_path / "model.onnx"):
        assert emulate(source, {"x": np.float16([300])})["y"] == np.inf


def test_sums_follow_the_plan_and_the_option() -> None:
    model = _read("g (float[1,4096] x, float[4096,1] w) => (float[1,1] y) { [m] y = MatMul(x, w) }")
    feeds = {"x": np.ones((1, 4096), np.float32), "w": np.ones((4096, 1), np.float32)}
    low = _with(mezzo.plan(model, policy="off"), m=DType.FLOAT16)
    assert emulate(model, feeds, plan=low)["y"] == 4096
    assert emulate(model, feeds, plan=low, accumulate="fp16", tile=1)["y"] == 2048
    assert emulate(model, feeds, plan=low, accumulate="bf16", tile=1)["y"] == 256
    lines = (n._replace(precision=n.precision._replace(accumulate=HIGH)) if n.name == "m" else n for n in low.nodes)
    assert emulate(model, feeds, plan=low.with_nodes(lines), accumulate="fp16", tile=1)["y"] == 4096


def test_a_plan_that_does_not_fit_says_what_does_not() -> None:
    model = _read(_CHAIN)
    plan = mezzo.plan(model, policy="off")
    other = plan.with_nodes([plan.nodes[0]._replace(name="gone")])
    with pytest.raises(
        InputError, match=r"^the plan has a line for 'gone', which the model has not; take the line out$"
    ):
        emulate(model, {"x": np.float32([1])}, plan=other)
    with pytest.raises(
        InputError, match=r"^node 'a': the plan asks for i8; an emulation knows bf16, f16, f32, f8e4m3fn"
    ):
        emulate(model, {"x": np.float32([1])}, plan=_with(plan, a=DType.INT8))
    with pytest.raises(InputError, match=r"^feeds: found nothing for 'x'"):
        emulate(model, {}, plan=plan)
    stuck = _read("g (float[2,2] x) => (float[2,2] y) { h, m = Dropout(x) [u] y = Mul(h, m) }", 9)
    with pytest.raises(
        ContractError, match=r"^the model has opset 9 and emulating f8e5m2 takes opset 19, but node 'h' "
    ):
        emulate(stuck, {"x": np.ones((2, 2))}, plan=_with(mezzo.plan(stuck, policy="off"), u=DType.FLOAT8E5M2))
