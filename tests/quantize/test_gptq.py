"""Weights rounded to the neighbour that their product's data asks for."""

import numpy as np
import pytest
from integer_kernels import Window, conv_sums

from mezzo.contracts.calibrator import Grid
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.onnx.files.quantized_payloads import payload_of, read_payload
from mezzo.quantize.arithmetic import gptq
from mezzo.quantize.arithmetic.arithmetic import round_trip
from mezzo.quantize.arithmetic.gptq import turned_weights, weighted_scales
from mezzo.quantize.arithmetic.products import Convolution, InputMoments, Matrix, Product
from mezzo.quantize.arithmetic.weights import weight_parameters

GRID = Grid(dtype=DType.INT8, is_symmetric=True, is_narrow=True)
CONVOLUTIONS = [
    Convolution(window=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1)),
    Convolution(window=(3, 2), strides=(2, 1), pads=(0, 1, 2, 0), dilations=(1, 2), groups=2),
    Convolution(window=(3,), strides=(1,), pads=(1, 1), dilations=(1,), groups=6),
]


@pytest.mark.parametrize("product", CONVOLUTIONS)
def test_rows_times_columns_are_a_convolution(product: Convolution) -> None:
    rng = np.random.default_rng(1)
    data = rng.integers(-9, 9, (2, 6, *(9, 8)[: len(product.window)])).astype(np.float32)
    weights = rng.integers(-9, 9, (12, 6 // product.groups, *product.window)).astype(np.float32)
    window = Window(strides=product.strides, pads=product.pads, dilations=product.dilations, groups=product.groups)
    wanted = np.moveaxis(conv_sums(data, weights, window), 1, -1).reshape(-1, 12)
    made = product.rows(data, 10_000) @ product.columns(weights)
    assert np.array_equal(np.concatenate(list(made), axis=1), wanted)
    assert np.array_equal(product.weights(product.columns(weights), weights.shape), weights)


@pytest.mark.parametrize("product", [Matrix(), Matrix(is_transposed=True)])
def test_rows_times_columns_are_a_product(product: Matrix) -> None:
    rng = np.random.default_rng(2)
    data, weights = rng.standard_normal((3, 5, 8), np.float32), rng.standard_normal((8, 4), np.float32)
    laid = weights.T if product.is_transposed else weights
    made = product.rows(data, 10_000) @ product.columns(laid)
    assert np.array_equal(made[0], data.reshape(-1, 8) @ weights)
    assert np.array_equal(product.weights(product.columns(laid), laid.shape), laid)


def _moments(product: Product, data: np.ndarray, block: int) -> InputMoments:
    moments = InputMoments(block=block, most=1 << 20)
    moments.add(product.rows(data, 1 << 20))
    return moments


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("block", [2048, 7])
def test_products_are_nearer_and_no_weight_leaves_its_neighbours(seed: int, block: int) -> None:
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((24, 24)) @ np.diag(rng.gamma(0.5, size=24))
    data = (rng.standard_normal((2000, 24)) @ mixed).astype(np.float32)
    weights, product = rng.standard_normal((24, 10)).astype(np.float32), Matrix()
    how = weight_parameters(weights, GRID, 1)
    moments = _moments(product, data, block)
    turned = Quantization(
        dtype=how.dtype, scales=how.scales, zero_points=how.zero_points, axis=1,
        turned=turned_weights(weights, how, GRID, product, moments),
    )  # fmt: skip
    nearest, other = round_trip(weights, how), round_trip(weights, turned)
    # What blocks have in common is left out of the moments, so each block is nearer by itself.
    parts = np.split(np.arange(24), 4) if block < 24 else [np.arange(24)]
    off = [held - weights for held in (nearest, other)]
    before, after = (sum(np.square(data[:, part] @ one[part]).sum() for part in parts) for one in off)
    assert after < before, f"seed {seed}"
    # A weight on the border of its step may be a rounding of FP32 beyond it.
    assert (np.abs(other - weights) <= np.array(how.scales, np.float32) * (1 + 1e-5)).all()


def test_scales_by_what_weights_are_multiplied_with_clip_what_nobody_reads() -> None:
    """The largest weight reads zeros: the others get the steps."""
    weights = np.linspace(-1, 1, 40, dtype=np.float32).reshape(40, 1)
    weights[0] = 1.3
    data = np.random.default_rng(3).standard_normal((500, 40)).astype(np.float32)
    data[:, 0] = 0
    how = weight_parameters(weights, GRID, 1)
    chosen = weighted_scales(weights, how, GRID, Matrix(), _moments(Matrix(), data, 2048))
    assert chosen.scales[0] < how.scales[0]
    everything = weighted_scales(weights, how, GRID, Matrix(), _moments(Matrix(), np.ones_like(data), 2048))
    assert everything.scales[0] <= how.scales[0]


@pytest.mark.parametrize("seed", range(6))
def test_scales_by_what_weights_are_multiplied_with_are_no_worse_in_any_slice(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((400, 9)).astype(np.float32)
    data = (rng.standard_normal((300, 400)) * rng.exponential(size=400)).astype(np.float32)
    how = weight_parameters(weights, GRID, 1)
    chosen = weighted_scales(weights, how, GRID, Matrix(), _moments(Matrix(), data, 2048))
    mean_squares = np.square(data.astype(np.float64)).mean(axis=0)[:, None]
    before, after = (
        (np.square(np.clip(np.rint(weights / scales), *GRID.span) * scales - weights) * mean_squares).sum(axis=0)
        for scales in (np.float32(one.scales) for one in (how, chosen))
    )
    # Squares are of FP32 numbers, and moments are summed in FP32: a thousand roundings at the most.
    assert (after <= before * (1 + 1000 * 2**-23)).all() and (after < before).any()


def test_strange_data_counts_as_zero_and_dead_inputs_do_no_harm() -> None:
    data = np.zeros((9, 4), np.float32)
    data[0] = [np.nan, np.inf, -np.inf, 0.0]
    weights = np.random.default_rng(4).standard_normal((4, 3)).astype(np.float32)
    how, moments = weight_parameters(weights, GRID, 1), _moments(Matrix(), data, 2048)
    assert turned_weights(weights, how, GRID, Matrix(), moments) == b""
    assert weighted_scales(weights, how, GRID, Matrix(), moments) == how


def test_a_payload_in_pieces_is_turned_as_the_whole() -> None:
    rng = np.random.default_rng(5)
    weights = rng.standard_normal((6, 7)).astype(np.float32)
    plain = weight_parameters(weights, GRID, 0)
    how = Quantization(
        dtype=plain.dtype, scales=plain.scales, zero_points=plain.zero_points, axis=0,
        turned=np.packbits(rng.integers(0, 2, 42)).tobytes(),
    )  # fmt: skip
    payload = read_payload(payload_of(how, weights.shape, "w").to_text())
    flat = weights.reshape(-1)
    whole = payload.quantize(flat)
    for cuts in ([5], [8, 16], [1, 2, 41]):
        pieces = np.split(flat, cuts)
        starts = [0, *cuts]
        assert np.array_equal(
            np.concatenate([payload.quantize(p, s) for p, s in zip(pieces, starts, strict=True)]), whole
        )
    scales = np.array(how.scales, np.float32)[:, None]
    assert np.array_equal(whole.reshape(6, 7) * scales, round_trip(weights, how))
    bits = np.unpackbits(np.frombuffer(how.turned, np.uint8))[:42]
    nearest = payload_of(plain, weights.shape, "w").quantize(flat)
    is_inner = np.abs(nearest) < 127  # the ends have one neighbour that is held
    assert np.array_equal(np.abs(whole - nearest)[is_inner], bits[is_inner])


@pytest.mark.parametrize("size", [1, 5, 64, 65, 200])
def test_feedback_is_the_factor_of_the_inverse(size: int) -> None:
    """U'U times the damped moments is one, and U is upper."""
    rows = np.random.default_rng(size).standard_normal((max(size // 3, 2), size)) * np.linspace(0.1, 9, size)
    square = rows.T @ rows / len(rows)
    upper = gptq._feedback(square)
    damped = square / (gptq._DAMPING * np.trace(square) / size) + np.eye(size)
    assert not np.tril(upper, -1).any()
    # Each entry sums as many products, of a matrix whose condition is at most its trace over the damping.
    reach = size * np.finfo(np.float64).eps * np.linalg.cond(damped)
    assert np.abs(upper.T @ upper @ damped - np.eye(size)).max() < reach, f"seed {size}"
