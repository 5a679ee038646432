"""Scales and zero points hold a range whole, zero exactly, and a bias beside its sum."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from quant_laws import LAW

from mezzo.contracts.calibrator import Grid, Range
from mezzo.formats.dtypes import DType
from mezzo.formats.neighbouring_pairs import largest_pairs
from mezzo.formats.quantization import Quantization
from mezzo.quantize.arithmetic.arithmetic import dequantize, quantize, round_trip
from mezzo.quantize.arithmetic.parameters import (
    bias_parameters,
    guarded_weights,
    parameters_for,
    quantize_bias,
)
from mezzo.quantize.arithmetic.weights import weight_parameters

U8, S8 = Grid(dtype=DType.UINT8), Grid(dtype=DType.INT8, is_symmetric=True)
NARROW = Grid(dtype=DType.INT8, is_symmetric=True, is_narrow=True)
GRIDS = [
    U8, S8, NARROW, Grid(dtype=DType.INT8), Grid(dtype=DType.UINT8, is_symmetric=True), Grid(dtype=DType.UINT16),
    Grid(dtype=DType.INT4, is_symmetric=True), Grid(dtype=DType.UINT4), Grid(dtype=DType.INT16, is_symmetric=True),
]  # fmt: skip
_LEAST = 2.0**-126
LARGEST = 1.7014118346046923e38  # half of what FP32 holds: wider ranges are cut
ENDS = st.floats(-LARGEST, LARGEST, width=32) | st.floats(-10, 10, width=32) | st.sampled_from([1e-45, -1e-45, 1e-38])
RANGES = st.tuples(ENDS, ENDS).map(lambda ends: Range(min(ends), max(ends)))


def is_fp32(number: float) -> bool:
    return float(np.float32(number)) == number


@LAW
@given(RANGES, st.sampled_from(GRIDS))
@example(Range(-LARGEST, LARGEST), U8)
def test_range_is_held_within_half_a_step_and_zero_exactly(held: Range, grid: Grid) -> None:
    how = parameters_for(held, grid)
    (scale,), (point,) = how.scales, how.zero_points
    low, high = grid.span
    assert is_fp32(scale) and scale >= _LEAST and low <= point <= high
    assert dequantize(quantize(0.0, how), how) == 0
    ends = np.float32([held.low, held.high])
    # Half a step of rounding, half a step as the zero point is rounded, and what FP32 rounds of both.
    allowed = scale + 2**-22 * held.largest if not grid.is_symmetric else scale / 2 + 2**-22 * held.largest
    assert (np.abs(round_trip(ends, how).astype(np.float64) - ends) <= allowed).all()


@pytest.mark.parametrize("grid", GRIDS)
def test_widest_range_is_held_in_finite_numbers(grid: Grid) -> None:
    ends = np.float32([-3.4028234663852886e38, 3.4028234663852886e38])
    held = round_trip(ends, parameters_for(Range(*ends.astype(float).tolist()), grid))
    assert np.isfinite(held).all() and (np.abs(held) >= LARGEST * 0.8).all()


@LAW
@given(RANGES, st.sampled_from(GRIDS))
def test_scale_is_no_larger_than_the_range_asks_for(held: Range, grid: Grid) -> None:
    (scale,) = parameters_for(held, grid).scales
    covered = grid.covered(held)
    # A grid without a middle has one step less on one side, which decides.
    steps = grid.steps - grid.steps % 2 if grid.is_symmetric else grid.steps
    assert scale <= max((covered.high - covered.low) / steps * (1 + 2**-23), _LEAST) or covered.high == covered.low


@LAW
@given(st.floats(0, LARGEST, width=32), st.sampled_from([U8, Grid(dtype=DType.INT8), Grid(dtype=DType.UINT16)]))
def test_zero_point_of_one_sided_ranges_is_an_end(high: float, grid: Grid) -> None:
    low_end, high_end = grid.span
    assert parameters_for(Range(0.0, high), grid).zero_points == (low_end,)
    assert parameters_for(Range(high / 2, high), grid).zero_points == (low_end,), "zero is held as well"
    if high > 1e-30:  # where the scale is a normal number
        assert parameters_for(Range(-high, 0.0), grid).zero_points == (high_end,)


def test_symmetric_grids_hold_zero_in_the_middle() -> None:
    held = Range(-1.0, 3.0)
    scale = float(np.float32(3 / 127))
    assert parameters_for(held, S8) == Quantization(dtype=DType.INT8, scales=(scale,), zero_points=(0,))
    assert parameters_for(held, Grid(dtype=DType.UINT8, is_symmetric=True)).zero_points == (128,)


def test_whole_span_uses_the_smallest_integer_and_the_narrow_one_does_not() -> None:
    held = Range(-128.0, 127.0)
    assert parameters_for(held, S8).scales == (1.0,) and quantize(-128.0, parameters_for(held, S8)) == -128
    assert parameters_for(held, NARROW).scales[0] > 1.0 and quantize(-128.0, parameters_for(held, NARROW)) == -127


@pytest.mark.parametrize("grid", GRIDS)
def test_range_of_zero_alone_gets_a_scale_of_one(grid: Grid) -> None:
    how = parameters_for(Range(0.0, 0.0), grid)
    assert how.scales == (1.0,) and dequantize(quantize(0.0, how), how) == 0


def test_slices_have_parameters_of_their_own() -> None:
    how = parameters_for([Range(0.0, 255.0), Range(-51.0, 204.0)], U8, axis=1)
    assert how == Quantization(dtype=DType.UINT8, scales=(1.0, 1.0), zero_points=(0, 51), axis=1)


@LAW
@given(arrays(np.float32, (3, 2, 4), elements=st.floats(-1e6, 1e6, width=32)), st.sampled_from([None, 0, 1, 2]))
def test_weights_are_held_whole_by_slice(weights: np.ndarray, axis: int | None) -> None:
    how = weight_parameters(weights, NARROW, axis)
    assert len(how.scales) == (1 if axis is None else weights.shape[axis]) and how.axis == axis
    integers = quantize(weights, how)
    assert integers.min() >= -127, "the smallest integer is left out"
    shape = [1, 1, 1] if axis is None else [len(how.scales) if axis == i else 1 for i in range(3)]
    steps = np.array(how.scales).reshape(shape)
    # Half a step, and what FP32 rounds of the scale, 127 times.
    assert (np.abs(round_trip(weights, how).astype(np.float64) - weights) <= steps * (0.5 + 2**-15)).all()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1,), ()])
def test_weights_of_any_shape_have_parameters(shape: tuple[int, ...]) -> None:
    assert weight_parameters(np.ones(shape, np.float32), NARROW).scales[0] > 0


def test_slice_of_zeros_takes_the_largest_scale_of_the_others() -> None:
    weights = np.float32([[1.27, -0.5], [0, 0], [12.7, 0]])
    scales = weight_parameters(weights, NARROW, 0).scales
    assert scales == tuple(float(np.float32(float(np.float32(most)) / 127)) for most in (1.27, 12.7, 12.7))
    assert weight_parameters(weights * 0, NARROW, 0).scales == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("axis", [None, 0])
@pytest.mark.parametrize("weight_size", [0.0, 1e-45, 1e-30, 1e-6, 1.0])
@pytest.mark.parametrize("data_size", [1e-38, 1e-6, 1.0])
@pytest.mark.parametrize("bias_size", [0.0, 1e-6, 1.0, 1e6])
def test_bias_stays_under_half_of_its_sum(
    axis: int | None, weight_size: float, data_size: float, bias_size: float
) -> None:
    weights = np.float32([[weight_size, -weight_size], [weight_size / 2, 0]])
    bias = np.float32([bias_size, -bias_size / 3])
    data = parameters_for(Range(0.0, data_size), U8)
    plain = weight_parameters(weights, NARROW, axis)
    guarded = guarded_weights(plain, bias, data)
    assert guarded is not None
    how = bias_parameters(data, guarded)
    assert all(is_fp32(scale) and scale >= _LEAST * (1 - 2**-22) for scale in how.scales)
    integers = quantize_bias(bias, how)
    # What FP32 rounds of the product of the scales.
    assert np.abs(integers.astype(np.int64)).max() <= (2**31 - 1) // 2 * (1 + 2**-22)
    scales = np.array(how.scales) if axis is not None else np.repeat(how.scales, 2)
    assert (np.abs(integers * scales - bias) <= scales * 0.5 + np.abs(bias) * 2**-22).all()
    assert all(after >= before for before, after in zip(plain.scales, guarded.scales, strict=True))


def test_guard_leaves_what_fits_as_it_is() -> None:
    data = parameters_for(Range(0.0, 255.0), U8)
    weights = weight_parameters(np.float32([[1.27], [0.127]]), NARROW, 0)
    assert guarded_weights(weights, np.float32([100.0, -3.0]), data) == weights
    raised = guarded_weights(weights, np.float32([100.0, 1e8]), data)
    assert raised is not None
    assert raised.scales[0] == weights.scales[0] and raised.scales[1] > weights.scales[1]
    assert quantize_bias(np.float32([0, 1e8]), bias_parameters(data, raised))[1] in range(2**30 - 200, 2**30)


@pytest.mark.parametrize(("data_size", "weight_size", "bias_size"), [(1e-38, 1.0, 1e30), (1e38, 1e38, 0.0)])
def test_bias_that_no_scale_holds_leaves_no_parameters(data_size: float, weight_size: float, bias_size: float) -> None:
    data = parameters_for(Range(0.0, data_size), U8)
    weights = weight_parameters(np.float32([weight_size]), NARROW)
    assert guarded_weights(weights, np.float32([bias_size]), data) is None


def test_bias_has_the_scale_of_its_products() -> None:
    data = Quantization(dtype=DType.UINT8, scales=(0.5,), zero_points=(7,))
    weights = Quantization(dtype=DType.INT8, scales=(0.25, 3.0), zero_points=(0, 0), axis=1)
    how = bias_parameters(data, weights)
    assert how == Quantization(dtype=DType.INT32, scales=(0.125, 1.5), zero_points=(0, 0), axis=0)
    assert quantize_bias(np.float32([1.0, -3.75]), how).tolist() == [8, -2]
    assert bias_parameters(data, Quantization(dtype=DType.INT8, scales=(2.0,), zero_points=(0,))).axis is None


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 3, 3), (2, 6, 5), (4,), (3, 0)])
def test_pairs_are_those_of_all_neighbours_in_any_pieces(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    slices = rng.standard_normal(shape).astype(np.float32)
    whole = largest_pairs(slices)
    monkeypatch.setattr("mezzo.formats.neighbouring_pairs._PIECE", 1)
    assert np.array_equal(largest_pairs(slices), whole)
    assert whole.shape == shape[:1] and (whole >= np.abs(slices).reshape(shape[0], -1).max(axis=1, initial=0)).all()
    for row, largest in zip(slices, whole, strict=True):
        by_rows = row.reshape(row.shape or (1,))
        orders = [by_rows.ravel(), np.moveaxis(by_rows, 0, -1).ravel()]
        for order in orders:
            for left, right in itertools.pairwise(order):
                assert left * right < 0 or abs(left + right) <= largest
