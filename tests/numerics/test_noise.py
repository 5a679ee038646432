"""Numbers are shaken by one unit in the last place of FP32; what is exact stays."""

import numpy as np
import pytest

from mezzo.numerics.statistics.noise import Shaker


def test_half_of_the_numbers_move_by_one_unit_up_or_down() -> None:
    values = np.random.default_rng(1).normal(size=4000).astype(np.float32)
    moved = Shaker().shake(values)
    steps = np.rint((moved - values) / np.spacing(np.abs(values)))
    shares = [float((steps == step).mean()) for step in (-1.0, 0.0, 1.0)]
    # A quarter, a half and a quarter; 4,000 draws stray by 0.7 % of all, and four such deviations are allowed.
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    assert moved.dtype == np.float32 and moved.shape == values.shape


def test_wide_numbers_move_by_a_unit_of_fp32() -> None:
    values = np.random.default_rng(2).normal(size=500)
    moved = Shaker().shake(values)
    gaps = np.abs(moved - values) / np.spacing(np.abs(values).astype(np.float32))
    assert moved.dtype == np.float64
    assert set(np.rint(gaps).tolist()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "values",
    [
        np.array([0.0, 1.0, -3.0, 65504.0, 1e9], np.float32),
        np.array([np.inf, -np.inf, np.nan], np.float32),
        np.array([0.5, 1.5], np.float16),
        np.array([1, 2], np.int64),
        np.array([], np.float32),
        np.array(["a"]),
    ],
)  # fmt: skip
def test_what_is_exact_or_no_fp32_stays(values: np.ndarray) -> None:
    shaker = Shaker()
    for _ in range(8):  # every number is drawn for often enough
        np.testing.assert_array_equal(shaker.shake(values), values)
    assert shaker.shake(values).dtype == values.dtype


def test_largest_number_does_not_become_infinite() -> None:
    largest = np.full(64, np.finfo(np.float32).max, np.float32)
    assert np.isfinite(Shaker().shake(largest)).all()


def test_two_shakers_shake_alike_and_one_does_not_repeat_itself() -> None:
    values = np.random.default_rng(3).normal(size=64).astype(np.float32)
    one, other = Shaker(), Shaker()
    first = one.shake(values)
    np.testing.assert_array_equal(first, other.shake(values))
    assert (one.shake(values) != first).any()


def test_feeds_are_shaken_inside_sequences_and_others_are_left() -> None:
    values = np.random.default_rng(4).normal(size=64).astype(np.float32)
    found = Shaker().shake_feeds({"a": values, "b": [values, (values,)], "c": None, "d": "text"})
    assert list(found) == ["a", "b", "c", "d"] and found["c"] is None and found["d"] == "text"
    assert (found["a"] != values).any() and (found["b"][0] != values).any() and (found["b"][1][0] != values).any()
