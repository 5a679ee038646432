"""What a meter says of two values: laws over random data, and the faults that no error shows."""

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import swept

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import FORMATS, DType
from mezzo.numerics.data.data_checks import MOST_NOISE, Unknown, judge_noise
from mezzo.numerics.measures import Deviation, Interval, Ruling
from mezzo.numerics.metrics.metrics import Meter
from mezzo.numerics.metrics.user_metric import MetricTally, load_metric
from mezzo.numerics.statistics.intervals import LONE_FACTOR, root_ratio, weighted_mean, wilson
from mezzo.numerics.statistics.noise import Shaker
from mezzo.numerics.verdicts import choose_budget, judge, judge_output, read_drop

F16, BF16, F32 = DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32
EPS64 = 2.0**-52


def measure(want, found, *, fmt=F16, splits=(), samples=None):
    meter = Meter("y", fmt)
    if isinstance(want, np.ndarray) and want.ndim:
        for part, other in zip(np.split(want, splits), np.split(found, splits), strict=True):
            meter.add(part, other, len(part) if samples is None else samples)
    else:
        meter.add(want, found, 1)
    return meter.result()


def random_pair(seed, shape=(12, 3, 7), scale=1.0, noise=1e-3):
    random = np.random.default_rng(seed)
    want = (scale * random.normal(size=shape)).astype(np.float32)
    return want, (want * (1 + noise * random.normal(size=shape))).astype(np.float32)


@settings(deadline=None, max_examples=swept(40))
@given(
    seed=st.integers(0, 1000),
    splits=st.sets(st.integers(1, 11), max_size=6).map(sorted),
    scale=st.sampled_from([1e-30, 1.0, 1e30]),
)
def test_any_split_into_batches_gives_the_same_deviation(seed, splits, scale):
    want, found = random_pair(seed, scale=scale)
    found[seed % 12, 0, 0] = [np.nan, np.inf, 0.0][seed % 3]
    whole, split = measure(want, found), measure(want, found, splits=splits)
    for name in ("samples", "largest_absolute", "largest_ulp", "fault", "top1", "topk", "k"):
        assert getattr(whole, name) == getattr(split, name), name
    for name in ("cosine", "sqnr_db"):
        # Sums of 252 squares in another order differ by at most 252 eps; a root halves that and a logarithm shrinks it.
        assert math.isclose(getattr(whole, name), getattr(split, name), rel_tol=252 * EPS64), name
    for name in ("estimate", "low", "high"):
        pair = getattr(whole.relative_l2, name), getattr(split.relative_l2, name)
        assert math.isclose(*pair, rel_tol=252 * EPS64), name


@pytest.mark.parametrize("shape", [(5, 3), (1, 300_000), (3, 300_000), (2000, 2), ()])
def test_numbers_are_those_of_their_definitions(shape):
    want, found = (np.asarray(array, np.float64) for array in random_pair(1, shape or (1,)))
    want, found = want.reshape(shape), found.reshape(shape)
    result = measure(want, found)
    error = np.linalg.norm((found - want).ravel()) / np.linalg.norm(want.ravel())
    # Both sum up to 900,000 squares in FP64, in different orders; roundings add up like the root of their number.
    close = {"rel_tol": 1000 * EPS64}
    assert math.isclose(result.relative_l2.estimate, error, **close)
    assert math.isclose(result.sqnr_db, -20 * np.log10(error), **close)
    assert result.largest_absolute == np.abs(found - want).max()
    cosine = np.vdot(want, found) / np.linalg.norm(want.ravel()) / np.linalg.norm(found.ravel())
    assert math.isclose(result.cosine, cosine, **close)


@pytest.mark.parametrize("fmt", [F16, BF16, F32])
def test_neighbours_in_a_format_are_one_ulp_apart(fmt):
    numpy_type = {F16: np.float16, BF16: ml_dtypes.bfloat16, F32: np.float32}[fmt]
    facts = FORMATS[fmt]
    for number in (1.0, 1.5, 3.0, facts.smallest_normal, facts.smallest_normal / 2, 0.0, -7.0):
        below = np.array([number], numpy_type)
        above = np.nextafter(below, np.array([np.copysign(6e4, number)], numpy_type))
        assert measure(below.astype(np.float64), above.astype(np.float64), fmt=fmt).largest_ulp == 1.0, number


def test_a_value_is_no_different_from_itself():
    want, _ = random_pair(3)
    want[0] = [[np.nan] * 7, [np.inf] * 7, [-np.inf] * 7]
    result = measure(want, want.copy())
    assert result.relative_l2 == Interval(0.0, 0.0, 0.0)
    assert (result.fault, result.sqnr_db, result.largest_ulp) == (None, math.inf, 0.0)
    assert result.top1.estimate == result.topk.estimate == 1.0


def flat(row, value):
    def change(array):
        array[row] = value

    return change


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (flat((2, 0, 0), np.nan), "NaN that the reference does not have in 1 of 12 samples"),
        (flat((slice(3), 0, 0), -np.inf), "infinities that the reference does not have in 3 of 12 samples"),
        (flat(..., 0.0), "all zero, and the reference is not"),
        (flat(..., -0.0), "all zero, and the reference is not"),
        (flat(..., 0.25), "constant (0.25 everywhere), and the reference is not"),
        (flat(4, 0.0), "all zero in 1 of 12 samples, where the reference is not"),
        (flat(slice(5), 0.25), "constant in 5 of 12 samples, where the reference is not"),
    ],
)
@pytest.mark.parametrize("splits", [(), (2, 7)])
def test_faults_are_named(change, fault, splits):
    want, _ = random_pair(4)
    found = want.copy()
    change(found)
    assert measure(want, found, splits=splits).fault == fault
    assert judge([judged(measure(want, found), choose_budget(1e9, F16, 0.0))], ()).ruling is Ruling.DIFFERENT


@pytest.mark.parametrize(
    ("want", "found", "fault"),
    [
        (np.inf, -np.inf, "infinities of the other sign in 1 of 2 samples"),
        (np.nan, 1.0, "finite numbers where the reference is NaN or infinite in 1 of 2 samples"),
        (-np.inf, -65504.0, "finite numbers where the reference is NaN or infinite in 1 of 2 samples"),
        (np.nan, np.inf, "infinities that the reference does not have in 1 of 2 samples"),
        (-np.inf, -np.inf, None),
        (np.nan, np.nan, None),
    ],
)
def test_masks_in_the_same_places_are_no_fault(want, found, fault):
    result = measure(np.array([[want, 1.0], [2.0, 3.0]]), np.array([[found, 1.0], [2.0, 3.0]]))
    assert result.fault == fault
    assert result.relative_l2.estimate == 0.0


def test_rounding_alone_is_no_constant():
    near_one = 1 + np.linspace(0, 3e-4, 16, dtype=np.float32).reshape(4, 4)
    assert measure(near_one, near_one.astype(np.float16)).fault is None


def test_samples_too_small_to_notice_may_vanish():
    want, _ = random_pair(5)
    want[3] *= 1e-6
    found = want.copy()
    found[3] = 0.0
    assert measure(want, found).fault is None
    want[3] *= 1e5
    assert measure(want, found).fault == "all zero in 1 of 12 samples, where the reference is not"


def test_samples_of_few_elements_may_be_flat_by_chance():
    want, _ = random_pair(5, (12, 15))
    found = want.copy()
    found[3], found[4] = 0.0, 0.25
    assert measure(want, found).fault is None


def test_error_against_zeros_is_a_fault():
    zeros = np.zeros((3, 4))
    result = measure(zeros, zeros + np.array([0, 0, 0, 1e-9]))
    assert result.fault == "the reference is all zero, and this is up to 1e-09"
    assert (result.relative_l2.estimate, result.cosine) == (math.inf, 0.0)
    assert measure(zeros, -zeros).fault is None and measure(zeros, zeros).cosine == 1.0


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_what_is_no_float_has_to_be_equal(dtype):
    want = np.array([1, 0, 1, 1], dtype)
    assert measure(want, want.copy()).fault is None
    assert measure(want, np.zeros(4, dtype)).fault.startswith("3 of 4 elements differ, and only equal ones are right")


def test_large_integers_are_compared_exactly():
    assert measure(np.array([2**62]), np.array([2**62 + 1])).fault.startswith("1 of 1 elements differ")


def test_text_has_to_be_equal():
    want = np.array(["a", "b"], object)
    assert measure(want, np.array(["a", "b"])).fault is None
    assert measure(want, np.array(["a", "c"])).fault == "1 of 2 elements differ, and only equal ones are right"


def test_sequences_are_compared_element_by_element():
    one, other = np.ones(3), np.array([1.0, 1.0, 1.5])
    assert measure([one, one], [one, one]).fault is None
    assert measure([one, one], [one, other]).largest_absolute == 0.5
    assert measure([one], [one, other]).fault == "a sequence of 2 where the reference has 1"
    assert measure([], []).relative_l2.estimate == 0.0
    assert measure(None, None).fault is None
    assert measure(one[0], None).fault == "empty where the reference is not so"
    assert measure([one], one[0]).fault == "one of the two is a sequence, the other is none"


def test_other_shapes_are_a_fault():
    assert measure(np.ones((2, 3)), np.ones((2, 1))).fault == "shape [2, 1] where the reference has [2, 3]"


@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 5)])
def test_empty_arrays_are_the_same(shape):
    result = measure(np.zeros(shape), np.zeros(shape))
    assert (result.relative_l2.estimate, result.fault, result.samples) == (0.0, None, shape[0])


def test_nothing_at_all_is_the_same():
    assert Meter("y", F16).result().relative_l2 == Interval(0.0, 0.0, 0.0)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_low_types_are_compared_with_wide_ones(dtype):
    want = np.array([[1.0, 2.5], [-3.0, 0.5]])
    result = measure(want, want.astype(dtype))
    assert (result.relative_l2.estimate, result.fault) == (0.0, None)


def test_complex_numbers_are_pairs():
    want = np.array([3 + 4j, 1j])
    assert measure(want, want * 1.5).relative_l2.estimate == 0.5


def test_numbers_whose_squares_overflow_are_told():
    want = np.array([1e200, 3.0])
    assert measure(want, want.copy()).fault is None
    assert "too large to be measured" in measure(want, want * 2).fault


def test_ranks_agree_where_the_reference_ties():
    want = np.array([[1.0, 3.0, 3.0], [3.0, 2.0, 1.0], [0.0, 5.0, 1.0]])
    found = np.array([[1.0, 2.9, 3.1], [1.0, 2.0, 3.0], [0.0, 5.0, 1.0]])
    result = measure(want, found)
    assert result.top1.estimate == 2 / 3
    assert (result.topk, result.k) == (None, None)  # three of three are always the same three


def test_the_five_largest_are_a_set():
    want = np.arange(8.0)[None]
    swapped, moved = want.copy(), want.copy()
    swapped[0, [6, 7]] = want[0, [7, 6]]
    moved[0, [0, 7]] = want[0, [7, 0]]
    assert (measure(want, swapped).top1.estimate, measure(want, swapped).topk.estimate) == (0.0, 1.0)
    assert (measure(want, moved).topk.estimate, measure(want, moved).k) == (0.0, 5)


def test_values_of_another_length_are_one_sample_and_flattened_ones_are_shared_out():
    want, found = random_pair(6, (4, 5))
    assert measure(want, found, samples=3).samples == 1
    assert measure(want, found, samples=2).samples == 2
    flat = measure(want.reshape(20), found.reshape(20), samples=4)
    assert flat.relative_l2 == measure(want, found).relative_l2


def test_intervals_cover_the_truth_as_often_as_they_say():
    random = np.random.default_rng(7)
    covered = 0
    for _ in range(200):
        squares = random.gamma(3.0, 1 / 3, 20)
        interval = root_ratio(squares, np.ones(20))
        covered += interval.low <= 1.0 <= interval.high
    # 95 % of 200 are 190, with a standard deviation of 3.1; skewed errors cost the bootstrap a few per cent.
    assert 180 <= covered <= 199


def test_more_samples_narrow_the_interval():
    random = np.random.default_rng(8)
    widths = []
    for count in (2, 8, 64, 5000):
        interval = root_ratio(random.gamma(3.0, 1 / 3, count), np.ones(count))
        assert interval.low <= interval.estimate <= interval.high
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)


def test_one_sample_is_trusted_within_a_factor():
    assert root_ratio([4.0], [1.0]) == Interval(2.0, 2.0 / LONE_FACTOR, 2.0 * LONE_FACTOR)
    assert weighted_mean([1.0], [5.0]) == Interval(1.0, -1.0, 3.0)
    assert root_ratio([0.0], [1.0]) == Interval(0.0, 0.0, 0.0)


def test_wilson_interval_is_the_published_one():
    # Newcombe, "Two-sided confidence intervals for the single proportion", 1998, table I, method 3.
    published = {
        (81, 263): (0.2553, 0.3662),
        (15, 148): (0.0624, 0.1605),
        (0, 20): (0.0, 0.1611),
        (1, 29): (0.0061, 0.1718),
    }
    for (successes, trials), (low, high) in published.items():
        interval = wilson(successes, trials)
        assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)
    assert wilson(20, 20).high == 1.0


def deviation(high, estimate=None, fault=None):
    estimate = high if estimate is None else estimate
    return Deviation(
        name="y",
        samples=4,
        relative_l2=Interval(estimate, estimate, high),
        cosine=1.0,
        sqnr_db=60.0,
        largest_absolute=0.0,
        largest_ulp=0.0,
        ulp_format=F16,
        fault=fault,
    )


def judged(output, budget, unknown=None, noise=0.0):
    return judge_output(output, budget, noise, unknown)


def test_a_verdict_needs_the_whole_interval():
    budget = choose_budget(1e-3, F16, 0.0)

    def rule(*outputs):
        return judge([judged(output, budget) for output in outputs], ())

    assert rule(deviation(1e-3)).is_same
    over = rule(deviation(5e-3, 2e-3))
    assert over.ruling is Ruling.DIFFERENT and over.because == "output 'y' differs most, by 0.002, more than 0.001"
    undecided = rule(deviation(2e-3, 5e-4))
    assert undecided.ruling is Ruling.UNDECIDED
    assert undecided.because.startswith("output 'y' differs most, by 0.0005")
    assert undecided.because.endswith("more samples would decide")
    assert rule(deviation(0.0), deviation(0.0, fault="all zero")).ruling is Ruling.DIFFERENT
    assert rule(deviation(math.nan)).ruling is Ruling.DIFFERENT


def test_what_is_wrong_wins_and_what_cannot_be_told_comes_before_undecided():
    budget = choose_budget(1e-3, F16, 0.0)
    wrong, same, open_ = (judged(deviation(high, low), budget) for high, low in ((1, 1), (1e-4, 1e-4), (2e-3, 5e-4)))
    dark = judged(deviation(1e-4), budget, Unknown("is zero everywhere", True))
    rulings = [judge(outputs, ()).ruling for outputs in ([wrong, dark], [same, dark, open_], [same, open_], [same])]
    assert rulings == [Ruling.DIFFERENT, Ruling.UNKNOWN, Ruling.UNDECIDED, Ruling.SAME]
    assert judge([wrong], ["no sample"]).ruling is Ruling.DIFFERENT
    told = judge([same, dark], [])
    assert told.because == "output 'y' is zero everywhere; 'y' could be judged: the same"
    assert (told.error, told.budget) == (same.relative_l2, budget.error)
    nothing = judge([], ["the data holds no sample"])
    assert nothing.ruling is Ruling.UNKNOWN and math.isnan(nothing.error.estimate)
    assert nothing.because == "the data holds no sample"
    assert judge([], []).because == "the models have no outputs"


def test_noise_hides_errors_only_as_far_as_it_goes():
    # (noise, what a budget would be raised to, budget, error): what it comes to.
    cases = {
        (1e-7, 1e-7, 8e-3, 0.5): None,
        (0.3, 0.3, 0.1, 0.2): False,  # between the raised budget and the noise: nobody knows
        (0.3, 0.3, 0.1, 0.5): None,  # past the noise: wrong
        (0.7, 0.7, 0.1, 1e-3): True,
        (math.inf, math.inf, 0.1, 1e-3): True,
        (0.7, 0.7, 0.1, 0.0): None,  # equal to the last bit
    }
    for numbers, is_blind in cases.items():
        found = judge_noise(*numbers)
        assert (None if found is None else found.is_blind) == is_blind, numbers


def test_a_budget_below_the_noise_is_raised_to_it():
    assert choose_budget(1e-9, F16, 1e-7).error == 1e-7
    assert "below it" in choose_budget(1e-9, F16, 1e-7).source
    assert choose_budget(None, F16, 1e-7).error == 8 * 2.0**-10
    assert choose_budget(None, F32, 1e-6).error == 16e-6
    assert choose_budget(None, BF16, 0.09).error == 0.09
    # Answers farther off than a tenth do not pass as the same, however noisy the reference is.
    assert choose_budget(None, BF16, 0.5).error == choose_budget(None, F32, 0.01).error == MOST_NOISE
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(InputError, match="max_error is"):
            choose_budget(wrong, F16, 0.0)


def test_drops_are_absolute_or_a_share():
    assert read_drop("0.005").allowed(0.5) == 0.005
    assert read_drop("0.5%").allowed(-2.0) == 0.01
    for wrong in ("-1", "1 percent", "nan", "inf%", ""):
        with pytest.raises(InputError, match=r"max_drop is .*; give a difference such as"):
            read_drop(wrong)


def test_shaking_moves_half_a_unit_on_the_average_and_spares_whole_numbers():
    values = np.random.default_rng(9).normal(size=10_000).astype(np.float32)
    values[:5] = [0.0, 2.0, -65504.0, np.inf, -0.0]
    moved = Shaker().shake(values)
    steps = (moved[5:].astype(np.float64) - values[5:]) / np.spacing(values[5:])
    # Two draws in four move: 5,000 of 10,000, give or take 4 standard deviations of 50.
    assert set(steps) == {-1.0, 0.0, 1.0} and abs(np.abs(steps).sum() - 5000) < 200
    assert np.array_equal(moved[:5], values[:5])
    assert np.array_equal(moved, Shaker().shake(values))
    integers = np.arange(3)
    assert Shaker().shake(integers) is integers


def test_a_metric_is_averaged_over_samples():
    tally = MetricTally(lambda outputs, labels: outputs["y"] == labels["t"])
    tally.add({"y": np.array([1, 2])}, {"y": np.array([1, 3])}, {"t": np.array([1, 2])}, 2)
    tally.add({"y": np.array([5])}, {"y": np.array([5])}, {"t": np.array([4])}, 1)
    assert (tally.result().reference, tally.result().candidate) == (2 / 3, 1 / 3)
    whole = MetricTally(lambda outputs, labels: outputs["y"].mean())
    whole.add({"y": np.array([1.0, 2.0])}, {"y": np.array([1.0, 2.0])}, {}, 2)
    whole.add({"y": np.array([6.0])}, {"y": np.array([3.0])}, {}, 1)
    assert (whole.result().reference, whole.result().candidate) == (3.0, 2.0)
    assert whole.drop().estimate == 1.0


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda outputs, labels: 1 / 0, "metric <lambda> failed: ZeroDivisionError: division by zero; mend it"),
        (lambda outputs, labels: [math.nan], "gave a score that is no finite number"),
        (lambda outputs, labels: "good", "failed: ValueError"),
        (lambda outputs, labels: outputs["y"], "gave 1 scores for the reference and 2 for the model"),
    ],
)
def test_metrics_that_fail_are_one_line(metric, message):
    with pytest.raises(InputError, match=message):
        MetricTally(metric).add({"y": np.ones(1)}, {"y": np.ones(2)}, {}, 1)


def test_metrics_are_found_in_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "scores_here.py").write_text(
        "def score(outputs, labels):\n    return 1.0\nlevel = 3\nraise_it = {}['a']"
    )
    (tmp_path / "good_scores.py").write_text(
        "class Of:\n    def score(outputs, labels):\n        return 1.0\nlevel = 3"
    )
    monkeypatch.chdir(tmp_path)
    assert load_metric("good_scores:Of.score")({}, {}) == 1.0
    for text, message in (
        ("good_scores", "metric is 'good_scores'; write module:function"),
        (":f", "write module:function"),
        ("good_scores:level", "is a int, wanted a function"),
        ("good_scores:none", "cannot be imported: AttributeError"),
        ("scores_here:score", "cannot be imported: KeyError"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
    ):
        with pytest.raises(InputError, match=message):
            load_metric(text)


def test_results_do_not_end_a_meter():
    want, found = random_pair(10)
    meter = Meter("y", F16)
    meter.add(want[:5], found[:5], 5)
    meter.result()
    meter.add(want[5:], found[5:], 7)
    assert meter.result() == replace(measure(want, found, splits=[5]))
