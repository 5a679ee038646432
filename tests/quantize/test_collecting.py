"""What is collected is what all batches hold together: however they are split, in any order, saved or not."""

import io
import json
from random import Random

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from quant_laws import LAW

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Range
from mezzo.quantize.observers import collector as collecting
from mezzo.quantize.observers.collector import Collector
from mezzo.quantize.observers.histogram import Histogram, exponents_for
from mezzo.quantize.observers.sampling import sampling_step, split_sample

_ANY = st.floats(width=32, allow_nan=True, allow_infinity=True)
_USUAL = st.floats(-8, 8, width=32)
BATCHES = st.lists(
    arrays(np.float32, array_shapes(max_dims=3, max_side=6), elements=_ANY | _USUAL), min_size=1, max_size=5
)
SLICED = st.lists(
    arrays(np.float32, st.tuples(st.integers(1, 4), st.just(3), st.integers(1, 5)), elements=_ANY | _USUAL),
    min_size=1, max_size=4,
)  # fmt: skip
SAMPLED = st.sampled_from([None, 1, 7])


def collect(batches: list[np.ndarray], axis: int | None = None, most: int | None = None) -> Collector:
    collector = Collector(most)
    for batch in batches:
        collector.add("x", batch, axis)
    return collector


def assert_same(one: Collector, other: Collector) -> None:
    states = one.state(), other.state()
    assert states[0].keys() == states[1].keys()
    for name in states[0]:
        assert states[0][name].tobytes() == states[1][name].tobytes(), name


@LAW
@given(BATCHES, st.randoms(use_true_random=False), SAMPLED)
@example([np.float32([-0.0]), np.float32([0.0])], Random(0), None)
@example([np.float32([-1e-45, -1.0]), np.float32([1.0, 4096.0, 3e38])], Random(1), None)
def test_order_of_batches_changes_nothing(batches: list[np.ndarray], random: Random, most: int | None) -> None:
    shuffled = list(batches)
    random.shuffle(shuffled)
    assert_same(collect(batches, most=most), collect(shuffled, most=most))


@LAW
@given(BATCHES, st.integers(0, 5), SAMPLED)
def test_merged_parts_are_one_pass(batches: list[np.ndarray], cut: int, most: int | None) -> None:
    whole = collect(batches, most=most)
    for first, second in ((batches[:cut], batches[cut:]), (batches[cut:], batches[:cut])):
        parts, rest = collect(first, most=most), collect(second, most=most)
        before = {name: array.copy() for name, array in rest.state().items()}
        parts.merge(rest)
        assert_same(parts, whole)
        assert all(np.array_equal(before[name], array) for name, array in rest.state().items()), "it stays as it is"


@LAW
@given(SLICED, st.integers(0, 4), st.sampled_from([None, 4]))
def test_merged_parts_of_slices_are_one_pass(batches: list[np.ndarray], cut: int, most: int | None) -> None:
    parts, rest = collect(batches[:cut], 1, most), collect(batches[cut:], -2, most)
    rest.merge(parts)
    assert_same(rest, collect(batches, 1, most))


@LAW
@given(BATCHES, st.integers(0, 5))
def test_stopped_and_resumed_is_one_pass(batches: list[np.ndarray], cut: int) -> None:
    kept = io.BytesIO()
    np.savez(kept, **collect(batches[:cut]).state())
    kept.seek(0)
    with np.load(kept, allow_pickle=False) as opened:
        resumed = Collector.from_state(dict(opened), "kept.npz")
    for batch in batches[cut:]:
        resumed.add("x", batch)
    assert_same(resumed, collect(batches))


@LAW
@given(BATCHES)
def test_counts_are_those_of_all_numbers(batches: list[np.ndarray]) -> None:
    seen = collect(batches).summary("x")
    every = np.concatenate([batch.reshape(-1) for batch in batches])
    finite = every[np.isfinite(every)].astype(np.float64)
    assert (seen.count, seen.nans) == (every.size, np.isnan(every).sum())
    assert seen.samples == finite.size
    assert seen.infinities == np.isinf(every).sum() and seen.strangers == every.size - finite.size
    assert seen.extremes == (Range(finite.min(), finite.max()) if finite.size else None)
    assert seen.zeros == (finite == 0).sum()
    places = np.trunc(finite / seen.width).astype(int) + collecting.TENSOR_BINS
    assert np.array_equal(seen.counts, np.bincount(places, minlength=2 * collecting.TENSOR_BINS + 1))


@LAW
@given(SLICED)
def test_each_slice_is_seen_as_if_alone(batches: list[np.ndarray]) -> None:
    slices = collect(batches, 1).summaries("x")
    for number, seen in enumerate(slices):
        alone = np.concatenate([batch[:, number].reshape(-1) for batch in batches])
        finite = alone[np.isfinite(alone)].astype(np.float64)
        assert seen.samples == finite.size
        assert (seen.count, seen.nans, seen.infinities) == (alone.size, np.isnan(alone).sum(), np.isinf(alone).sum())
        assert seen.extremes == (Range(finite.min(), finite.max()) if finite.size else None)
        assert seen.zeros == (finite == 0).sum()
        places = np.trunc(finite / seen.width).astype(int) + collecting.SLICE_BINS
        assert np.array_equal(seen.counts, np.bincount(places, minlength=2 * collecting.SLICE_BINS + 1))


@pytest.mark.parametrize("largest", [1.0, 1.5, 4096.0, 3.4028234663852886e38, 2.0**-100, 1e-45])
def test_bins_are_as_narrow_as_the_largest_number_allows(largest: float) -> None:
    seen = collect([np.float32([-largest, largest / 2])]).summary("x")
    used = np.float32(largest).astype(np.float64) / seen.width
    assert used <= collecting.TENSOR_BINS
    assert used > collecting.TENSOR_BINS / 2 or seen.width == 2.0**-126


def test_bins_that_are_joined_hold_what_wider_ones_would_have_held() -> None:
    numbers = np.float32([-4.0, -2.5, -2.0, -1.5, -1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 4.0])
    histogram = Histogram.empty(1, 4)
    histogram.reach(np.float64([4.0]))
    histogram.add_row(numbers, 1)
    assert histogram.counts[0].tolist() == [1, 0, 2, 2, 3, 2, 2, 0, 1] and histogram.zeros[0] == 1
    histogram.reach(np.float64([5.0]))
    assert histogram.counts[0].tolist() == [0, 0, 1, 2, 7, 2, 1, 0, 0]
    histogram.reach(np.float64([1e9]))
    assert histogram.counts[0].tolist() == [0, 0, 0, 0, 13, 0, 0, 0, 0]


def test_bins_reach_the_number_that_they_were_made_for() -> None:
    rng = np.random.default_rng(3)
    for largest in [*np.exp2(rng.uniform(-117, 127, 200)), *2.0 ** np.arange(-117, 127)]:
        width = 2.0 ** float(exponents_for(np.float64([largest]), 256)[0])
        assert 128 * width < largest <= 256 * width


def test_sample_is_of_all_places_and_counts_for_all_numbers() -> None:
    image = np.broadcast_to(np.arange(16, dtype=np.float32), (4, 64, 16))  # columns differ
    seen = collect([image], most=256).summary("x")
    assert (seen.count, seen.samples) == (4096, -(-4096 // 17)), "more than so many are far out: all are sampled"
    assert abs(int(seen.counts.sum()) - 4096) < 17, "less than a step more"
    shares = seen.counts[seen.counts > 0] / seen.counts.sum()
    assert len(shares) == 16 and np.ptp(shares) < 0.01, "every column, alike"
    extremes = np.zeros(4096, np.float32)
    extremes[3::1000] = 5.0, np.nan, -7.0, np.inf, 6.0
    seen = collect([extremes], most=2).summary("x")
    assert (seen.extremes, seen.nans, seen.infinities) == (Range(-7.0, 6.0), 1, 1), "these are of all numbers"


@pytest.mark.parametrize(("low", "high"), [(-3.0, 4.0), (-4.0, 3.0), (-1.0, 4.0), (-4.0, 1.0), (0.0, 4.0), (-4.0, 0.0)])
def test_numbers_far_out_are_counted_one_by_one(low: float, high: float) -> None:
    numbers = np.random.default_rng(0).uniform(max(low, -1), min(high, 1), 5000).astype(np.float32)
    numbers[100:150], numbers[200:230] = np.linspace(0.55, 1, 50) * high, np.linspace(0.55, 1, 30) * low
    is_far = np.abs(numbers) > 2
    once, several, times = split_sample(numbers, Range(low, high), 100)
    assert np.array_equal(once, numbers[is_far]) and times == 53
    assert np.array_equal(several, numbers[::53][~is_far[::53]])
    seen = collect([numbers], most=100).summary("x")
    places = np.trunc(numbers[is_far].astype(np.float64) / seen.width).astype(int) + collecting.TENSOR_BINS
    exact = np.bincount(places, minlength=len(seen.counts))
    assert np.array_equal(seen.counts[exact > 0], exact[exact > 0]) and seen.samples == len(once) + len(several)


@pytest.mark.parametrize("length", [1, 100, 101, 200, 12544, 802816, 10**7])
def test_sampling_step_takes_all_of_few_and_avoids_common_strides(length: int) -> None:
    step = sampling_step(length, 100)
    assert (step == 1) == (length <= 100) and sampling_step(length, None) == 1
    assert all(step % prime for prime in (2, 3, 5, 7)) and length / step <= 100


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_other_floats_are_taken_as_fp32(dtype: type) -> None:
    numbers = np.array([-1.5, 0.0, 3.25]).astype(dtype)
    assert_same(collect([numbers]), collect([numbers.astype(np.float32)]))


def test_fp64_beyond_fp32_is_infinite() -> None:
    seen = collect([np.array([1e300, -1e300, 1.0])]).summary("x")
    assert (seen.infinities, seen.extremes) == (2, Range(1.0, 1.0))


@pytest.mark.parametrize("batch", [np.zeros((0, 3), np.float32), np.zeros((2, 0), np.float32), np.float32(3.0)])
def test_batch_of_any_shape_is_collected(batch: np.ndarray) -> None:
    seen = collect([np.asarray(batch)]).summary("x")
    assert seen.count == np.asarray(batch).size


def test_batch_without_numbers_along_an_axis_says_nothing() -> None:
    collector = collect([np.zeros((0, 3, 2), np.float32)], 1)
    assert [seen.extremes for seen in collector.summaries("x")] == [None] * 3


def test_memory_does_not_grow_with_batches() -> None:
    rng = np.random.default_rng(5)
    collector = Collector()
    sizes = []
    for _ in range(40):
        collector.add("x", rng.standard_cauchy((7, 100)).astype(np.float32))
        sizes.append(sum(array.nbytes for name, array in collector.state().items() if not name.startswith("bin_")))
    assert len(set(sizes)) == 1
    assert len(collector.summary("x").counts) == 2 * collecting.TENSOR_BINS + 1


@pytest.mark.parametrize(
    ("add", "message"),
    [
        (lambda c: c.add("/conv", np.arange(3)), r"^value '/conv' holds int64, wanted floats; leave it out"),
        (lambda c: c.add("y", np.zeros((2, 2), np.float32), 2), r"value 'y' has 2 dimensions and no axis 2; name one"),
        (lambda c: c.add("x", np.zeros(3, np.float32), 0), r"'x' had no axis and now has 3 slices along axis 0; calib"),
        (lambda c: c.add("s", np.zeros((1, 4), np.float32), 1), r"'s' had 3 slices along axis 1 and now has 4 slices"),
        (lambda c: c.merge(Collector(9)), r"collections sample None and 9 numbers of a tensor; merge those that were"),
        (lambda c: c.merge(collect([np.zeros(3, np.float32)], 0)), r"'x' had no axis and now has 3 slices along ax"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_and_changes_nothing(add: object, message: str) -> None:
    collector = collect([np.ones(5, np.float32)])
    collector.add("s", np.ones((1, 3), np.float32), 1)
    before = collector.state()
    with pytest.raises(InputError, match=message):
        add(collector)  # type: ignore[operator]
    assert all(np.array_equal(before[name], array) for name, array in collector.state().items())


def _damaged() -> list[tuple[str, dict[str, np.ndarray]]]:
    good = collect([np.float32([1.0, 2.0, np.nan])]).state()
    about = json.loads(good["about"].tobytes())

    def text(**changed: object) -> np.ndarray:
        return np.frombuffer(json.dumps({**about, **changed}).encode(), np.uint8)

    cases = {
        "nothing": {},
        "no text": {**good, "about": np.zeros(3)},
        "other version": {**good, "about": text(version="mezzo-calibration/0")},
        "huge": {**good, "about": text(values=[["x", None, 1, 1 << 40]])},
        "odd bins": {**good, "about": text(values=[["x", None, 1, 4095]])},
        "no slices": {**good, "about": text(values=[["x", None, 0, 4096]])},
        "twice": {**good, "about": text(values=[["x", None, 1, 4096]] * 2)},
        "negative sample": {**good, "about": text(most_sampled=-1)},
        "short": {**good, "count": good["count"][:0]},
        "negative": {**good, "nans": -good["nans"]},
        "floats": {**good, "count": good["count"].astype(float)},
        "NaN": {**good, "lowest": good["lowest"] * np.nan},
        "far exponent": {**good, "exponents": good["exponents"] + 1000},
        "far bin": {**good, "bin_places": good["bin_places"] + 10**6},
        "bins of other length": {**good, "bin_counts": good["bin_counts"][:-1]},
        "no count in a bin": {**good, "bin_counts": good["bin_counts"] * 0},
        "more zeros than numbers": {**good, "zeros": good["zeros"] + 5},
        "objects": {**good, "about": np.array([{}], object)},
    }
    return list(cases.items())


@pytest.mark.parametrize(("damage", "state"), _damaged(), ids=[name for name, _ in _damaged()])
def test_damaged_state_is_refused_on_one_line(damage: str, state: dict[str, np.ndarray]) -> None:
    with pytest.raises(InputError, match=r"^kept\.npz: holds no calibration of this version, or a damaged one; delete"):
        Collector.from_state(state, "kept.npz")


def test_sign_of_zero_makes_no_difference() -> None:
    zeros = [np.float32([-0.0]), np.float32([0.0])]
    assert_same(collect(zeros), collect(zeros[::-1]))
    assert str(collect(zeros).summary("x").extremes) == "Range(low=0.0, high=0.0)"
    assert str(collect(zeros[:1]).summary("x").extremes) == "Range(low=0.0, high=0.0)"
