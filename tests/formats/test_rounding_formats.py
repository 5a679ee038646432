"""From where a format overflows, vanishes and is normal, as its definition has it."""

import math

import numpy as np
import pytest

from mezzo.formats.dtypes import DType
from mezzo.formats.rounding import RANGED, beyond_from, limits_of, round_through, smallest_normal, vanishing_up_to

F16, BF16, E4M3, E5M2 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT8E4M3FN, DType.FLOAT8E5M2


def test_ranges_are_told_for_four_formats() -> None:
    assert RANGED == (F16, BF16, E4M3, E5M2)


@pytest.mark.parametrize(
    ("dtype", "beyond", "vanishing", "normal"),
    [
        (F16, 65520.0, 2.0**-25, 2.0**-14),
        (BF16, 2.0**127 * (2 - 2.0**-8), 2.0**-134, 2.0**-126),
        (E5M2, 61440.0, 2.0**-17, 2.0**-14),
    ],
)
def test_limits_are_half_way_to_what_comes_next(dtype: DType, beyond: float, vanishing: float, normal: float) -> None:
    assert (beyond_from(dtype), vanishing_up_to(dtype), smallest_normal(dtype)) == (beyond, vanishing, normal)


def test_format_without_infinity_overflows_past_its_last_step() -> None:
    """E4M3FN ends at 448 in steps of 32: 464 is a tie that goes to 448, all above is NaN."""
    assert beyond_from(E4M3) == float(np.nextafter(np.float32(464), np.float32(math.inf)))
    assert (vanishing_up_to(E4M3), smallest_normal(E4M3)) == (2.0**-10, 2.0**-6)


@pytest.mark.parametrize("dtype", RANGED)
def test_limits_are_where_rounding_changes(dtype: DType) -> None:
    beyond, vanishing = np.float32(beyond_from(dtype)), np.float32(vanishing_up_to(dtype))
    beside = [beyond, np.nextafter(beyond, np.float32(0)), vanishing, np.nextafter(vanishing, np.float32(1))]
    rounded = round_through(np.array(beside), dtype)
    assert np.isfinite(rounded).tolist() == [False, True, True, True]
    assert (rounded != 0).tolist() == [True, True, False, True]


def test_numbers_are_rounded_to_nearest_even() -> None:
    assert round_through(np.array([2049.0, 2051.0, -0.1], np.float32), F16).tolist() == [
        2048.0, 2052.0, float(np.float16(-0.1))
    ]  # fmt: skip
    assert round_through(np.array([257.0, 259.0], np.float32), BF16).tolist() == [256.0, 260.0]
    assert round_through(np.zeros(1, np.float32), F16).dtype == np.float32


@pytest.mark.parametrize("dtype", RANGED)
def test_limits_are_the_last_numbers_that_rounding_keeps(dtype: DType) -> None:
    largest, normal, smallest = (np.float32(limit) for limit in limits_of(dtype))
    assert round_through(np.array([largest, normal, smallest]), dtype).tolist() == [largest, normal, smallest]
    assert largest < beyond_from(dtype) and round_through(np.array([smallest / 2]), dtype)[0] == 0
