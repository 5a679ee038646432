"""Corrections do what they say, as numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from quant_laws import LAW

from mezzo.contracts.calibrator import Grid, Range
from mezzo.formats.dtypes import DType
from mezzo.quantize.arithmetic.arithmetic import round_trip
from mezzo.quantize.arithmetic.correction import corrected_bias, smoothing_scales
from mezzo.quantize.arithmetic.parameters import parameters_for
from mezzo.quantize.arithmetic.weights import weight_parameters

LARGEST = arrays(np.float32, 5, elements=st.floats(2.0**-20, 2.0**20, width=32))
GRID = Grid(dtype=DType.INT8, is_symmetric=True, is_narrow=True)


def test_corrected_bias_brings_the_means_back() -> None:
    rng = np.random.default_rng(0)
    data, weights = rng.gamma(2.0, size=(500, 8)), rng.standard_normal((8, 3))
    bias = np.float32([0.5, -1.0, 0.0])
    coarse = Grid(dtype=DType.INT4, is_symmetric=True)
    how = weight_parameters(weights, coarse)
    held = round_trip(weights, how)
    wanted, quantized = data @ weights + bias, data @ held + bias
    means = wanted.mean(axis=0), quantized.mean(axis=0)
    corrected = data @ held + corrected_bias(bias, *means)
    assert np.abs(means[0] - means[1]).max() > 0.1
    assert corrected.mean(axis=0) == pytest.approx(means[0], rel=1e-6)
    assert corrected_bias(None, *means) == pytest.approx(means[0] - means[1], rel=1e-6)


@LAW
@given(LARGEST, LARGEST)
def test_ends_of_alpha_make_one_side_alike(data: np.ndarray, weights: np.ndarray) -> None:
    flat = data / smoothing_scales(data, weights, 1.0)
    assert flat == pytest.approx(np.full(5, flat[0]), rel=1e-5)
    flat = weights * smoothing_scales(data, weights, 0.0)
    assert flat == pytest.approx(np.full(5, flat[0]), rel=1e-5)


@LAW
@given(LARGEST, LARGEST)
def test_half_leaves_data_and_weights_the_same_spread(data: np.ndarray, weights: np.ndarray) -> None:
    scales = smoothing_scales(data, weights, 0.5)
    ratio = (data / scales) / (weights * scales)
    assert ratio == pytest.approx(np.full(5, ratio[0]), rel=1e-5)
    assert np.median(np.log2(scales)) == pytest.approx(0, abs=1e-5)


def test_channels_without_numbers_are_left_as_they_are() -> None:
    data, weights = np.float32([0, 2, np.inf, 8, np.nan]), np.float32([1, 0, 1, 1, 1])
    assert smoothing_scales(data, weights, 0.5).tolist() == [1, 1, 1, 1, 1]
    assert smoothing_scales(np.zeros(3), np.zeros(3), 0.5).tolist() == [1, 1, 1]
    assert np.isfinite(smoothing_scales(np.float32([1e-38, 1, 1e38]), np.ones(3), 1.0)).all()


def test_smoothing_pays_where_a_channel_stands_out() -> None:
    rng = np.random.default_rng(1)
    data, weights = rng.standard_normal((400, 16)).astype(np.float32), rng.standard_normal((16, 16)).astype(np.float32)
    data[:, 3] *= 60

    def error(x: np.ndarray, w: np.ndarray) -> float:
        how = weight_parameters(w, GRID, 1)
        held = round_trip(w, how)
        low = round_trip(x, parameters_for(Range(float(x.min()), float(x.max())), Grid(dtype=DType.UINT8)))
        return float(np.square(low.astype(np.float64) @ held - data.astype(np.float64) @ weights).mean())

    scales = smoothing_scales(np.abs(data).max(axis=0), np.abs(weights).max(axis=1), 0.5)
    assert error(data / scales, weights * scales[:, None]) < error(data, weights) / 4
