"""Intervals over samples: held to closed forms, and to how often they hold the truth on data that is known."""

import math

import numpy as np
import pytest
from scipy.special import stdtrit

from mezzo.numerics.measures import Interval
from mezzo.numerics.statistics.intervals import CONFIDENCE, LONE_FACTOR, root_ratio, weighted_mean, wilson
from mezzo.numerics.statistics.student import student_quantile


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [
        # By hand: (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n), z = 1.959964.
        (5, 10, 0.236593, 0.763407),
        (1, 10, 0.017876, 0.404150),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (90, 100, 0.825634, 0.944771),
    ],
)
def test_wilson_interval_is_that_of_the_book(successes: int, trials: int, low: float, high: float) -> None:
    found = wilson(successes, trials)
    assert found.estimate == successes / trials
    assert (found.low, found.high) == (pytest.approx(low, abs=1e-6), pytest.approx(high, abs=1e-6))
    assert found.confidence == CONFIDENCE == 0.95


def test_without_trials_nothing_is_known() -> None:
    assert wilson(0, 0) == Interval(1.0, 0.0, 1.0, CONFIDENCE)


def test_ratio_of_sums_is_estimated_over_all_samples() -> None:
    found = root_ratio([1.0, 3.0, 12.0], [4.0, 4.0, 8.0])
    assert found.estimate == 1.0
    assert found.low < 1.0 < found.high and found.confidence == CONFIDENCE


def test_one_sample_says_nothing_of_the_spread() -> None:
    assert root_ratio([4.0], [16.0]) == Interval(0.5, 0.5 / LONE_FACTOR, 0.5 * LONE_FACTOR, CONFIDENCE)
    assert weighted_mean([2.0], [7.0]) == Interval(2.0, 2.0 - 2 * 2.0, 2.0 + 2 * 2.0, CONFIDENCE)
    assert weighted_mean([-2.0], [7.0]) == Interval(-2.0, -6.0, 2.0, CONFIDENCE)
    assert LONE_FACTOR == 3.0


@pytest.mark.parametrize(
    ("squares", "wholes", "estimate"),
    [([0.0, 0.0], [1.0, 1.0], 0.0), ([0.0], [0.0], 0.0), ([1.0, 1.0], [0.0, 0.0], math.inf), ([], [], 0.0)],
)
def test_what_is_nothing_or_has_no_end_has_no_width(squares: list[float], wholes: list[float], estimate: float) -> None:
    assert root_ratio(squares, wholes) == Interval(estimate, estimate, estimate, CONFIDENCE)


def test_samples_that_agree_leave_no_doubt() -> None:
    found = root_ratio([2.0] * 5, [8.0] * 5)
    assert (found.low, found.estimate, found.high) == (0.5, 0.5, 0.5)
    mean = weighted_mean([3.0] * 4, [1.0, 2.0, 3.0, 4.0])
    assert (mean.low, mean.estimate, mean.high) == pytest.approx((3.0, 3.0, 3.0))


def test_students_interval_is_a_lower_bound_of_the_width() -> None:
    """Two samples: t is 12.706 on one degree of freedom, widened by the root of 2."""
    found = weighted_mean([0.0, 2.0], [1.0, 1.0])
    reach = math.sqrt(2) * 12.7062047 * math.sqrt(2) / 2
    assert (found.low, found.high) == (pytest.approx(1 - reach), pytest.approx(1 + reach))
    ratio = root_ratio([1.0, 3.0], [2.0, 2.0])  # residuals -1 and 1 of a sum of 4
    factor = math.exp(math.sqrt(2) * 12.7062047 * math.sqrt(2) / 4 / 2)
    assert (ratio.low, ratio.high) == (pytest.approx(1 / factor), pytest.approx(factor))


def test_weights_say_for_how_many_samples_a_value_stands() -> None:
    assert weighted_mean([1.0, 4.0], [2.0, 1.0]).estimate == 2.0
    assert weighted_mean([1.0, 4.0], [0.0, 0.0]).estimate == 0.0
    values = [1.0, 4.0, 1.0, 1.0]
    heavy, light = weighted_mean(values, [9.0, 1.0, 9.0, 9.0]), weighted_mean(values, [1.0] * 4)
    assert heavy.estimate == pytest.approx(31 / 28) and light.estimate == 1.75
    assert heavy.high - heavy.low < light.high - light.low


def test_two_calls_give_the_same_interval_and_order_does_not_matter_much() -> None:
    rng = np.random.default_rng(3)
    squares, wholes = rng.exponential(size=40), rng.exponential(size=40) + 1
    assert root_ratio(squares, wholes) == root_ratio(squares, wholes)
    order = rng.permutation(40)
    one, other = root_ratio(squares, wholes), root_ratio(squares[order], wholes[order])
    assert one.estimate == pytest.approx(other.estimate, rel=1e-12)  # sums in another order: a few eps
    assert one.high == pytest.approx(other.high, rel=0.1)  # another draw of 1,000 resamples


def test_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """300 data sets of 12 samples: 95 % are 285, and by chance no fewer than 270 (four deviations)."""
    rng = np.random.default_rng(11)
    held = narrow = 0
    for _ in range(300):
        squares = rng.exponential(size=12)
        found = root_ratio(squares, np.full(12, 1.0))
        held += found.low <= 1.0 <= found.high
        narrow += found.high / found.low < 12
    assert held >= 270 and narrow >= 290


def test_many_samples_are_added_up_in_groups() -> None:
    """5,000 samples in 2,048 groups: the same figure, and an interval about as wide as theory says."""
    rng = np.random.default_rng(5)
    squares = rng.exponential(size=5000)
    found = root_ratio(squares, np.ones(5000))
    assert found.estimate == pytest.approx(math.sqrt(squares.mean()), rel=1e-12)
    half = 1.96 * squares.std() / math.sqrt(5000) / squares.mean() / 2  # of the root's logarithm
    assert math.log(found.high / found.estimate) == pytest.approx(half, rel=0.15)
    assert math.log(found.estimate / found.low) == pytest.approx(half, rel=0.15)


def test_width_shrinks_with_the_root_of_the_samples() -> None:
    rng = np.random.default_rng(8)
    widths = []
    for count in (50, 800):
        found = weighted_mean(rng.normal(size=count), np.ones(count))
        widths.append(found.high - found.low)
    assert widths[0] / widths[1] == pytest.approx(4.0, rel=0.3)  # a draw of 50 knows its deviation to a tenth or so


@pytest.mark.parametrize("share", [0.001, 0.3, 0.5, 0.9, 0.975, 0.999])
def test_student_quantiles_are_those_of_scipy(share: float) -> None:
    """The sum ends after 299 degrees of freedom, and the expansion is good to 1e-11 from there on."""
    for degrees in (*range(1, 12), 50, 101, 298, 299, 300, 301, 1000, 10**6):
        expected = float(stdtrit(degrees, share))
        assert student_quantile(degrees, share) == pytest.approx(expected, rel=1e-11, abs=1e-15), degrees
