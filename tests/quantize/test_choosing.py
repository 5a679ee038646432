"""A range is chosen where there is something to choose, and tensors that share parameters share it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from quant_laws import LAW

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.formats.dtypes import DType
from mezzo.plugins.discovery import calibrator, calibrators
from mezzo.quantize.arithmetic.choosing import align, choose_range
from mezzo.quantize.observers.collector import TENSOR_BINS, Collector

U8, S8 = Grid(dtype=DType.UINT8), Grid(dtype=DType.INT8, is_symmetric=True)
F8 = Grid(dtype=DType.FLOAT8E4M3FN, is_symmetric=True)
GRIDS = [U8, S8, Grid(dtype=DType.INT8), Grid(dtype=DType.UINT8, is_symmetric=True), Grid(dtype=DType.UINT4), F8]
EVERY_CALIBRATOR = pytest.mark.parametrize("chosen_by", list(calibrators().values()), ids=list(calibrators()))
EVERY_GRID = pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.dtype}-{grid.is_symmetric}")


def seen(*numbers: object) -> Summary:
    collector = Collector(None)
    collector.add("x", np.concatenate([np.ravel(np.float32(each)) for each in numbers]))
    return collector.summary("x")


@EVERY_CALIBRATOR
@EVERY_GRID
def test_nothing_seen_gives_no_range(chosen_by: Calibrator, grid: Grid) -> None:
    assert choose_range(chosen_by, seen(np.zeros(0)), grid) is None
    assert choose_range(chosen_by, seen([np.nan, np.inf, -np.inf]), grid) is None


@EVERY_CALIBRATOR
@EVERY_GRID
def test_zeros_alone_give_a_range_of_zero(chosen_by: Calibrator, grid: Grid) -> None:
    assert choose_range(chosen_by, seen(np.zeros(9), -0.0), grid) == Range(0.0, 0.0)


@EVERY_CALIBRATOR
@EVERY_GRID
@pytest.mark.parametrize("constant", [3.0, -3.0, 1e-30, -3e38, 1e-42])
@pytest.mark.parametrize("count", [1, 1000])
def test_constant_is_covered(chosen_by: Calibrator, grid: Grid, constant: float, count: int) -> None:
    held = choose_range(chosen_by, seen(np.full(count, constant)), grid)
    assert held is not None
    number = float(np.float32(constant))
    # A share of numbers ends inside a bin, of which there are at least so many up to the largest; of the smallest
    # numbers that FP32 has, none are.
    assert held.largest == pytest.approx(abs(number), rel=1 / (TENSOR_BINS // 2) if abs(number) > 1e-38 else 1e-3)
    assert held.with_zero() == held and (held.low if number > 0 else held.high) == 0


@EVERY_CALIBRATOR
@EVERY_GRID
def test_what_is_no_number_changes_nothing(chosen_by: Calibrator, grid: Grid) -> None:
    numbers = np.random.default_rng(1).standard_normal(5000)
    assert choose_range(chosen_by, seen(numbers, np.nan, np.inf, -np.inf), grid) == choose_range(
        chosen_by, seen(numbers), grid
    )


@EVERY_CALIBRATOR
@EVERY_GRID
@pytest.mark.parametrize("seed", range(6))
def test_range_holds_zero_and_nothing_that_was_not_seen(chosen_by: Calibrator, grid: Grid, seed: int) -> None:
    rng = np.random.default_rng(seed)
    numbers = [
        rng.standard_normal(999), np.abs(rng.standard_cauchy(999)), -rng.exponential(size=999), rng.uniform(5, 6, 99),
        np.append(rng.standard_normal(999), 1e6), rng.integers(0, 2, 99) * -7.0,
    ][seed]  # fmt: skip
    summary = seen(numbers)
    held = choose_range(chosen_by, summary, grid)
    assert held is not None and summary.extremes is not None
    most = summary.extremes.with_zero()
    assert most.low <= held.low <= 0 <= held.high <= most.high and held.low < held.high


@EVERY_CALIBRATOR
@EVERY_GRID
@pytest.mark.parametrize("exponent", [-20, 7, 60])
def test_scaling_the_data_scales_the_range(chosen_by: Calibrator, grid: Grid, exponent: int) -> None:
    numbers = np.random.default_rng(2).standard_normal(4000).astype(np.float32)
    plain, scaled = (choose_range(chosen_by, seen(n), grid) for n in (numbers, numbers * np.float32(2.0**exponent)))
    assert plain is not None and scaled == Range(plain.low * 2.0**exponent, plain.high * 2.0**exponent)


@EVERY_CALIBRATOR
def test_turned_data_turn_the_range(chosen_by: Calibrator) -> None:
    numbers = np.random.default_rng(3).gamma(2.0, size=4000)
    plain, turned = (choose_range(chosen_by, seen(n), Grid(dtype=DType.INT8)) for n in (numbers, -numbers))
    assert plain is not None and turned is not None and plain.low == turned.high == 0.0
    assert plain.high == pytest.approx(-turned.low, rel=1e-12)  # sums in FP64, in another order


def test_minmax_is_what_was_seen() -> None:
    assert choose_range(calibrator("minmax"), seen([-2.5, 1.0, 7.25]), U8) == Range(-2.5, 7.25)
    assert choose_range(calibrator("minmax"), seen([2.5, 7.25]), U8) == Range(0.0, 7.25)


def test_calibrator_without_a_setting_says_so() -> None:
    with pytest.raises(InputError, match=r"^calibrator 'minmax' takes no setting, and '3' was given; write minmax$"):
        calibrator("minmax").setting("3")


NAMES = st.sampled_from("abcdefgh")
ENDS = st.tuples(st.floats(-9, 9), st.floats(-9, 9)).map(lambda ends: Range(min(ends), max(ends)))


@LAW
@given(st.dictionaries(NAMES, ENDS), st.lists(st.lists(NAMES, max_size=4), max_size=5))
def test_values_of_a_group_share_the_smallest_range_that_holds_theirs(
    ranges: dict[str, Range], groups: list[list[str]]
) -> None:
    aligned = align(ranges, groups)
    assert list(aligned) == list(ranges)
    together = {name: {name} for name in ranges}
    for _ in ranges:  # as far as groups hang together
        for group in groups:
            joined = set().union(*(together[name] for name in group if name in together))
            together.update(dict.fromkeys(joined, joined))
    for name, held in aligned.items():
        assert held.low == min(ranges[other].low for other in together[name])
        assert held.high == max(ranges[other].high for other in together[name])


def test_nested_concats_share_one_range() -> None:
    ranges = {
        "a": Range(-1.0, 2.0),
        "b": Range(0.0, 5.0),
        "inner": Range(0.0, 1.0),
        "c": Range(-3.0, 0.0),
        "d": Range(0.0, 9.0),
    }
    aligned = align(ranges, [("a", "b", "inner"), ("inner", "c", "outer")])
    assert {aligned[name] for name in ("a", "b", "inner", "c")} == {Range(-3.0, 5.0)} and aligned["d"] == ranges["d"]
