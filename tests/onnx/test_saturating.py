"""GELU by tanh, in any spelling, over the whole range of a format: its cube may run low and pass the range."""

import math
from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest

import mezzo
from mezzo.formats.dtypes import FORMATS, DType

_NUMBERS = (
    "float c = {0.044715}, float s = {0.7978846}, float twice = {1.5957691}, float one = {1}, float half = {0.5}, "
    "float two = {2}, float three = {3}, float inverse = {1.2533141}, float minus = {-1.5957691}"
)
_ENDS = {
    "sum times half times x": "o = Add(t, one) a = Mul(o, half) y = Mul(a, v)",
    "half of x": "h = Mul(v, half) o = Add(one, t) y = Mul(h, o)",
    "half at the end": "o = Add(t, one) a = Mul(v, o) y = Mul(a, half)",
}
_ARGUMENTS = {
    "power": "p = Pow(v, three) q = Mul(p, c) r = Add(v, q) u = Mul(r, s) t = Tanh(u)",
    "two products": "p2 = Mul(v, v) p = Mul(p2, v) q = Mul(c, p) r = Add(q, v) u = Mul(s, r) t = Tanh(u)",
    "coefficient first": "a1 = Mul(v, c) a2 = Mul(a1, v) q = Mul(a2, v) r = Add(v, q) u = Mul(s, r) t = Tanh(u)",
    "factored out": "p = Mul(v, v) q = Mul(p, c) r = Add(one, q) f = Mul(v, s) u = Mul(f, r) t = Tanh(u)",
    "square factored out": "p = Pow(v, two) q = Mul(p, c) r = Add(one, q) f = Mul(r, s) u = Mul(f, v) t = Tanh(u)",
    "quotient": "p = Pow(v, three) q = Mul(p, c) r = Add(v, q) u = Div(r, inverse) t = Tanh(u)",
}
_SIGMOID = "p = Pow(v, three) q = Mul(c, p) r = Add(v, q) u = Mul(r, twice) t = Sigmoid(u) y = Mul(v, t)"
_SPELLINGS = {f"{a}, {e}": f"{x} {y}" for a, x in _ARGUMENTS.items() for e, y in _ENDS.items()} | {"sigmoid": _SIGMOID}


def _model(body: str) -> onnx.ModelProto:
    head = '<ir_version: 10, opset_import: ["" : 18]> g (float[N] x) => (float[N] y)'
    return onnx.parser.parse_model(f"{head} <{_NUMBERS}> {{ v = Identity(x) {body} }}")


def _gelu(x: np.ndarray) -> np.ndarray:
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(u)))


def _precisions(model: onnx.ModelProto, **options: str) -> Mapping[str, DType | None]:
    plan = mezzo.plan(model, io="low", **options)  # type: ignore[arg-type]  # names of options
    return {node.op: node.precision.compute for node in plan.nodes if node.kind == "op"}


@pytest.mark.parametrize("to", ["fp16", "bf16"])
@pytest.mark.parametrize("spelling", _SPELLINGS.values(), ids=_SPELLINGS)
def test_gelu_by_tanh_is_right_over_the_whole_range_of_a_format(spelling: str, to: str) -> None:
    low = FORMATS[DType.FLOAT16 if to == "fp16" else DType.BFLOAT16]
    model = _model(spelling)
    assert set(_precisions(model, to=to).values()) == {low.dtype}
    # Up to where half of the largest number is doubled again, and down to where a cube is nothing.
    sizes = np.concatenate([np.geomspace(1e-7, low.max_finite / 2, 3000), np.linspace(0, 60, 3000)])
    converted = mezzo.convert(model, to=to, io="low").model
    held = onnx.helper.tensor_dtype_to_np_dtype(converted.graph.input[0].type.tensor_type.elem_type)
    x = np.concatenate([sizes, -sizes]).astype(np.float32).astype(held)
    y = np.asarray(mezzo.emulate(converted, {"x": x})["y"]).astype(np.float64)
    # The argument's error and that of 1 + tanh, which is one of its ends, count for one rounding of x at most each.
    tolerated = 2 * low.eps * np.abs(x.astype(np.float64)) + 2 * low.smallest_subnormal
    assert np.isfinite(y).all()
    assert (np.abs(y - _gelu(x.astype(np.float64))) <= tolerated).all()


@pytest.mark.parametrize(
    "body",
    [
        "p = Pow(v, three) r = Sub(v, p) t = Tanh(r) y = Mul(t, v)",  # inf - inf
        "p = Pow(v, three) q = Mul(v, v) r = Add(p, q) t = Tanh(r) y = Mul(t, v)",  # of two parities: -inf + inf
        "p = Pow(v, three) q = Mul(p, minus) r = Add(v, q) t = Tanh(r) y = Mul(t, v)",  # of two signs
        "p = Pow(v, half) t = Tanh(p) y = Mul(t, v)",
        "p = Pow(v, three) t = Softsign(p) y = Mul(t, v)",  # inf / inf
        "p = Pow(v, three) t = Tanh(p) y = Mul(t, p)",  # read by others too
    ],
)
def test_a_power_that_might_cancel_or_is_read_elsewhere_stays_in_fp32(body: str) -> None:
    assert _precisions(_model(body), to="fp16")["Pow"] is DType.FLOAT32


@pytest.mark.parametrize("spelling", _SPELLINGS)
def test_data_past_the_range_of_a_power_keeps_nothing_in_fp32_that_runs_low_without(spelling: str) -> None:
    model = _model(_SPELLINGS[spelling])
    rng = np.random.default_rng(0)
    data = [{"x": (50 * rng.standard_normal(64)).astype(np.float32)} for _ in range(4)]  # their cubes pass 65504
    without = {node.name for node in mezzo.plan(model, io="low").nodes if node.precision.compute is DType.FLOAT16}
    made = mezzo.convert(model, io="low", data=data)
    assert made.measured is not None and made.measured.comparison is not None
    assert made.measured.comparison.verdict.is_same
    assert without <= {node.name for node in made.plan.nodes if node.precision.compute is DType.FLOAT16}
