"""What little is left of much, and what adds up to much: laws that a blind batch of spellings showed to be short."""

import math

import pytest
from reading import read

from mezzo.analysis.estimates.moments import HARD, INTEGER, LOST, RARE, UNIT
from mezzo.formats.dtypes import FORMATS, DType

_BF16 = FORMATS[DType.BFLOAT16]
_WHOLE = "int64[4,4] i"


def test_a_product_of_numbers_near_one_is_near_one() -> None:
    held = read("y = ReduceProd(x, last)", x=(0.998, 1.0)).held()
    assert held.mean == pytest.approx(0.999**4, abs=1e-4)
    assert 0.99 < held.low <= held.mean <= held.high <= 1.01


def test_what_a_product_lacks_of_one_is_asked_of_its_factors() -> None:
    found = read("p = ReduceProd(x, last) y = Sub(one, p)", x=(0.998, 1.0))
    assert {c.value for c in found.found.coarse} >= {found.value("x"), found.value("p")}


@pytest.mark.parametrize("bias", [1.0, 9.0, 20.0])
def test_a_small_term_may_be_an_offset_of_the_input_or_a_bias(bias: float) -> None:
    found = read(f"b = Constant<value_float = {bias}>() s = Sub(x, b) e = Exp(s) q = Sub(one, e) y = Sub(one, q)")
    assert found.found.assumptions[0].is_doubtful == (bias > 3.0)
    assert bool(found.coarse("q")) or bias == 1.0


def test_a_large_offset_is_no_bias() -> None:
    assert not read("s = Sub(x, hundred) y = Exp(s)").found.assumptions[0].is_doubtful


def test_whole_numbers_past_ids_are_what_the_prologue_makes_unit_scale_of() -> None:
    text = "m = Constant<value_float = 1e-6>() f = Constant<value_float = 52.5>() c = Cast<to = 1>(i) s = Mul(c, m) "
    held = read(text + "y = Sub(s, f)", _WHOLE).held("i")
    assert (held.mean, held.std) == pytest.approx((52.5e6, 1e6), rel=1e-3)
    assert read("m = Constant<value_float = 5.0>() c = Cast<to = 1>(i) y = Sub(c, m)", _WHOLE).held("i").high == 1e5


def test_integer_division_cuts_off() -> None:
    held = read("q = Div(i, ten) y = Cast<to = 1>(q)", _WHOLE, i=(0.0, 1000.0)).held("q")
    assert held.flags & INTEGER
    assert held.mean == pytest.approx(49.5)


def test_what_a_division_cuts_off_is_small() -> None:
    found = read("q = Div(i, ten) b = Mul(q, ten) r = Sub(i, b) y = Cast<to = 1>(r)", _WHOLE, i=(0.0, 20000.0))
    assert found.held("r").std < 10.0
    cast = "c = Cast<to = 1>(i) q = Div(i, ten) d = Cast<to = 1>(q) t = Cast<to = 1>(ten) b = Mul(d, t) y = Sub(c, b)"
    assert read(cast, _WHOLE, i=(0.0, 20000.0)).held().std < 10.0


def test_whole_numbers_times_whole_weights_are_whole() -> None:
    assert read("g = Greater(x, zero) c = Cast<to = 1>(g) y = MatMul(c, w)").held().flags & INTEGER
    assert not read("y = MatMul(x, w)").held().flags & INTEGER


@pytest.mark.parametrize(("kernel", "size"), [("1, -2, 1", math.sqrt(6.0)), ("-1, -2, -1", math.sqrt(6.0))])
def test_a_kernel_makes_no_spread_of_a_level(kernel: str, size: float) -> None:
    text = f"k = Constant<value = float[1,1,3] {{{kernel}}}>() c = Add(x, hundred) y = Conv(c, k)"
    assert read(text, "float[4,1,32] x").held().std == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize(("axis", "expected"), [("last", 2.0 * 1.118), ("first", 2.0 * 2.739)])
def test_what_weights_have_in_common_meets_rows_that_sum_to_zero(axis: str, expected: float) -> None:
    text = f"first = Constant<value_ints = [0]>() m = ReduceMean(x, {axis}) d = Sub(x, m) y = MatMul(d, w)"
    assert read(text).held().std == pytest.approx(expected, rel=0.01)


def test_positions_from_one_another_are_no_zeros() -> None:
    text = "n = Constant<value_int = 3000>() s = Constant<value_int = 1>() p = Range(start, n, s) c = Cast<to = 1>(p) "
    text += "first = Constant<value_ints = [0]>() a = Unsqueeze(c, first) b = Unsqueeze(c, last) d = Sub(a, b) "
    found = read(text + "y = Mul(d, half)")
    assert found.held("d").std > 1000.0
    assert found.tolerated("c") <= 0.25
    assert read("y = Sub(x, x)").held().std == 0.0


def test_a_count_meets_the_guard_against_zero_where_nothing_was_counted() -> None:
    found = read("g = Greater(x, zero) c = Cast<to = 1>(g) n = ReduceSum(c, last) m = Max(n, eps) y = Div(one, m)")
    assert found.held("m").flags & RARE
    assert found.held().high < 65504.0
    assert read("g = Abs(x) n = ReduceMin(g, last) m = Max(n, eps) y = Div(one, m)").held().high > 65504.0


def test_the_larger_of_two_is_at_least_each() -> None:
    found = read("y = Max(x, z)", "float[4,4] x, float[4,4] z", x=(0.0, 1.0), z=(5.0, 6.0)).held()
    assert (found.low, found.high) == (5.0, 6.0)
    assert found.mean == pytest.approx(5.5, abs=0.01)
    least = read("y = Min(x, z)", "float[4,4] x, float[4,4] z", x=(0.0, 1.0), z=(5.0, 6.0)).held()
    assert (least.low, least.high, least.mean) == pytest.approx((0.0, 1.0, 0.5), abs=0.01)


def test_the_larger_of_two_normal_numbers_lies_above_both() -> None:
    held = read("y = Max(x, z)", "float[4,4] x, float[4,4] z").held()
    assert held.mean == pytest.approx(1.0 / math.sqrt(math.pi))
    assert held.std == pytest.approx(math.sqrt(1.0 - 1.0 / math.pi))


def test_draws_of_zero_and_one_are_that() -> None:
    assert read("p = Sigmoid(x) y = Bernoulli(p)").held().flags & (INTEGER | UNIT | HARD) == INTEGER | UNIT | HARD


def test_an_unknown_table_of_integers_is_a_bias_beside_others() -> None:
    text = "t = Constant<value = int64[32] {" + ", ".join(["3"] * 32) + "}>() a = Add(i, t) y = Cast<to = 1>(a)"
    found = read(text, "int64[4,32] i", i=(0.0, 1e6))
    assert not found.held("a").flags & LOST
    assert found.held("a").high >= 1e6


def test_channels_that_their_own_means_explain_leave_their_variance() -> None:
    text = "m = Constant<value = float[4] {0, 0, 0, 400}>() v = Constant<value = float[4] {1, 1, 1, 1}>() "
    text += "o = Constant<value = float[4] {1, 1, 1, 1}>() z = Constant<value = float[4] {0, 0, 0, 0}>() "
    held = read(text + "c = Add(x, m) y = BatchNormalization(c, o, z, m, v)").held()
    assert held.std == pytest.approx(1.0, rel=0.05)


def _summed(steps: int) -> str:
    return " ".join(f"t{n} = Add({f't{n - 1}' if n else 'x'}, z)" for n in range(steps))


@pytest.mark.parametrize(("steps", "is_long"), [(20, False), (100, False), (400, True)])
def test_totals_that_a_trace_unrolled_share_what_is_tolerated(steps: int, is_long: bool) -> None:
    inputs = "float[4,4] x, float[4,4] z"
    found = read(f"{_summed(steps)} y = Mul(t{steps - 1}, half)", inputs, low=_BF16, x=(0.0, 1.0), z=(0.0, 1.0))
    assert bool(found.coarse(f"t{steps - 10}")) == is_long


def test_sums_of_either_sign_share_nothing() -> None:
    assert not read(f"{_summed(400)} y = Neg(t399)", "float[4,4] x, float[4,4] z", low=_BF16).coarse("t390")


def test_numbers_that_a_format_with_the_exponents_of_fp32_keeps_are_not_missed() -> None:
    assert not read("p = Sigmoid(x) e = Add(p, eps) y = Log(e)", low=_BF16, x=(-80.0, 0.0)).coarse("p")


@pytest.mark.parametrize(("least", "is_coarse"), [(1.0, True), (9.0, False)])
def test_a_spread_divisor_counts_by_its_small_numbers(least: float, is_coarse: bool) -> None:
    found = read("t = Constant<value_float = 8e-7>() s = Mul(x, t) y = Div(one, s)", x=(least, 20.0))
    assert bool([c for c in found.found.coarse if c.value == found.value("s")]) == is_coarse


def test_a_difference_is_as_small_as_the_better_view_of_it_says() -> None:
    f = "p{0} = Mul({0}, {0}) s{0} = Mul(p{0}, hundred) l{0} = Log({0}) t{0} = Mul(l{0}, ten) f{0} = Sub(s{0}, t{0}) "
    text = f"{f.format('x')} b = Sub(x, near) {f.format('b')} y = Sub(fx, fb)"
    made = "near = Constant<value_float = 0.01>() ten = Constant<value_float = 10.0>() "
    assert read(made + text, x=(0.2, 0.8)).held().std < 2.0
