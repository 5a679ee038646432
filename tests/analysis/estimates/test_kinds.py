"""What kind of numbers laws say that their results are, where a name or a shape misleads."""

import math

import pytest
from reading import read

from mezzo.analysis.estimates.moments import HARD, INTEGER, MASKED, POSITIVE, UNIT

_SPREAD = 1.0  # of an input of unit scale
_AXES = "k0 = Constant<value_ints = [0]>() k1 = Constant<value_ints = [1]>() "


@pytest.mark.parametrize(
    "body", ["y = Sub(a, b)", "n = Neg(b) y = Add(a, n)", "t = Add(a, one) y = Sub(t, b)", "t = Neg(a) y = Add(b, t)"]
)
def test_a_column_less_a_row_of_the_same_numbers_is_no_zero(body: str) -> None:
    held = read(_AXES + "a = Unsqueeze(v, k1) b = Unsqueeze(v, k0) " + body, "float[4] v").held()
    assert held.std == pytest.approx(math.sqrt(2.0) * _SPREAD)


def test_a_column_times_a_row_of_the_same_numbers_is_no_square() -> None:
    held = read(_AXES + "a = Unsqueeze(v, k1) b = Unsqueeze(v, k0) y = Mul(a, b)", "float[4] v").held()
    assert held.mean == 0.0 and not held.flags & POSITIVE


def test_a_value_over_itself_turned_round_is_not_one() -> None:
    assert read("t = Transpose(x) y = Div(x, t)", x=(1.0, 3.0)).held().std > 0.1


def test_a_loop_counts_its_trips() -> None:
    held = read(
        "trips = Constant<value_int = 50>() y = Loop(trips, , x) <body = b (int64 i, bool go, float[4] s) => "
        "(bool more, float[4] t) { more = Identity(go) f = Cast<to = 1>(i) t = Add(s, f) }>", "float[4] x",
    ).held("f")  # fmt: skip
    assert held == (24.5, 49 / math.sqrt(12), 0.0, 49.0, INTEGER | POSITIVE)


def test_bounds_that_are_constants_tell_a_probability() -> None:
    made = read("c = Clip(x, eps, one) y = Log(c)")
    assert made.found.assumptions[0].because == "reads as a probability"


@pytest.mark.parametrize("body", ["y = Sub(s, k)", "n = Neg(k) y = Add(s, n)"])
def test_what_is_taken_off_a_sigmoid_may_be_more_than_it_is(body: str) -> None:
    made = read("k = Constant<value_float = 0.05>() s = Sigmoid(x) " + body, x=(-2.9, 2.9))
    assert not made.held().flags & (POSITIVE | UNIT)


@pytest.mark.parametrize(
    "body",
    ["y = Sub(one, s)", "h = Mul(x, half) t = Tanh(h) u = Mul(t, half) y = Add(u, half)", "u = Neg(s) y = Add(u, one)"],
)
def test_what_a_sigmoid_leaves_of_one_is_one_too(body: str) -> None:
    made = read("s = Sigmoid(x) " + body, x=(-2.9, 2.9))
    assert made.held().flags & (POSITIVE | UNIT | HARD) == POSITIVE | UNIT | HARD


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [
        ("LeakyRelu<alpha = 0.25>(x)", -1.0, 2.0), ("LeakyRelu(x)", -0.04, 2.0), ("PRelu(x, half)", -2.0, 2.0),
        ("Elu(x)", math.expm1(-4.0), 2.0), ("Elu<alpha = 2.0>(x)", 2.0 * math.expm1(-4.0), 2.0),
        ("Sign(x)", -1.0, 1.0), ("Hardmax(x)", 0.0, 1.0), ("Relu(x)", 0.0, 2.0),
        ("RandomUniform<shape = [4], low = -3.0, high = 5.0>()", -3.0, 5.0), ("RandomUniform<shape = [4]>()", 0.0, 1.0),
    ],
)  # fmt: skip
def test_ends_are_those_of_the_operator(law: str, low: float, high: float) -> None:
    held = read(f"y = {law}", x=(-4.0, 2.0)).held()
    assert held[2:4] == pytest.approx((low, high), rel=1e-5)
    assert bool(held.flags & POSITIVE) is (low >= 0.0)


@pytest.mark.parametrize("body", ["y = Add(x, masks)", "y = Add(masks, x)"])
def test_a_mask_that_is_added_hides(body: str) -> None:
    assert read(body, "float[4,2] x").held().flags & MASKED
