"""The judge rounds FP64 and integers to FP16 and BF16 once, which the engines' own casts do not.

The oracle is exact: Python compares integers and floats without rounding either.
"""

import math
from bisect import bisect_right
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from judge_models import EACH_LOW, ELEMENT, LOW, assert_same_bits, judge, read, rounded

from mezzo.onnx.run.session import Engine

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow is what these tests are about
EACH_ENGINE = pytest.mark.parametrize("engine", list(Engine))
INTEGERS = ["int32", "uint32", "int64", "uint64"]


@cache
def numbers(low: str) -> list[float]:
    """The numbers of a format from 0 up, and last the one that would come next: what is nearest to it is infinite."""
    infinity = {"float16": 0x7C00, "bfloat16": 0x7F80}[low]
    finite = np.arange(infinity, dtype=np.uint16).view(LOW[low]).astype(np.float64).tolist()
    return [*finite, 2 * finite[-1] - finite[-2]]


def nearest(number: float, low: str) -> float:
    """A finite number rounded once, to nearest, ties to even."""
    grid = numbers(low)
    below = min(bisect_right(grid, abs(number)), len(grid) - 1) - 1
    middle = (grid[below] + grid[below + 1]) / 2
    is_above = abs(number) > middle or (abs(number) == middle and below % 2 == 1)
    result = grid[below + is_above]
    return math.copysign(math.inf if result == grid[-1] else result, number)


def all_nearest(values: np.ndarray, low: str) -> np.ndarray:
    return np.array([nearest(number, low) for number in values.tolist()], np.float32)


@cache
def near_ties(low: str) -> np.ndarray:
    """Every tie of a format and what lies close beside it, far below its last number and far above."""
    grid = np.array(numbers(low))
    ties = (grid[:-1] + grid[1:]) / 2
    beside = [np.nextafter(ties, 0), np.nextafter(ties, np.inf), ties * (1 - 2.0**-30), ties * (1 + 2.0**-24)]
    positive = np.concatenate([grid, ties, *beside, [5e-324, 1e-300, 2.0**-151, 1e300, 1.7e308]])
    return np.concatenate([positive, -positive])


@cache
def whole_ties(low: str, kind: str) -> np.ndarray:
    """The ties of a format that are integers, and integers close beside them, as far as the integer type goes."""
    grid = numbers(low)
    limits = np.iinfo(kind)
    ties = [int((a + b) / 2) for a, b in pairwise(grid) if a >= 256 and b <= 2.0**64]
    found = {s * t + d for t in ties for s in (1, -1) for d in (-1025, -1, 0, 1, 1025)}
    return np.array(sorted({limits.min, limits.max, *(k for k in found if limits.min <= k <= limits.max)}), kind)


@cache
def near_ties_once(low: str) -> np.ndarray:
    """What `near_ties` are, rounded once."""
    return all_nearest(near_ties(low), low)


@cache
def whole_ties_once(low: str, kind: str) -> np.ndarray:
    """What `whole_ties` are, rounded once."""
    return all_nearest(whole_ties(low, kind), low)


@EACH_LOW
@EACH_ENGINE
@pytest.mark.parametrize("cast", ["Cast<to=TO>(x)", "CastLike(x, like)"])
def test_casts_from_double_round_once(cast: str, engine: Engine, low: str) -> None:
    model = read(f"g (double[N] x, {low} like) => ({low}[N] y) {{ y = {cast} }}".replace("TO", str(ELEMENT[low])))
    expected = near_ties_once(low)
    assert not np.array_equal(expected, rounded(near_ties(low).astype(np.float32), low))  # twice is another thing
    assert_same_bits(judge(model, engine, x=near_ties(low), like=0), expected)


@EACH_LOW
@EACH_ENGINE
@pytest.mark.parametrize("kind", INTEGERS)
def test_casts_from_integers_round_once(kind: str, engine: Engine, low: str) -> None:
    model = read(f"g ({kind}[N] x) => ({low}[N] y) {{ y = Cast<to={ELEMENT[low]}>(x) }}")
    expected = whole_ties_once(low, kind)
    # FP32 holds all integers up to 2**24, and beyond 65519 FP16 is infinite: there the first rounding changes nothing.
    is_once = np.array_equal(expected, rounded(whole_ties(low, kind).astype(np.float32), low))
    assert is_once == (low == "float16")
    assert_same_bits(judge(model, engine, x=whole_ties(low, kind)), expected)


@EACH_LOW
@EACH_ENGINE
def test_casts_from_double_keep_what_is_no_finite_number(engine: Engine, low: str) -> None:
    model = read(f"g (double[N] x) => ({low}[N] y) {{ y = Cast<to={ELEMENT[low]}>(x) }}")
    special = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0])
    assert_same_bits(judge(model, engine, x=special), special.astype(np.float32))


@EACH_LOW
def test_casts_inside_a_body_round_once(low: str) -> None:
    model = read(f"""g (bool c, double[N] x) => ({low}[N] y) {{ y = If(c) <
        then_branch = t () => ({low}[N] a) {{ a = Cast<to={ELEMENT[low]}>(x) }},
        else_branch = e () => ({low}[N] b) {{ d = Neg(x)  b = Cast<to={ELEMENT[low]}>(d) }}> }}""")
    for is_then in (True, False):
        expected = near_ties_once(low)
        assert_same_bits(judge(model, c=is_then, x=near_ties(low)), expected if is_then else -expected)


@pytest.mark.parametrize(("opset", "wanted"), [(9, 1 + 2.0**-10), (8, 1.0)])
def test_casts_from_double_round_once_from_opset_9_on(opset: int, wanted: float) -> None:
    model = read("g (double[1] x) => (float16[1] y) { y = Cast<to=10>(x) }", opset)
    assert judge(model, x=np.array([1 + 2.0**-11 + 2.0**-40])).tolist() == [wanted]


@EACH_LOW
@EACH_ENGINE
def test_feeds_in_double_round_once(engine: Engine, low: str) -> None:
    model = read(f"g ({low}[N] x) => ({low}[N] y) {{ y = Identity(x) }}")
    assert_same_bits(judge(model, engine, x=near_ties(low)), near_ties_once(low))
    assert_same_bits(judge(model, engine, x=np.array([np.inf, -0.0])), np.float32([np.inf, -0.0]))


@EACH_LOW
@pytest.mark.parametrize("kind", INTEGERS)
def test_feeds_in_integers_round_once(kind: str, low: str) -> None:
    model = read(f"g ({low}[N] x) => ({low}[N] y) {{ y = Identity(x) }}")
    assert_same_bits(judge(model, x=whole_ties(low, kind)), whole_ties_once(low, kind))
