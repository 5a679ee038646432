"""What each calibrator chooses, beside what its definition says, written out the slow way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quant_laws import LAW
from sweeps import swept

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Grid, Range, Summary
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import calibrator
from mezzo.quantize.arithmetic.arithmetic import round_trip
from mezzo.quantize.arithmetic.choosing import choose_range
from mezzo.quantize.arithmetic.parameters import parameters_for
from mezzo.quantize.arithmetic.squares import squared_errors
from mezzo.quantize.calibrators.entropy import divergences
from mezzo.quantize.observers.collector import Collector
from mezzo.quantize.observers.density import Density, density_of

U8, S8 = Grid(dtype=DType.UINT8), Grid(dtype=DType.INT8, is_symmetric=True)
F8 = Grid(dtype=DType.FLOAT8E4M3FN, is_symmetric=True)
SEEDED = np.random.default_rng(11)
SHAPES = {
    "normal": SEEDED.standard_normal(50_000),
    "relu": np.maximum(SEEDED.standard_normal(50_000), 0),
    "exponential": SEEDED.exponential(size=50_000),
    "laplace": SEEDED.laplace(size=50_000),
    "shifted": SEEDED.normal(3, 1, 50_000),
    "negative": -SEEDED.exponential(size=50_000),
    "gelu": (lambda x: x / (1 + np.exp(-1.7 * x)))(SEEDED.standard_normal(50_000)),
}
EVERY_SHAPE = pytest.mark.parametrize("shape", SHAPES)
EVERY_GRID = pytest.mark.parametrize("grid", [U8, S8], ids=["u8", "s8"])


# Of so many numbers, chance alone is not seen.
MANY = 1e18


def seen(*numbers: object) -> Summary:
    collector = Collector(None)
    collector.add("x", np.concatenate([np.ravel(np.float32(each)) for each in numbers]))
    return collector.summary("x")


def chosen(name: str, numbers: object, grid: Grid = U8) -> Range:
    held = choose_range(calibrator(name), seen(numbers), grid)
    assert held is not None
    return held


def error(numbers: np.ndarray, held: Range, grid: Grid) -> float:
    floats = np.float32(numbers)
    return float(np.square(round_trip(floats, parameters_for(held, grid)).astype(np.float64) - floats).mean())


# Cases of the reference systems' own tests.


@pytest.mark.parametrize("name", ["entropy", "mse", "percentile=100", "minmax"])
@pytest.mark.parametrize("low", [-10.532, 0.0])
@EVERY_GRID
def test_uniform_numbers_are_covered_whole(name: str, low: float, grid: Grid) -> None:
    numbers = np.random.default_rng(5).uniform(low, 11.3432, (8, 3, 23, 23))
    word, _, setting = name.partition("=")
    by = calibrator(word).setting(setting) if setting else calibrator(word)
    held = choose_range(by, seen(numbers), grid)
    assert held is not None and held.high == pytest.approx(numbers.max(), rel=1e-2)


@pytest.mark.parametrize("name", ["entropy", "mse", "percentile", "minmax"])
@pytest.mark.parametrize("share", [0.05, 0.5, 1.0])
@EVERY_GRID
def test_mass_at_the_edge_is_covered(name: str, share: float, grid: Grid) -> None:
    rng = np.random.default_rng(6)
    edge = np.full(int(20_000 * share), 9.0)
    numbers = np.concatenate([edge, -edge, rng.standard_normal(20_000 - len(edge))])
    held = chosen(name, numbers, grid)
    # A share ends inside the last bin.
    assert held.high == pytest.approx(9.0, rel=1e-3) and held.low == pytest.approx(-9.0, rel=1e-3)


@pytest.mark.parametrize("name", ["entropy", "mse", "percentile"])
@EVERY_GRID
def test_lone_outlier_is_clipped(name: str, grid: Grid) -> None:
    numbers = np.append(np.random.default_rng(7).standard_normal(200_000), 40.0)
    assert chosen(name, numbers, grid).high < 35


@pytest.mark.parametrize("name", ["entropy", "mse"])
def test_zeros_of_a_relu_change_nothing(name: str) -> None:
    numbers = np.abs(SHAPES["normal"])
    assert chosen(name, np.append(numbers, np.zeros(10**6))) == chosen(name, numbers)


# Percentile: a share of all numbers is inside, and no more than a bin beside it.


@EVERY_SHAPE
@EVERY_GRID
@pytest.mark.parametrize("percent", [90.0, 99.0, 99.99])
def test_percentile_covers_its_share(shape: str, grid: Grid, percent: float) -> None:
    numbers = np.float32(SHAPES[shape])
    summary = seen(numbers)
    held = choose_range(calibrator("percentile").setting(str(percent)), summary, grid)
    assert held is not None

    rest = 1 - percent / 100
    if grid.is_symmetric:
        sides = [(np.abs(numbers), held.largest)]
    else:
        is_one_sided = numbers.min() >= 0 or numbers.max() <= 0
        rest = rest if is_one_sided else rest / 2
        sides = [(numbers, held.high), (-numbers, -held.low)]
    for side, end in sides:
        if end > 0:  # else the rest reaches past zero, which is always covered
            wider, narrower = (float((side > end + beside).mean()) for beside in (summary.width, -summary.width))
            assert wider <= rest + 1e-9 and rest - 1e-9 <= narrower


def test_percentile_of_both_sides_cuts_half_of_the_rest_from_each() -> None:
    numbers = np.linspace(-1, 3, 100_001)
    held = choose_range(calibrator("percentile").setting("90"), seen(numbers), U8)
    assert held is not None
    assert (held.low, held.high) == (pytest.approx(-0.8, abs=1e-3), pytest.approx(2.8, abs=1e-3))


def test_percentile_of_magnitudes_on_a_symmetric_grid() -> None:
    numbers = np.linspace(-1, 3, 100_001)
    held = choose_range(calibrator("percentile").setting("90"), seen(numbers), S8)
    assert held is not None and held.low == -1.0 and held.high == pytest.approx(2.6, abs=1e-3)  # 0.4 of 4 lie beyond


@pytest.mark.parametrize("text", ["", "half", "49.9", "100.1", "nan", "-99"])
def test_percentile_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"no share to cover; write a percentage from 50 to 100, such as percentile="):
        calibrator("percentile").setting(text)


# Entropy: the slow way is the reference's loop, with groups that end inside bins.


def slow_divergence(density: Density, threshold: int, groups: int) -> float:
    masses = np.concatenate([density.below[::-1], density.above])
    zero = len(density.below)
    first, last = max(zero - threshold, 0), min(zero + threshold, len(masses))
    inside = masses[first:last]
    if not inside.sum():
        return float("inf")
    told = inside.copy()
    told[0] += masses[:first].sum()
    told[-1] += masses[last:].sum()
    edges = np.linspace(0, len(inside), groups + 1)
    even = np.zeros(groups)
    shares = np.zeros((groups, len(inside)))  # of each bin in each group
    for group in range(groups):
        starts, ends = (
            np.maximum(np.arange(len(inside)), edges[group]),
            np.minimum(np.arange(len(inside)) + 1, edges[group + 1]),
        )
        shares[group] = np.maximum(ends - starts, 0)
        bins = shares[group] @ (told != 0)
        even[group] = (shares[group] @ inside) / bins if bins else 0
    own = told[told > 0]
    found = float((own * np.log(own)).sum())
    for group in range(groups):
        mass = shares[group] @ inside
        mass += masses[:first].sum() if group == 0 else 0
        mass += masses[last:].sum() if group == groups - 1 else 0
        if mass:
            found -= mass * np.log(max(even[group], 1e-4))
    spare = sum(max(float(share @ (told != 0)) - 1, 0) for share in shares)
    return found / told.sum() - np.log(told.sum()) + np.log(inside.sum()) - spare / (2 * density.samples)


@EVERY_SHAPE
@pytest.mark.parametrize("groups", [7, 16])
def test_divergence_is_that_of_the_slow_way(shape: str, groups: int) -> None:
    density = density_of(seen(SHAPES[shape][:3000]), U8).coarser(64)
    thresholds = np.arange(groups, density.bins + 1)
    fast = divergences(density, thresholds, groups)
    slow = [slow_divergence(density, int(threshold), groups) for threshold in thresholds]
    # Differences of sums of logarithms: a million roundings at the most.
    assert fast == pytest.approx(slow, abs=1e6 * 2**-52)


def test_divergence_of_whole_groups_is_the_plain_one() -> None:
    """Where groups are whole bins and nothing is clipped: Kullback and Leibler, by the book."""
    masses = np.float64([4, 0, 2, 2, 1, 3, 8, 4])
    density = Density(extremes=Range(0.0, 8.0), width=1.0, above=masses, below=np.zeros(0), samples=MANY)
    spread = np.float64([4, 0, 2, 2, 2, 2, 6, 6])
    kept = masses > 0
    p, q = masses[kept] / masses.sum(), spread[kept] / spread.sum()
    assert divergences(density, np.array([8]), 4)[0] == pytest.approx(float((p * np.log(p / q)).sum()))


def test_threshold_below_all_numbers_is_never_taken() -> None:
    density = Density(
        extremes=Range(0.0, 8.0), width=1.0, above=np.float64([0, 0, 0, 0, 1, 3, 8, 4]), below=np.zeros(0), samples=MANY
    )
    found = divergences(density, np.array([4, 5, 8]), 4)
    assert found[0] == np.inf and np.isfinite(found[1:]).all()


def test_clipped_mass_in_an_empty_bin_costs_much() -> None:
    gap = Density(
        extremes=Range(0.0, 8.0), width=1.0, above=np.float64([9, 9, 9, 9, 9, 0, 0, 9]), below=np.zeros(0), samples=MANY
    )
    to_the_gap, to_the_mass, whole = divergences(gap, np.array([6, 5, 8]), 4)
    assert whole < to_the_mass < to_the_gap


def peaks(rng: np.random.Generator, is_one_sided: bool) -> np.ndarray:
    """Narrow peaks at random places, as an even background gives them, over a spread with a heavy tail."""
    places = rng.normal(0, 1, rng.integers(1, 60))
    many = rng.choice(places, rng.integers(1, 60_000)) + rng.normal(0, 0.01, 1)
    spread = rng.standard_t(rng.uniform(2, 30), rng.integers(20_000, 60_000)) * rng.uniform(0.2, 2)
    numbers = np.concatenate([many, spread])
    return np.maximum(numbers, 0) if is_one_sided else numbers


@pytest.mark.parametrize("seed", range(swept(12)))
@pytest.mark.parametrize("is_one_sided", [True, False])
@EVERY_GRID
def test_entropy_errs_no_more_than_covering_all(seed: int, is_one_sided: bool, grid: Grid) -> None:
    numbers = peaks(np.random.default_rng(seed), is_one_sided)
    errors = [error(numbers, chosen(name, numbers, grid), grid) for name in ("entropy", "minmax")]
    # Numbers that are all alike may lie anywhere between two steps, where errors are told for even ones.
    assert errors[0] <= errors[1] * 1.25


@EVERY_GRID
def test_even_background_is_no_reason_to_clip(grid: Grid) -> None:
    """A third of the numbers in thirty places: finer steps tell these apart, and clip what matters."""
    rng = np.random.default_rng(8)
    numbers = np.abs(np.concatenate([rng.choice(rng.normal(0, 0.5, 30), 40_000), rng.laplace(0, 0.5, 80_000)]))
    assert chosen("entropy", numbers, grid).high > 0.6 * numbers.max()


@pytest.mark.parametrize("is_one_sided", [True, False])
@EVERY_GRID
def test_heavy_tail_is_cut(is_one_sided: bool, grid: Grid) -> None:
    numbers = np.random.default_rng(9).standard_t(2, 300_000)
    numbers = np.maximum(numbers, 0) if is_one_sided else numbers
    held = chosen("entropy", numbers, grid)
    assert held.largest < 0.9 * np.abs(numbers).max()
    # Numbers count as even inside a bin, which most of these are not.
    assert error(numbers, held, grid) <= error(numbers, chosen("minmax", numbers, grid), grid) * 1.1


# MSE: the choice is within little of the best that quantizing the numbers themselves shows.


@EVERY_SHAPE
@EVERY_GRID
def test_mse_is_near_the_best_of_many_ranges(shape: str, grid: Grid) -> None:
    numbers = np.append(SHAPES[shape], [12.0] if shape != "negative" else [-12.0])
    most = seen(numbers).extremes.with_zero()
    parts = np.linspace(0.15, 1, 60)
    ranges = [Range(part * most.low, part * most.high) for part in parts]
    ranges += [Range(most.low, part * most.high) for part in parts]
    best = min(error(numbers, held, grid) for held in ranges)
    # Ranges that are tried are a fiftieth apart, and numbers count as even inside a bin.
    assert error(numbers, chosen("mse", numbers, grid), grid) <= best * 1.03


@EVERY_SHAPE
@pytest.mark.parametrize("grid", [U8, S8, F8], ids=["u8", "s8", "f8"])
@pytest.mark.parametrize("part", [1.0, 0.6, 0.2])
def test_expected_error_is_that_of_the_numbers(shape: str, grid: Grid, part: float) -> None:
    numbers = SHAPES[shape]
    density = density_of(seen(numbers), grid).coarser(1024)
    most = density.extremes
    low, high = (-most.largest, most.largest) if grid.is_symmetric else (most.low, most.high)
    (expected,) = squared_errors(density, grid, np.array([part * low]), np.array([part * high]))
    held = Range(part * low, part * high)
    assert expected / len(numbers) == pytest.approx(error(numbers, held, grid), rel=0.05)


@LAW
@given(st.floats(0.01, 1), st.integers(-20, 20))
def test_mse_of_numbers_that_a_grid_holds_covers_them(scale: float, zero: int) -> None:
    numbers = np.repeat((np.arange(256) - 128 - zero) * scale, 50)
    held = chosen("mse", numbers)
    assert held.low == pytest.approx(numbers.min(), rel=0.01) and held.high == pytest.approx(numbers.max(), rel=0.01)


# What was sampled.


@pytest.mark.parametrize("name", ["entropy", "mse", "percentile", "minmax"])
@EVERY_GRID
def test_sample_without_a_number_leaves_the_extremes(name: str, grid: Grid) -> None:
    collector = Collector(3)
    numbers = np.zeros(1000, np.float32)
    numbers[[1, 2, 3, 4, 5]] = -1.5, 4.0, 4.0, 3.0, 3.0
    collector.add("x", numbers)
    assert collector.summary("x").zeros == collector.summary("x").counts.sum()
    assert choose_range(calibrator(name), collector.summary("x"), grid) == Range(-1.5, 4.0)


def ranges_of_all_and_sample(name: str, numbers: np.ndarray, grid: Grid) -> tuple[Range, Range]:
    ranges = []
    for most in (None, 100_000):
        collector = Collector(most)
        collector.add("x", numbers)
        ranges.append(choose_range(calibrator(name), collector.summary("x"), grid))
    assert ranges[0] is not None and ranges[1] is not None
    return ranges[0], ranges[1]


@pytest.mark.parametrize("name", ["mse", "percentile"])
@EVERY_SHAPE
@EVERY_GRID
def test_sample_gives_about_the_range_of_all(name: str, shape: str, grid: Grid) -> None:
    """A tenth of the numbers: the ranges err by about as much as those of other data would."""
    numbers = np.random.default_rng(3).choice(np.float32(SHAPES[shape]), 1_000_000)
    whole, sampled = ranges_of_all_and_sample(name, numbers, grid)
    assert sampled.largest == pytest.approx(whole.largest, rel=0.15)


@EVERY_SHAPE
@EVERY_GRID
def test_sample_gives_entropy_a_range_as_good(shape: str, grid: Grid) -> None:
    """A divergence jumps where a narrow peak comes to lie across two groups: ranges differ, and err alike."""
    numbers = np.random.default_rng(3).choice(np.float32(SHAPES[shape]), 1_000_000)
    whole, sampled = (error(numbers, held, grid) for held in ranges_of_all_and_sample("entropy", numbers, grid))
    assert sampled == pytest.approx(whole, rel=0.25)


def test_density_has_every_number_but_zeros_on_its_side() -> None:
    density = density_of(seen([4.0, -4.0, 0.0, 0.0, 1e-9, 3.0]), U8)
    assert density.mass == 4.0 and density.samples == pytest.approx(4.0)
    assert density.above[-1] == 1.0 and len(density.above) == 4096
    one_sided = density_of(seen([1e-9, 4.0]), U8)
    assert one_sided.above[0] == 1.0 and one_sided.below.sum() == 0.0
