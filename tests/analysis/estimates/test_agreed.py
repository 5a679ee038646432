"""Values of which the estimate is exact, or agreed: whole numbers, casts, masks, shapes, constants, and the unknown."""

import math

import onnx.parser
import pytest
from reading import read

from mezzo.analysis.estimates import estimate
from mezzo.analysis.estimates.moments import HARD, INTEGER, LOST, MASKED, POSITIVE, RARE, TOUCHING, UNIT
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.onnx.opening import open_model
from mezzo.planner.planner import rows_of

_BYTES = 48.0  # spread of eight-bit numbers that hold data
_WHOLE = INTEGER | POSITIVE
_TRUTH = INTEGER | POSITIVE | UNIT
_CUT_OFF = 1 / math.sqrt(12)  # spread of what rounding to whole numbers takes off
_SPREAD = 4 / math.sqrt(12)  # of numbers spread evenly between -1 and 3
_NAMES = {
    INTEGER: "whole", MASKED: "masked", LOST: "lost", POSITIVE: "positive", UNIT: "unit",
    TOUCHING: "touching", HARD: "hard", RARE: "rare",
}  # fmt: skip
_X, _I = "float[4,4] x", "int64[4,4] i"

# Body, inputs, (mean, spread, low, high), flags; x lies between -1 and 3, p between 0 and 2, q between 0 and 1, i
# between 0 and 9, b is true or false.
EXACT = (
    ("y = Identity(x)", _X, (1, _SPREAD, -1, 3), 0),
    ("y = Neg(x)", _X, (-1, _SPREAD, -3, 1), 0),
    ("y = Mul(x, minus)", _X, (-1, _SPREAD, -3, 1), 0),
    ("y = Mul(x, half)", _X, (0.5, _SPREAD / 2, -0.5, 1.5), 0),
    ("y = Div(x, two)", _X, (0.5, _SPREAD / 2, -0.5, 1.5), 0),
    ("y = Mul(p, two)", "float[4] p", (2, 4 / math.sqrt(12), 0, 4), POSITIVE),
    ("y = Mul(p, minus)", "float[4] p", (-1, 2 / math.sqrt(12), -2, 0), 0),
    ("y = Sub(x, x)", _X, (0, 0, 0, 0), 0),
    ("y = Div(x, x)", _X, (1, 0, 1, 1), 0),
    ("y = Add(x, x)", _X, (2, 2 * _SPREAD, -2, 6), 0),
    ("y = Sub(half, q)", "float[4] q", (0, 1 / math.sqrt(12), -0.5, 0.5), 0),
    ("y = Add(p, half)", "float[4] p", (1.5, 2 / math.sqrt(12), 0.5, 2.5), POSITIVE),
    ("y = Abs(p)", "float[4] p", (1, 2 / math.sqrt(12), 0, 2), POSITIVE),
    ("s = Sigmoid(x) t = Mul(s, minus) y = Add(one, t)", _X, None, POSITIVE | UNIT | HARD),
    ("s = Sigmoid(x) y = Sub(one, s)", _X, None, POSITIVE | UNIT | HARD),
    ("s = Tanh(x) y = Add(s, one)", _X, None, POSITIVE | HARD),
    ("s = Tanh(x) y = Sub(s, one)", _X, None, HARD),
    ("a = Relu(x) y = Mul(a, two)", _X, None, POSITIVE | TOUCHING),
    ("a = Relu(x) y = Mul(a, minus)", _X, None, 0),
    # Guards against zero: whoever wrote them expects that they are met.
    ("y = Max(p, eps)", "float[4] p", None, POSITIVE),
    ("a = Relu(x) y = Add(a, eps)", _X, None, POSITIVE),
    ("a = Mul(x, x) y = Add(a, eps)", _X, None, POSITIVE | RARE),
    ("a = Mul(x, x) y = Add(a, half)", _X, None, POSITIVE),
    # Truths and whole numbers.
    ("t = Greater(x, one) y = Cast<to = 1>(t)", _X, (0.5, 0.5, 0, 1), _TRUTH | HARD),
    ("t = Less(x, one) y = Cast<to = 1>(t)", _X, (0.5, 0.5, 0, 1), _TRUTH | HARD),
    ("t = Equal(x, one) n = Not(t) y = Cast<to = 1>(n)", _X, (0.5, 0.5, 0, 1), _TRUTH | HARD),
    ("y = Cast<to = 1>(b)", "bool[4] b", (0.5, 0.5, 0, 1), _TRUTH | HARD),
    ("t = Cast<to = 9>(x) y = Cast<to = 1>(t)", _X, (0.5, 0.5, 0, 1), _TRUTH),
    ("t = Cast<to = 7>(x) y = Cast<to = 1>(t)", _X, (1, _SPREAD, -1, 3), INTEGER),
    ("t = Cast<to = 2>(x) y = Cast<to = 1>(t)", _X, (1, _SPREAD, 0, 3), INTEGER),
    ("t = Cast<to = 11>(x) y = Cast<to = 1>(t)", _X, (1, _SPREAD, -1, 3), 0),
    ("y = Cast<to = 1>(i)", _I, (4.5, 9 / math.sqrt(12), 0, 9), _WHOLE),
    ("f = Cast<to = 1>(i) y = Mul(f, two)", _I, (9, 18 / math.sqrt(12), 0, 18), _WHOLE),
    ("f = Cast<to = 1>(i) y = Mul(f, half)", _I, (2.25, 4.5 / math.sqrt(12), 0, 4.5), POSITIVE),
    ("f = Cast<to = 1>(i) y = Add(f, one)", _I, (5.5, 9 / math.sqrt(12), 1, 10), _WHOLE),
    ("f = Cast<to = 1>(i) y = Sub(f, two)", _I, (2.5, 9 / math.sqrt(12), -2, 7), INTEGER),
    ("f = Cast<to = 1>(i) y = Add(f, half)", _I, (5, 9 / math.sqrt(12), 0.5, 9.5), POSITIVE),
    ("y = Floor(x)", _X, (0.5, math.hypot(_SPREAD, _CUT_OFF), -1, 3), INTEGER),
    ("y = Ceil(p)", "float[4] p", (1.5, math.hypot(2, 1) / math.sqrt(12), 0, 2), _WHOLE),
    ("f = Cast<to = 1>(i) y = ReduceMax(f, last)", _I, None, _WHOLE),
    ("f = Cast<to = 1>(i) y = ReduceMean(f, last)", _I, None, POSITIVE),
    ("f = Cast<to = 1>(b) y = ReduceSum(f, last)", "bool[3,16] b", (8, 2, 0, 16), _WHOLE),
    ("f = Cast<to = 1>(b) y = Mul(f, x)", "bool[4,4] b, float[4,4] x", None, TOUCHING),
    ("f = Cast<to = 1>(b) y = Mul(f, lots)", "bool[4,4] b", (0, 0, 0, 0), MASKED),
    ("f = Cast<to = 1>(b) y = Mul(f, minus)", "bool[4,4] b", (-0.5, 0.5, -1, 0), INTEGER | HARD),
    ("s = Sigmoid(x) y = Mul(s, lots)", _X, None, HARD),
    # Eight-bit numbers: data takes half of their range, so a sum of k products has the spread 48 * 48 * sqrt(k).
    ("a = MatMulInteger(k, m) y = Cast<to = 1>(a)", "uint8[4,64] k, int8[64,4] m",
     (0, _BYTES**2 * 8, -4 * _BYTES**2 * 8, 4 * _BYTES**2 * 8), INTEGER),
    ("a = MatMulInteger(k, m) y = Cast<to = 1>(a)", "uint8[4,1] k, int8[1,4] m", (0, _BYTES**2, -9216, 9216), INTEGER),
    ("y = DequantizeLinear(k, two)", "int8[4] k", (0, 96, -256, 254), 0),
    ("k = QuantizeLinear(x, two) y = DequantizeLinear(k, half)", _X, (0, 24, -64, 63.5), 0),
    # Positions, lengths, and what is made from nothing.
    ("t = Shape(x) y = Cast<to = 1>(t)", "float[4,10] x", (7, 3, 4, 10), _WHOLE),
    ("t = Shape(x) y = Cast<to = 1>(t)", "float[N,96] x", (2096, 2000, 96, 4096), _WHOLE),
    ("t = Size(x) y = Cast<to = 1>(t)", "float[4,10] x", (40, 0, 40, 40), _WHOLE),
    ("t = Size(x) y = Cast<to = 1>(t)", "float[A,B,C] x", (1e9, 0, 1e9, 1e9), _WHOLE),
    ("t = ArgMax<axis = 1>(x) y = Cast<to = 1>(t)", "float[4,10] x", (4.5, 3, 0, 9), _WHOLE),
    ("t = ArgMin<axis = 0>(x) y = Cast<to = 1>(t)", "float[4,10] x", (1.5, 1, 0, 3), _WHOLE),
    ("t = ArgMax(x) y = Cast<to = 1>(t)", "float[7,10] x", (3, 2, 0, 6), _WHOLE),
    ("t = NonZero(x) y = Cast<to = 1>(t)", "float[4,10] x", (4.5, 3, 0, 9), _WHOLE),
    ("t = NonZero(x) y = Cast<to = 1>(t)", "float[N] x", (2047.5, 1365, 0, 4095), _WHOLE),
    ("y = Range(zero, hundred, two)", "float[4,4] x", (50, 100 / math.sqrt(12), 0, 100), _WHOLE),
    ("y = Range(minus, hundred, two)", "float[4,4] x", (49.5, 101 / math.sqrt(12), -1, 100), INTEGER),
    ("y = Range(zero, hundred, half)", "float[4,4] x", (50, 100 / math.sqrt(12), 0, 100), POSITIVE),
    ("n = Shape(x) k = Squeeze(n) t = Range(start, k, ten) y = Cast<to = 1>(t)", "float[60] x",
     (25, math.sqrt(17.5 / 6) * 10, 0, 50), _WHOLE),
    ("y = RandomNormal<shape = [4], mean = 2.0, scale = 3.0>()", _X, (2, 3, -10, 14), 0),
    ("y = RandomNormal<shape = [4]>()", _X, (0, 1, -4, 4), 0),
    ("y = OneHot<axis = -1>(i, ten, mixed)", _I, (1, 2, -1, 3), INTEGER),
    # Constants, exactly.
    ("y = Identity(mixed)", _X, (1, 2, -1, 3), INTEGER),
    ("y = Identity(fractions)", _X, (1, 0.5, 0.5, 1.5), POSITIVE),
    ("y = Identity(small)", _X, (0.5, 0.5, 0, 1), _WHOLE),
    ("y = Identity(half)", _X, (0.5, 0, 0.5, 0.5), POSITIVE),
    ("y = Identity(masks)", _X, (0, 0, 0, 0), MASKED),
    ("y = Cast<to = 1>(whole)", _X, (2, math.sqrt(2 / 3), 1, 3), _WHOLE),
    ("y = Max(half, two)", _X, (2, 0, 2, 2), POSITIVE),
    ("y = Min(minus, two)", _X, (-1, 0, -1, -1), 0),
    ("y = Max(zero, minus)", _X, (0, 0, 0, 0), POSITIVE),
    ("y = Reciprocal(two)", _X, (0.5, 0, 0.5, 0.5), 0),
    ("y = Pow(two, minus)", _X, (0.5, 0, 0.5, 0.5), 0),
    # Places that are hidden: the moments are of what is left.
    ("y = Where(b, x, lots)", "bool[4,4] b, float[4,4] x", (1, _SPREAD, -1, 3), MASKED),
    ("y = Where(b, lots, x)", "bool[4,4] b, float[4,4] x", (1, _SPREAD, -1, 3), MASKED),
    ("y = Where(b, lots, lots)", "bool[4,4] b", (0, 0, 0, 0), MASKED),
    ("n = Reshape(lots, last) e = Reshape(x, last) y = Concat<axis = 0>(e, n)", _X, (1, _SPREAD, -1, 3), MASKED),
    ("e = Reshape(x, last) f = Reshape(p, last) y = Concat<axis = 0>(e, f)", "float[4,4] x, float[4] p",
     (1, math.sqrt((_SPREAD**2 + _SPREAD**2 / 4) / 2), -1, 3), 0),
    ("y = Where(b, p, q)", "bool[4] b, float[4] p, float[4] q",
     (0.75, math.sqrt(5 / 24 + 1 / 16), 0, 2), POSITIVE),
    # A condition bounds what it picks.
    ("t = Greater(x, one) y = Where(t, x, one)", _X, None, 0),
    ("t = Greater(p, minus) y = Where(t, p, x)", "float[4,4] p, float[4,4] x", (1, 2 / math.sqrt(12), 0, 2), POSITIVE),
    ("t = Less(p, minus) y = Where(t, x, p)", "float[4,4] p, float[4,4] x", (1, 2 / math.sqrt(12), 0, 2), POSITIVE),
    ("t = Less(p, hundred) y = Where(t, p, x)", "float[4,4] p, float[4,4] x", (1, 2 / math.sqrt(12), 0, 2), POSITIVE),
    # Bounds.
    ("y = Clip(x, zero, two)", _X, None, POSITIVE | HARD | TOUCHING),
    ("y = Clip(x, zero, one)", _X, None, POSITIVE | UNIT | HARD | TOUCHING),
    ("y = Clip(x, zero)", _X, None, POSITIVE | TOUCHING),
    ("y = Clip(x, minus, two)", _X, None, HARD),
    ("y = Clip(x, two, hundred)", _X, None, POSITIVE),
    ("y = Clip(p, lots, hundred)", "float[4] p", (1, 2 / math.sqrt(12), 0, 2), POSITIVE),
    ("y = Clip(x, hundred, hundred)", _X, (100, 0, 100, 100), POSITIVE | HARD),
    ("d = Det(x) y = Clip(d, zero, two)", _X, (1, 0.5, 0, 2), POSITIVE | HARD),
    ("d = Det(x) y = Clip(d, zero)", _X, None, LOST),
    # Weighted means of the values, and states between -1 and 1.
    ("y = Attention(x4, x4, v)", "float[1,2,4,4] x4, float[1,2,4,4] v", (1, _SPREAD, -1, 3), 0),
    ("y = Tan(x)", _X, (0, 1, -8, 8), 0),
)  # fmt: skip
GIVEN = {"x": (-1.0, 3.0), "p": (0.0, 2.0), "q": (0.0, 1.0), "i": (0.0, 9.0), "v": (-1.0, 3.0)}


@pytest.mark.parametrize(("body", "inputs", "wanted", "flags"), EXACT, ids=[f"{row[0]} of {row[1]}" for row in EXACT])
def test_an_estimate_is_exact(body: str, inputs: str, wanted: tuple[float, ...] | None, flags: int) -> None:
    opset = 23 if "Attention" in body else 21
    given = {name: ends for name, ends in GIVEN.items() if f"] {name}" in inputs}
    held = read(body, inputs, opset=opset, **given).held()
    if wanted is not None:
        assert held[:4] == pytest.approx(wanted, rel=1e-5, abs=1e-9)  # constants are FP32
    told = {name for flag, name in _NAMES.items() if held.flags & flag}
    assert told == {name for flag, name in _NAMES.items() if flags & flag}


# Of each law, an operand that nothing is known of: u is a determinant, which no law follows.
UNKNOWN = (
    "Add(x, u)", "Add(u, x)", "Add(u, half)", "Sub(x, u)", "Sub(u, x)", "Mul(x, u)", "Mul(u, x)", "Mul(u, u)",
    "Div(x, u)", "Div(u, x)", "Pow(u, two)", "Pow(two, u)", "Pow(u, half)", "Exp(u)", "Log(u)", "Sqrt(u)", "Abs(u)",
    "Neg(u)", "Reciprocal(u)", "Relu(u)", "Tanh(u)", "Gelu(u)", "Softplus(u)", "Erf(u)", "Floor(u)", "Max(x, u)",
    "Max(u, half)", "Min(u, half)", "MatMul(t, w)", "MatMul(x, t)", "ReduceSum(t, last)", "ReduceMean(t, last)",
    "ReduceMax(t, last)", "ReduceSumSquare(t, last)", "ReduceL1(t, last)", "ReduceL2(t, last)", "CumSum(t, axis)",
    "ReduceLogSumExp(t, last)", "ReduceLogSum(t, last)", "ReduceProd(t, last)", "LogSoftmax(t)", "Transpose(t)",
    "Mean(x, u)", "Sum(x, x, u)", 'Einsum<equation = "ij,ij->i">(x, t)', 'Einsum<equation = "ij,ij,ij->i">(x, x, t)',
    'Einsum<equation = "ij->i">(t)', "DequantizeLinear(k, u)",
)  # fmt: skip


@pytest.mark.parametrize("law", UNKNOWN)
def test_of_what_nothing_is_known_nothing_follows(law: str) -> None:
    made = read(f"u = Det(x) t = Expand(u, shape) y = {law}", "float[4,4] x, int8[4,4] k, int64[2] shape")
    assert made.held().flags & LOST
    assert not [entry for entry in made.found.coarse if entry.value == made.value("y")]
    assert not made.found.overflowing
    assert made.found.not_followed == (("Det", 1),)


@pytest.mark.parametrize("law", ["Sigmoid(u)", "HardSigmoid(u)"])
def test_what_is_bounded_is_known_whatever_it_is_of(law: str) -> None:
    held = read(f"u = Det(x) y = {law}").held()
    assert held[:4] == (0.5, 0.3, 0.0, 1.0) and held.flags & POSITIVE and held.flags & UNIT


@pytest.mark.parametrize("law", ["Sin(u)", "Cos(u)"])
def test_an_angle_that_is_not_known_gives_anything_between_its_bounds(law: str) -> None:
    assert read(f"u = Det(x) y = {law}").held()[:4] == (0.0, math.sqrt(0.5), -1.0, 1.0)


def test_softmax_of_what_is_not_known_is_a_share_of_all() -> None:
    held = read("u = Det(x) t = Expand(u, shape) y = Softmax<axis = -1>(t)", "float[4,4] x, int64[2] shape").held()
    assert not held.flags & LOST and (held.low, held.high) == (0.0, 1.0)


def test_states_of_recurrent_operators_lie_between_their_bounds() -> None:
    held = read(
        "y, h = GRU<hidden_size = 4>(x, k, r)", "float[3,2,4] x, float[1,12,4] k, float[1,12,4] r", output="float y"
    ).held()
    assert held == (0.0, 0.5, -1.0, 1.0, 0)


_CUT = "int64[1] s1, int64[1] e1, int64[1] s2, int64[1] e2"


@pytest.mark.parametrize("rest", ["y = Sub(d, f)", "n = Neg(f) y = Add(d, n)", "n = Mul(f, minus) y = Add(n, d)"])
def test_neighbours_in_a_running_sum_differ_by_what_was_added(rest: str) -> None:
    cut = "c = CumSum(x, axis) d = Slice(c, s1, e1, last) f = Slice(c, s2, e2, last) "
    assert read(cut + rest, f"float[4,64] x, {_CUT}", x=(-1.0, 3.0)).held()[:4] == (1.0, _SPREAD, -1.0, 3.0)
    apart = cut.replace("f = Slice(c", "b = CumSum(z, axis) f = Slice(b")
    assert read(apart + rest, f"float[4,64] x, float[4,64] z, {_CUT}", x=(-1.0, 3.0)).held().std > 4 * _SPREAD


@pytest.mark.parametrize(
    ("ends", "middle", "wanted"),
    [
        ((-1.0, 3.0), 1.0, (1.0, _SPREAD, 1.0 - 4 * _SPREAD, 1.0 + 4 * _SPREAD)),
        ((-1.0, 3.0), 0.0, (2.0, _SPREAD, 2.0 - 4 * _SPREAD, 2.0 + 4 * _SPREAD)),
        ((-1.0, 3.0), 1000.0, (1.0, 2.0, -7.0, 9.0)),  # the statistics tell of another input: they were gathered
        (None, 0.0, (1.0, 2.0, -7.0, 9.0)),
    ],
)
def test_statistics_that_were_gathered_tell_what_the_input_is_like(
    ends: tuple[float, float] | None, middle: float, wanted: tuple[float, ...]
) -> None:
    shapes = ", ".join(f"float[8] {name}" for name in "abms")
    given = {"a": (2.0, 2.0), "b": (1.0, 1.0), "m": (middle, middle), "s": (4.0, 4.0)}
    if ends is None:
        body, inputs = "u = Det(q) x = Expand(u, k) ", "float[4,4] q, int64[3] k, "
    else:
        body, inputs, given = "", "float[2,8,4] x, ", {**given, "x": ends}
    held = read(body + "y = BatchNormalization(x, a, b, m, s)", inputs + shapes, **given).held()
    assert held[:4] == pytest.approx(wanted, rel=1e-4)


def test_a_running_product_stays_between_zero_and_its_operand() -> None:
    assert read("y = CumProd(x, axis)", opset=26, x=(0.5, 0.9)).held()[2:4] == (0.0, 0.9)


@pytest.mark.parametrize(("ends", "wanted"), [((-1.0, 3.0), (-81.0, 81.0)), ((0.0, 2.0), (0.0, 16.0))])
def test_a_product_of_all_is_within_the_largest_to_their_number(
    ends: tuple[float, float], wanted: tuple[float, float]
) -> None:
    assert read("y = ReduceProd(x, last)", x=ends).held()[2:4] == wanted


def test_a_constant_is_the_same_number_wherever_it_is_stored() -> None:
    held = read("h = Constant<value_float = 0.5>() c = Add(x, half) d = Add(x, h) y = Sub(c, d)").held()
    assert held[:4] == (0.0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(("factor", "spread"), [(0.5, 0.5), (0.75, 0.25), (0.25, math.sqrt(1 + 0.0625))])
def test_what_a_difference_leaves_is_followed_where_most_of_it_cancels(factor: float, spread: float) -> None:
    held = read(f"k = Constant<value_float = {factor}>() p = Mul(x, k) y = Sub(x, p)").held()
    assert held.std == pytest.approx(spread)


@pytest.mark.parametrize("body", ["y = MatMul(x, t)", "y = MatMul(t, w4)"])
def test_the_length_of_a_product_is_that_of_the_operand_whose_shape_is_known(body: str) -> None:
    held = read("t = Reshape(v, k) " + body, "float[4,64] x, float[64,8] w4, float[N] v, int64[2] k").held()
    assert held.std == pytest.approx(8.0)


def test_the_length_of_a_product_that_nobody_knows_is_long() -> None:
    held = read("t = Reshape(v, k) u = Reshape(x, k) y = MatMul(t, u)", "float[N] v, float[N] x, int64[2] k").held()
    assert held.std == pytest.approx(16.0)  # 256 terms


def test_counts_that_go_round_a_loop_may_grow_by_their_most_each_time() -> None:
    held = read(
        "trips = Constant<value_int = 50>() f = Cast<to = 1>(i) y = Loop(trips, , f) <body = b (int64 n, bool go, "
        "float[4] s) => (bool more, float[4] t) <float c = {3}> { more = Identity(go) t = Add(s, c) }>",
        "int64[4] i", i=(0.0, 9.0),
    ).held()  # fmt: skip
    assert 9.0 + 50 * 3.0 <= held.high < 170.0
    assert held.mean == pytest.approx(4.5 + 50 * 3.0)


def test_what_is_read_twice_is_found_once_by_each_reader() -> None:
    made = read("m = ReduceMean(x, last) c = Sub(x, m) y = Mul(c, c)", low=FORMATS[DType.BFLOAT16], x=(99.0, 101.0))
    readers = [made.graph.nodes[entry.reader].op for entry in made.coarse("x")]
    assert readers.count("Sub") == 1


@pytest.mark.parametrize(
    ("body", "spread"),
    [
        ("b = ReduceSum<axes = [1]>(a) c = ReduceSum<axes = [1]>(b)", 8.0),  # 64 terms, then one
        ("b = ReduceSum<axes = [1], keepdims = 0>(a) c = ReduceSum<axes = [0]>(b)", 16.0),  # 64 terms, then 4
        ("d = Identity(a) c = ReduceSum<axes = [1]>(d)", 8.0),
        ("d = Transpose<perm = [1, 0]>(a) c = ReduceSum<axes = [1]>(d)", 2.0),
        ("d = Transpose(a) c = ReduceSum<axes = [1]>(d)", 2.0),
        ("d = Tanh(a) e = Add(a, v) c = ReduceSum<axes = [0]>(e)", math.sqrt(8)),
        ("d = MatMul(a, v) c = ReduceSum<axes = [1]>(d)", 24.0),  # 64 products, 9 of them
    ],
)
def test_shapes_are_worked_out_in_the_bodies_of_functions(body: str, spread: float) -> None:
    other = "float[64,9] z" if "MatMul" in body else "float[4,64] z"
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 11, "local" : 1]> g (float[4,64] x, {other}) => (float y) '
        "{ p = local.part(x, z) y = Neg(p) } "
        f'<domain: "local", opset_import: ["" : 11]> part (a, v) => (c) {{ {body} }}'
    )
    graph = open_model(model).read(DType.FLOAT16).graph
    found = estimate(graph, rows_of(graph), FORMATS[DType.FLOAT16], {})
    held = found.moments[next(number for number, value in enumerate(graph.values) if value.name == "y")]
    assert held.std == pytest.approx(spread)
