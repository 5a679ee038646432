"""What laws ask of their operands where no slope says it: thresholds, whole numbers, saturation, shares; and when a
value is found that its reader cannot take rounded.
"""

import math
from dataclasses import replace

import pytest
from drawing import NEVER_FINE
from reading import read

from mezzo.analysis.estimates.backward import Coarse
from mezzo.analysis.estimates.moments import rms
from mezzo.formats.dtypes import FORMATS, DType

_T = 0.02  # what an output may be off by, as a share of its worth, where the format is as coarse as NEVER_FINE
_SPREAD = 4 / math.sqrt(12)  # of numbers spread evenly between -1 and 3
_SIZE = math.hypot(1, _SPREAD)
_CUT = math.sqrt(0.25 + 17 / 12)  # size of such numbers cut off to whole ones
_X = "float[4,4] x"

# Body, inputs, the value that is asked of, and what it may be off by.
ASKED = (
    ("y = Identity(x)", _X, "x", _T * _SIZE),
    ("y = Relu(x)", _X, "y", None),
    ("t = Greater(x, one) y = Cast<to = 1>(t)", _X, "x", _T * _SPREAD),
    ("t = Less(x, v) y = Cast<to = 1>(t)", _X + ", float[4,4] v", "v", _T * 10 * _SPREAD),
    ("f = Cast<to = 1>(i) t = Greater(f, half) y = Cast<to = 1>(t)", "int64[4] i", "f", 0.25),
    ("y = Floor(x)", _X, "x", (_T * _CUT) ** 2),
    ("k = QuantizeLinear(x, two) y = DequantizeLinear(k, half)", _X, "x", _T * _SPREAD),
    ("t = Cast<to = 7>(x) y = Cast<to = 1>(t)", _X, "x", 0.05),
    ("t = Cast<to = 7>(v) y = Cast<to = 1>(t)", "float[4,4] v", "v", 0.02 * 10 * _SPREAD),
    ("t = Cast<to = 2>(x) y = Cast<to = 1>(t)", _X, "x", 0.05),
    ("f = Floor(x) t = Cast<to = 7>(f) y = Cast<to = 1>(t)", _X, "f", 0.25),
    ("t = Cast<to = 11>(x) y = Cast<to = 1>(t)", _X, "x", _T * _SIZE),
    ("y = Softmax<axis = -1>(x)", _X, "x", _T * math.sqrt(1 + _SPREAD)),
    ("y = Exp(x)", _X, "x", _T),
    ("y = MeanVarianceNormalization<axes = [1]>(x)", _X, "x", _T * _SPREAD),
    ("y = Pow(two, x)", _X, "x", _T / math.log(2)),
    ("y = Pow(half, x)", _X, "x", _T / math.log(2)),
    ("y = Log(h)", "float[4,4] h", "h", None),
    ("y = Tan(x)", _X, "x", 0.01 * _T),
    # Small numbers: errors count by the slope.
    ("y = Tanh(e)", "float[4,4] e", "e", None),
    # What saturates: errors hardly count.
    ("y = Tanh(h)", "float[4,4] h", "h", _T * 1e3),
    ("y = Sigmoid(h)", "float[4,4] h", "h", _T * 1e3),
    # Small angles: errors count by the slope.
    ("y = Sin(e)", "float[4,4] e", "e", None),
    ("y = Sin(h)", "float[4,4] h", "h", _T),
    ("y = Attention(x4, x4, k4)", "float[1,2,4,4] x4, float[1,2,4,4] k4", "x4", _T),
    ("y = Attention(x4, x4, k4)", "float[1,2,4,4] x4, float[1,2,4,4] k4", "k4", _T),
    ("y = ReduceProd<keepdims = 0>(x, last)", _X, "x", _T / 2 * _SIZE),
    ("y = Where(b, x, half)", "bool[4,4] b, " + _X, "x", None),
    ("y = BatchNormalization(x, a, a, m, s)", "float[1,2,4,4] x, float[2] a, float[2] m, float[2] s", "x", None),
)  # fmt: skip
GIVEN = {
    "x": (-1.0, 3.0), "v": (-10.0, 30.0), "h": (50.0, 60.0), "e": (-0.01, 0.01), "i": (0.0, 9.0),
    "a": (2.0, 2.0), "m": (1.0, 1.0), "s": (4.0, 4.0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("body", "inputs", "name", "wanted"), ASKED, ids=[f"{row[2]} of {row[0]}" for row in ASKED]
)  # fmt: skip
def test_what_is_asked_of_an_operand(body: str, inputs: str, name: str, wanted: float | None) -> None:
    given = {name: ends for name, ends in GIVEN.items() if f"] {name}" in inputs and f"] {name}4" not in inputs}
    made = read(body, inputs, NEVER_FINE, opset=23 if "Attention" in body else 21, **given)
    y = rms(made.held())
    if wanted is None:  # as much as of the result
        wanted = _T * y * (made.held("h").mean if body == "y = Log(h)" else 1.0)
    assert made.tolerated(name) == pytest.approx(wanted, rel=2e-3)


def test_recurrent_operators_ask_for_a_share_of_what_they_read() -> None:
    inputs = "float[3,2,4] x, float[1,12,4] k, float[1,12,4] r"
    made = read("y, h = GRU<hidden_size = 4>(x, k, r)", inputs, NEVER_FINE, x=(-1.0, 3.0), k=(-10.0, 30.0))
    assert made.tolerated("x") == pytest.approx(_T * _SIZE)
    assert made.tolerated("k") == pytest.approx(10 * _T * _SIZE)
    assert made.tolerated("r") == pytest.approx(_T)


@pytest.mark.parametrize("body", ["t = ArgMax(x) y = Cast<to = 1>(t)", "t = Shape(x) y = Cast<to = 1>(t)"])
def test_indices_and_shapes_ask_nothing(body: str) -> None:
    assert not read(body, low=NEVER_FINE).coarse("x")


def test_an_operand_of_which_the_result_says_nothing_may_be_off_by_anything() -> None:
    made = read("a = Mul(x, zero) y = MatMul(v, a)", _X + ", float[4,4] v", NEVER_FINE)
    assert not made.coarse("v")


def test_an_output_that_fades_away_asks_nothing() -> None:
    made = read("a = Mul(x, eps) b = Mul(a, eps) c = Neg(b) y = Neg(c)", low=NEVER_FINE)
    assert not made.found.coarse


# -- when a value is found --------------------------------------------------------------------------------------------

_F16 = FORMATS[DType.FLOAT16]
_OFFSET = "c = Add(x, hundred) m = ReduceMean(c, last) y = Sub(c, m)"


def test_a_finding_tells_size_error_and_tolerance() -> None:
    made = read(_OFFSET, _X, x=(-1.0, 1.0))
    size = math.hypot(100, 2 / math.sqrt(12))
    found = [entry for entry in made.coarse("c") if made.graph.nodes[entry.reader].op == "Sub"]
    error, tolerated = 0.25 * _F16.eps * size + 0.29 * _F16.smallest_subnormal, 4 * _F16.eps * 2 / math.sqrt(12)
    assert found == [Coarse(made.value("c"), found[0].reader, *map(pytest.approx, (size, error, tolerated)))]


@pytest.mark.parametrize(("dtype", "largest"), [(DType.FLOAT16, 2048), (DType.BFLOAT16, 256)])
def test_whole_numbers_are_found_from_the_first_one_that_rounds(dtype: DType, largest: int) -> None:
    for top, is_found in ((largest, False), (largest + 1, True)):
        made = read("f = Cast<to = 1>(i) y = Sin(f)", "int64[4] i", FORMATS[dtype], i=(0.0, float(top)))
        assert bool(made.coarse("f")) is is_found, top


def test_a_format_is_fine_where_its_rounding_is_within_what_is_tolerated() -> None:
    """A quarter of eps of a thousandth offset: found exactly where it passes 4 eps of the spread."""
    for offset, is_found in ((15.0, False), (17.0, True)):
        body = f"o = Mul(half, {'k'}) c = Add(x, o) m = ReduceMean(c, last) y = Sub(c, m)"
        made = read(body, _X + ", float k", x=(-math.sqrt(3), math.sqrt(3)), k=(2 * offset, 2 * offset))
        assert bool([e for e in made.coarse("c") if made.graph.nodes[e.reader].op == "Sub"]) is is_found, offset


def test_a_constant_is_found_by_what_rounding_does_to_its_own_numbers() -> None:
    exact = read("c = Mul(half, x) m = ReduceMean(c, last) y = Sub(c, m)")
    assert not exact.coarse("half")
    wide = replace(_F16, eps=1.5)  # half a gap of 0.75 beside 0.5
    assert read("y = Add(x, half)", low=wide).coarse("half")[0].error == 0.25


def test_numbers_below_the_smallest_are_found_where_they_vanish() -> None:
    made = read("s = Mul(x, eps) y = Div(s, eps)", x=(0.01, 0.1))
    assert made.coarse("s")
    assert not read("s = Mul(x, half) y = Div(s, half)", x=(0.01, 0.1)).coarse("s")
    assert not read("s = Mul(x, eps) y = Div(s, eps)", low=FORMATS[DType.BFLOAT16], x=(0.01, 0.1)).coarse("s")


# -- loops ------------------------------------------------------------------------------------------------------------

_LOOP = (
    "y = Loop(trips, , x) <body = b (int64 i, bool go, float[4] s) => (bool more, float[4] t) "
    "<float a = {%g}, float c = {%g}> { more = Identity(go) p = Mul(s, a) %s t = Add(p, u) }>"
)


def loop(trips: int, factor: float, step: str, low: DType | None = None) -> tuple[float, float, float, float]:
    made = read(
        f"trips = Constant<value_int = {trips}>() " + _LOOP % (factor, 0.125, step), "float[4] x",
        NEVER_FINE if low is None else FORMATS[low], x=(-1.0, 3.0),
    )  # fmt: skip
    asked = min((entry.tolerated for entry in made.coarse("p")), default=math.inf)
    held = made.held()
    return held.mean, held.std, asked, _T * rms(held)


@pytest.mark.parametrize("factor", [0.5, 0.9, 0.99, 1.0, 1.01])
@pytest.mark.parametrize("trips", [1, 2, 3, 10, 100])
def test_state_becomes_what_all_trips_make_of_it(trips: int, factor: float) -> None:
    """A linear step adds the same share each time, so three estimates in a row tell all that follow exactly."""
    mean, std = 1.0, _SPREAD
    for _ in range(trips):
        mean, std = mean * factor + 0.125, std * factor
    assert loop(trips, factor, "u = Identity(c)")[:2] == pytest.approx((mean, std), rel=1e-3)


@pytest.mark.parametrize("factor", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("trips", [3, 10, 100])
def test_state_that_takes_noise_in_spreads_as_its_variance_adds_up(trips: int, factor: float) -> None:
    mean, variance = 1.0, _SPREAD**2
    for _ in range(trips):
        mean, variance = mean * factor, variance * factor**2 + 0.25
    noise = "u = RandomNormal<shape = [4], scale = 0.5>()"
    assert loop(trips, factor, noise)[:2] == pytest.approx((mean, math.sqrt(variance)), rel=1e-3)


@pytest.mark.parametrize(("factor", "counted"), [(0.5, 2.0), (0.9, 10.0), (0.99, 50.0), (1.0, 50.0)])
def test_errors_of_all_trips_that_count_add_up(factor: float, counted: float) -> None:
    """An error that each trip makes smaller by a share lives for as many trips as that share goes into one."""
    *_, asked, worth = loop(50, factor, "u = Identity(c)")
    assert asked == pytest.approx(worth / counted, rel=0.05)


def test_an_unknown_trip_count_is_long() -> None:
    made = read(
        "y = Loop(n, , x) <body = b (int64 i, bool go, float[4] s) => (bool more, float[4] t) "
        "<float c = {0.125}> { more = Identity(go) t = Add(s, c) }>", "int64 n, float[4] x", NEVER_FINE,
    )  # fmt: skip
    assert made.held().mean == pytest.approx(10_000 * 0.125, rel=1e-3)
    assert min(e.tolerated for e in made.coarse("t")) == pytest.approx(_T * rms(made.held()) / 10_000, rel=1e-3)
