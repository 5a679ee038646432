"""The one figure of a search: the largest relative L2 of an output, infinite where an output is broken."""

import math

import ml_dtypes
import numpy as np
import pytest

from mezzo.numerics.metrics.errors import ErrorSum, squares_by_row, squares_of


def error(reference: object, got: object) -> float:
    total = ErrorSum()
    total.add({"y": reference}, {"y": got})
    return total.error


def test_error_is_relative_l2_over_all_batches() -> None:
    total = ErrorSum()
    total.add({"y": np.array([3.0])}, {"y": np.array([3.0])})
    total.add({"y": np.array([4.0])}, {"y": np.array([4.5])})
    assert math.isclose(total.error, 0.5 / 5.0)


def test_the_worst_output_counts() -> None:
    total = ErrorSum()
    total.add({"a": np.ones(4), "b": np.ones(4)}, {"a": np.ones(4), "b": np.full(4, 1.25)})
    assert total.error == 0.25


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_what_should_be_finite_and_is_not_breaks_an_output(wrong: float) -> None:
    assert error(np.ones(3), np.array([1.0, wrong, 1.0])) == math.inf


def test_infinities_and_nan_of_the_reference_are_expected() -> None:
    odd = np.array([np.inf, -np.inf, np.nan, 2.0])
    assert error(odd, odd) == 0.0
    assert error(odd, np.array([np.inf, np.inf, np.nan, 2.0])) == math.inf
    assert error(odd, np.array([1.0, -np.inf, np.nan, 2.0])) == math.inf


def test_anything_is_infinitely_far_from_zero() -> None:
    assert error(np.zeros(2), np.zeros(2)) == 0.0
    assert error(np.zeros(2), np.array([0.0, 1e-9])) == math.inf


def test_integers_that_differ_are_an_error_and_no_break() -> None:
    assert error(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5])) == 0.5


def test_low_types_sequences_and_optionals() -> None:
    assert error(np.ones(2), np.ones(2, ml_dtypes.bfloat16)) == 0.0
    assert error([np.ones(2), np.ones(1)], [np.ones(2), np.full(1, 1.5)]) == pytest.approx(0.5 / math.sqrt(3))
    assert error([np.ones(2)], []) == math.inf
    assert error(None, None) == 0.0
    assert error(np.ones(2), np.ones(3)) == math.inf


@pytest.mark.parametrize("seed", range(5))
def test_rows_add_up_to_the_whole(seed: int) -> None:
    rng = np.random.default_rng(seed)
    want, found = rng.normal(size=(2, 6, 3, 5)).astype(np.float32)
    rows, whole = squares_by_row(want, found, 6)
    ((_, wrong, of),) = squares_of({"y": want}, {"y": found}, {}) or ()
    assert rows.shape == (6,)
    for one, other in ((whole, of), (rows.sum(), wrong)):
        assert math.isclose(one, other, rel_tol=90 * 2**-53), f"seed {seed}: as many roundings as numbers"


def test_a_row_that_is_broken_is_infinite_and_the_others_are_as_they_are() -> None:
    want = np.array([[1.0, 2.0], [np.inf, 1.0], [np.nan, 1.0], [3.0, 4.0], [np.inf, 1.0]])
    found = np.array([[1.5, 2.0], [np.inf, 1.0], [np.nan, 3.0], [np.nan, 4.0], [7.0, 1.0]])
    rows, whole = squares_by_row(want, found, 5)
    assert rows.tolist() == [0.25, 0.0, 4.0, math.inf, math.inf]
    assert whole == 1 + 4 + 1 + 1 + 9 + 16 + 1
