"""What inputs are taken to hold, in the words that are printed with the plan, and the numbers behind them."""

import onnx
import onnx.parser
import pytest

from mezzo.analysis.estimates import estimate
from mezzo.analysis.estimates.inputs import Assumption
from mezzo.analysis.estimates.moments import INTEGER, POSITIVE, TOUCHING, UNIT
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_CONSTANTS = (
    "int64[1] last = {-1}, float one = {1}, float two = {2}, float zero = {0}, float lots = {10000}, "
    "float less = {-10000}, float few = {999}, float fewer = {-999}, float eps = {1e-6}, float much = {0.1}, "
    "float pixels = {255}, float mean = {127}, float std = {58}, float forty = {40}, float millions = {2000000}, "
    "float[4] freqs = {1, 0.1, 0.01, 0.001}, float[2] pair = {1, 0.5}, float[1,4] row = {1, 0.1, 0.01, 0.001}, "
    "float[8] gain = {1, 1, 1, 1, 1, 1, 1, 1}, float[8] bias = {0, 0, 0, 0, 0, 0, 0, 0}, "
    "float[8] middle = {500, 500, 500, 500, 500, 500, 500, 500}, "
    "float[8] var = {100, 100, 100, 100, 100, 100, 100, 100}, "
    "float[8] below = {-500, -500, -500, -500, -500, -500, -500, -500}, "
    "float[8] beside = {20, 20, 20, 20, 20, 20, 20, 20}, int64[2] whole = {3, 4}"
)
_UNIT = "unit scale", 0.0, 1.0, -4.0, 4.0
_MASK = "reads as a mask of 0 and 1", 0.5, 0.5, 0.0, 1.0
_WHOLE = "whole numbers", 5e4, 2.5e4, 0.0, 1e5
_PROBABILITY = "reads as a probability", 0.3, 0.3, 0.0, 1.0
_POSITIVE = "positive numbers of unit scale", 0.8, 0.6, 0.0, 4.0
_ANGLE = "positions or time steps, since a sine reads it", 5e3, 1e4 / 3.5, 0.0, 1e4
_LOGS = "l = Log(u) n = Neg(l)"


def _made(mean: float, std: float) -> tuple[str, float, float, float, float]:
    return "makes unit scale of", mean, std, mean - 4.0 * std, mean + 4.0 * std


def assumed(body: str, inputs: str, name: str, **given: tuple[float, float]) -> Assumption:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({inputs}) => (float y) <{_CONSTANTS}> {{ {body} }}'
    )
    graph = open_model(model).read(DType.FLOAT16).graph
    found = estimate(graph, rows_of(graph), FORMATS[DType.FLOAT16], given)
    return next(entry for entry in found.assumptions if entry.name == name)


# Graphs that read `x` or `m`, and what that one is taken to hold.
_DATA, _IDS, _TIME = "float[2,8,4] x", "int64[2,8] m, float[2,8] d", "float[8,1] x"
CASES = (
    ("y = Relu(x)", _DATA, _UNIT),
    ("b = Greater(x, zero) y = Where(m, x, x)", "float[4] x, bool[4] m", ("true or false", *_MASK[1:])),
    ("y = Gather(d, m)", _IDS, _WHOLE),
    # Masks: places are hidden with them.
    ("f = Cast<to = 1>(m) n = Sub(one, f) y = Add(d, n)", _IDS, _MASK),
    ("f = Cast<to = 1>(m) y = Mul(d, f)", _IDS, _MASK),
    ("f = Cast<to = 1>(m) y = Mul(f, d)", _IDS, _MASK),
    ("f = Cast<to = 1>(m) y = Mul(f, two)", _IDS, _WHOLE),
    ("s = ReduceSum(m, last) f = Cast<to = 1>(s) y = Add(f, d)", _IDS, _MASK),
    ("s = CumSum(m, last) f = Cast<to = 1>(s) y = Add(f, d)", _IDS, _MASK),
    ("n = Sub(one, x) k = Mul(n, less) y = Add(k, k)", _DATA, _MASK),
    ("n = Sub(one, x) k = Mul(n, lots) y = Sub(k, one)", _DATA, _MASK),
    ("n = Sub(one, x) k = Mul(n, few) y = Sub(k, one)", _DATA, _PROBABILITY),
    ("n = Sub(two, x) y = Relu(n)", _DATA, _UNIT),
    ("n = Sub(x, one) y = Relu(n)", _DATA, _UNIT),
    ("t = Unsqueeze(x, last) y = Mul(t, less)", _DATA, _MASK),
    ("y = Mul(less, x)", _DATA, _MASK),
    ("y = Mul(x, fewer)", _DATA, _UNIT),
    ("y = Mul(x, lots)", _DATA, _UNIT),
    ("a = Neg(lots) y = Mul(x, a)", _DATA, _MASK),
    ("a = Mul(few, fewer) y = Mul(x, a)", _DATA, _MASK),
    ("a = Sub(zero, lots) y = Mul(x, a)", _DATA, _MASK),
    ("a = Add(less, one) y = Mul(x, a)", _DATA, _MASK),
    ("a = Div(fewer, much) y = Mul(x, a)", _DATA, _MASK),
    ("a = Reciprocal(eps) b = Neg(a) c = Identity(b) y = Mul(x, c)", _DATA, _MASK),
    # Probabilities: taken off one, or clipped to what lies between.
    ("n = Sub(one, x) y = Log(n)", _DATA, _PROBABILITY),
    ("c = Clip(x, eps, two) y = Neg(c)", _DATA, _UNIT),
    ("c = Clip(x, zero, much) y = Neg(c)", _DATA, _UNIT),
    (_LOGS.replace("u", "x") + " y = Log(n)", _DATA, _PROBABILITY),
    (_LOGS.replace("u", "x") + " a = Add(n, eps) y = Log(a)", _DATA, _PROBABILITY),
    (_LOGS.replace("u", "x") + " a = Max(n, eps) y = Log(a)", _DATA, _PROBABILITY),
    (_LOGS.replace("u", "x") + " a = Clip(n, eps) y = Log(a)", _DATA, _PROBABILITY),
    ("u = Add(x, eps) " + _LOGS + " y = Log(n)", _DATA, _PROBABILITY),
    ("l = Log(x) y = Log(l)", _DATA, _POSITIVE),
    (_LOGS.replace("u", "x") + " y = Exp(n)", _DATA, _POSITIVE),
    (_LOGS.replace("u", "x") + " a = Mul(n, two) y = Log(a)", _DATA, _POSITIVE),
    ("u = Mul(x, two) " + _LOGS + " y = Log(n)", _DATA, _UNIT),
    ("l = Log(x) n = Neg(l) y = Log(n) z = Exp(l)", _DATA, _POSITIVE),
    # What a root or a logarithm reads is never below zero.
    ("y = Sqrt(x)", _DATA, _POSITIVE),
    ("y = Log(x)", _DATA, _POSITIVE),
    ("a = Add(x, eps) y = Log(a)", _DATA, _POSITIVE),
    ("a = Max(x, eps) y = Sqrt(a)", _DATA, _POSITIVE),
    ("a = Add(x, zero) y = Sqrt(a)", _DATA, _UNIT),
    ("a = Add(x, much) y = Sqrt(a)", _DATA, _UNIT),
    ("a = Add(x, eps) y = Exp(a)", _DATA, _UNIT),
    ("a = Mul(x, eps) y = Sqrt(a)", _DATA, _UNIT),
    # Positions and time steps: frequencies, then a sine.
    ("a = Mul(x, freqs) y = Sin(a)", _TIME, _ANGLE),
    ("a = Mul(freqs, x) y = Cos(a)", _TIME, _ANGLE),
    ("a = Div(x, freqs) y = Sin(a)", _TIME, _ANGLE),
    ("a = MatMul(x, row) y = Sin(a)", _TIME, _ANGLE),
    ('a = Einsum<equation = "ij,j->ij">(x, freqs) y = Sin(a)', _TIME, _ANGLE),
    ("a = Mul(x, freqs) b = Concat<axis = 0>(a, a) y = Sin(b)", _TIME, _ANGLE),
    ("a = Mul(x, freqs) b = Mul(a, two) y = Sin(b)", _TIME, _ANGLE),
    ("t = Unsqueeze(x, last) a = Mul(t, freqs) b = Transpose(a) y = Sin(b)", _TIME, _ANGLE),
    ("y = Sin(x)", _TIME, _UNIT),
    ("a = Mul(x, two) y = Sin(a)", _TIME, _UNIT),
    ("a = Mul(x, pair) y = Sin(a)", _TIME, _UNIT),
    ("a = Add(x, freqs) y = Sin(a)", _TIME, _UNIT),
    ("a = Mul(x, freqs) y = Relu(a)", _TIME, _UNIT),
    ("a = Mul(x, freqs) y = Sin(a)", "float[2,8,4] x", _UNIT),
    ("a = Mul(x, freqs) y = Sin(a)", "float[1,8,1,4] x", _ANGLE),
    # Data that the first operators bring to unit scale.
    ("y = Div(x, pixels)", _DATA, _made(0.0, 255.0)),
    ("y = Div(x, forty)", _DATA, _UNIT),
    ("y = Div(x, millions)", _DATA, _UNIT),
    ("y = Div(one, x)", _DATA, _UNIT),
    ("a = Div(one, pixels) y = Mul(x, a)", _DATA, _made(0.0, 255.0)),
    ("a = Sub(x, mean) y = Div(a, std)", _DATA, _made(127.0, 58.0)),
    ("a = Sub(x, mean) b = Div(a, std) y = Relu(b)", _DATA, _made(127.0, 58.0)),
    ("y = Sub(x, mean)", _DATA, _made(127.0, 1.0)),
    ("y = Add(x, fewer)", _DATA, _made(999.0, 1.0)),
    ("y = Add(x, few)", _DATA, _UNIT),
    ("y = Sub(mean, x)", _DATA, _made(127.0, 1.0)),
    ("a = Neg(x) y = Add(a, mean)", _DATA, _made(127.0, 1.0)),
    ("y = Sub(x, two)", _DATA, _UNIT),
    ("a = Sub(x, mean) y = Div(a, forty)", _DATA, _made(127.0, 40.0)),
    ("a = Sub(x, mean) y = Mul(a, eps)", _DATA, _UNIT),
    ("a = Div(x, pixels) b = Sub(a, one) c = Mul(b, two) y = Add(c, one)", _DATA, _made(127.5, 127.5)),
    ("a = Sub(x, mean) y = Mul(a, zero)", _DATA, _made(127.0, 1.0)),
    ("a = Div(x, pixels) y = Neg(x)", _DATA, _UNIT),
    ("y = BatchNormalization(x, gain, bias, middle, var)", _DATA, _made(500.0, 10.0)),
    ("y = BatchNormalization(x, gain, bias, below, var)", _DATA, _made(-500.0, 10.0)),
    ("y = BatchNormalization(x, gain, bias, beside, var)", _DATA, _UNIT),
    ("a = BatchNormalization(x, gain, bias, middle, var) y = Div(a, pixels)", _DATA, _made(500.0, 10.0)),
)


@pytest.mark.parametrize(("body", "inputs", "wanted"), CASES, ids=[body for body, _, _ in CASES])
def test_an_input_is_taken_for_what_its_readers_say(
    body: str, inputs: str, wanted: tuple[str, float, float, float, float]
) -> None:
    found = assumed(body, inputs, "m" if " m" in inputs else "x")
    assert found.because.endswith(wanted[0])
    assert found.estimate[:4] == pytest.approx(wanted[1:], rel=1e-5)  # constants are FP32


@pytest.mark.parametrize(
    ("case", "flags"),
    [
        (0, 0), (1, INTEGER | POSITIVE | UNIT), (2, INTEGER | POSITIVE), (3, INTEGER | POSITIVE | UNIT),
    ],
)  # fmt: skip
def test_an_assumption_says_of_what_kind_the_numbers_are(case: int, flags: int) -> None:
    body, inputs, _ = CASES[case]
    found = assumed(body, inputs, "m" if " m" in inputs else "x")
    assert found.estimate.flags & (INTEGER | POSITIVE | UNIT) == flags


def test_what_a_logarithm_reads_may_be_silence_and_what_a_root_reads_is_not() -> None:
    assert assumed("y = Log(x)", _DATA, "x").estimate.flags & TOUCHING
    assert not assumed("y = Sqrt(x)", _DATA, "x").estimate.flags & TOUCHING


@pytest.mark.parametrize(
    ("ends", "flags"),
    [((0.0, 1.0), POSITIVE | UNIT), ((0.0, 2.0), POSITIVE), ((-1.0, 1.0), 0), ((0.5, 0.5), POSITIVE | UNIT)],
)
def test_what_is_asked_for_is_spread_evenly_between_its_ends(ends: tuple[float, float], flags: int) -> None:
    low, high = ends
    found = assumed("y = Relu(x)", _DATA, "x", x=ends)
    assert found.because == "as asked"
    assert found.estimate[:4] == pytest.approx(((low + high) / 2, (high - low) / 12**0.5, low, high))
    assert found.estimate.flags & (POSITIVE | UNIT | INTEGER) == flags
    whole = assumed("y = Gather(d, m)", _IDS, "m", m=ends)
    assert whole.estimate.flags & (POSITIVE | UNIT | INTEGER) == flags | INTEGER
