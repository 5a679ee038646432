"""Laws that every rounding keeps on random blocks, and what round-to-nearest gives by hand."""

import numpy as np
import pytest
from sweeps import swept

from mezzo.formats.block_storage import BITS, SCALE_DTYPES, BlockStorage
from mezzo.formats.dtypes import FORMATS, DType, storage_span
from mezzo.formats.rounding import round_through
from mezzo.plugins import discovery
from mezzo.quantize.arithmetic.block_grid import BlockGrids
from mezzo.quantize.arithmetic.grid_search import GridFit

ROUNDINGS = [name for name in discovery.names("rounding") if not discovery.rounding(name).takes_data]


def blocks_of(seed: int) -> np.ndarray:
    """Blocks of all sizes: zeros, constants, subnormal and huge numbers, one sign, an outlier."""
    rng = np.random.default_rng(seed)
    blocks = rng.standard_normal((12, rng.integers(1, 40))) * 10.0 ** rng.integers(-44, 38, (12, 1))
    blocks[0], blocks[1], blocks[2] = 0.0, 3e38, np.abs(blocks[2])
    blocks[3, 0], blocks[4], blocks[5] = -3e38, 1e-45, blocks[5, 0]
    blocks[6:, ::3] = 0.0
    return np.clip(blocks, -3.4e38, 3.4e38).astype(np.float32)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("scale_dtype", SCALE_DTYPES, ids=str)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", ROUNDINGS)
def test_results_are_stored_as_they_are(
    name: str, bits: int, scale_dtype: DType, is_symmetric: bool, seed: int
) -> None:
    blocks = blocks_of(seed)
    storage = BlockStorage(bits=bits, block=blocks.shape[1], axis=0, is_symmetric=is_symmetric, scale_dtype=scale_dtype)
    rounded = discovery.rounding(name).round(blocks, storage)
    low, high = storage_span(storage.dtype)
    assert rounded.integers.shape == blocks.shape and rounded.scales.shape == rounded.zero_points.shape == (12,)
    for integers in (rounded.integers, rounded.zero_points):
        assert integers.dtype == np.int32 and low <= integers.min() and integers.max() <= high
    assert np.isfinite(rounded.scales).all() and (rounded.scales > 0).all()
    np.testing.assert_array_equal(rounded.scales, round_through(rounded.scales, scale_dtype))
    assert not is_symmetric or not rounded.zero_points.any()
    is_zero_point = rounded.integers == rounded.zero_points[:, None]
    assert is_zero_point[blocks == 0].all(), f"seed {seed}"
    on_known = discovery.rounding(name).round_on(blocks, storage, rounded.scales, rounded.zero_points)
    np.testing.assert_array_equal(on_known, rounded.integers, f"seed {seed}")
    again = [discovery.rounding(name).round(part, storage) for part in np.split(blocks, [3, 4, 6])]
    for whole, *parts in zip(rounded, *again, strict=True):
        np.testing.assert_array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("elements", [1, 32, 100])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_results_do_not_depend_on_the_cut(name: str, elements: int) -> None:
    """Large weights are rounded in pieces, whose borders depend on how the weight is read."""
    blocks = np.random.default_rng(elements).standard_normal((160_000 // elements, elements), np.float32)
    storage = BlockStorage(bits=4, block=elements, axis=0)
    whole = discovery.rounding(name).round(blocks, storage)
    parts = [discovery.rounding(name).round(part, storage) for part in np.split(blocks, [1, 300, len(blocks) - 1])]
    for together, *alone in zip(whole, *parts, strict=True):
        np.testing.assert_array_equal(np.concatenate(alone), together)


# The loss of errors in blocks that each search minimizes.
LOSSES = {
    "clip-search": lambda errors, blocks: np.square(errors).sum(axis=1),
    "k-quant": lambda errors, blocks: (
        np.square(errors) * (np.sqrt(np.square(blocks).mean(axis=1, keepdims=True)) + np.abs(blocks))
    ).sum(axis=1),
    "hqq": lambda errors, blocks: np.abs(errors).sum(axis=1),
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("scale_dtype", SCALE_DTYPES, ids=str)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("name", LOSSES)
def test_no_block_has_a_larger_loss_than_round_to_nearest(
    name: str, bits: int, scale_dtype: DType, is_symmetric: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    heavy = rng.standard_t(2, (200, 32)).astype(np.float32)
    for blocks in (rng.standard_normal((200, 32), np.float32), heavy, np.abs(heavy), blocks_of(seed)):
        storage = BlockStorage(
            bits=bits, block=blocks.shape[1], axis=0, is_symmetric=is_symmetric, scale_dtype=scale_dtype
        )
        wide = blocks.astype(np.float64)
        loss, base = (
            LOSSES[name](
                (result.integers - result.zero_points[:, None]) * result.scales[:, None].astype(np.float64) - wide, wide
            )
            for result in (discovery.rounding(which).round(blocks, storage) for which in (name, "nearest"))
        )
        # The search compares sums of up to 40 FP32 terms, each of a few operations.
        assert (loss <= base * (1 + 100 * np.finfo(np.float32).eps)).all(), f"seed {seed}"
        assert bits == 8 or blocks is not heavy or (loss < base).any(), f"seed {seed}"


def test_nearest_by_hand() -> None:
    blocks = np.float32([[-1.0, 0.0, 0.25, 2.5], [4.0, 4.0, 4.0, 4.0]])
    symmetric = BlockStorage(bits=4, block=4, axis=0, is_symmetric=True)
    rounded = discovery.rounding("nearest").round(blocks, symmetric)
    np.testing.assert_array_equal(rounded.scales, np.float32([2.5 / 7, 4 / 7]))
    np.testing.assert_array_equal(rounded.integers, [[-3, 0, 1, 7], [7, 7, 7, 7]])
    rounded = discovery.rounding("nearest").round(blocks, BlockStorage(bits=4, block=4, axis=0))
    np.testing.assert_array_equal(rounded.scales, np.float32([3.5 / 15, 4 / 15]))
    np.testing.assert_array_equal(rounded.zero_points, [4, 0])
    np.testing.assert_array_equal(rounded.integers, [[0, 4, 5, 15], [15, 15, 15, 15]])


def test_scale_below_the_smallest_of_its_format_gives_zeros() -> None:
    tiny = np.full((1, 4), FORMATS[DType.FLOAT16].smallest_subnormal / 64, np.float32)
    rounded = discovery.rounding("nearest").round(
        tiny, BlockStorage(bits=8, block=4, axis=0, scale_dtype=DType.FLOAT16)
    )
    assert rounded.scales[0] == 1.0 and (rounded.integers == rounded.zero_points[0]).all()


def test_names_are_found_as_people_write_them() -> None:
    assert (
        discovery.settle_name("rounding", "RTN") == discovery.settle_name("rounding", "round_to_nearest") == "nearest"
    )


@pytest.mark.parametrize("seed", range(swept(12)))
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("scale_dtype", SCALE_DTYPES, ids=str)
@pytest.mark.parametrize("bits", BITS)
def test_dequantized_blocks_are_stored_without_a_loss(
    bits: int, scale_dtype: DType, is_symmetric: bool, seed: int
) -> None:
    """One eps for each: of the dequantized element, and of the step that is found from two of them."""
    rng = np.random.default_rng(seed)
    storage = BlockStorage(bits=bits, block=32, axis=0, is_symmetric=is_symmetric, scale_dtype=scale_dtype)
    low, high = storage_span(storage.dtype)
    scales = round_through((10.0 ** rng.uniform(-4, 2, (40, 1))).astype(np.float32), scale_dtype)
    zeros = np.zeros((40, 1)) if is_symmetric else rng.integers(low, high + 1, (40, 1))
    most = rng.integers(1, high - low + 1, (40, 1))  # blocks that use a part of the span
    integers = np.clip(zeros + rng.integers(-most, most + 1, (40, 32)), low, high)
    blocks = ((integers - zeros) * scales).astype(np.float32)
    rounded = discovery.rounding("on-grid").round(blocks, storage)
    again = (rounded.integers - rounded.zero_points[:, None]) * rounded.scales[:, None].astype(np.float64)
    spans = np.ptp(np.c_[blocks, np.zeros(40)], axis=1, keepdims=True)
    assert (np.abs(again - blocks) <= 2 * FORMATS[DType.FLOAT32].eps * spans).all()


def test_clip_search_clips_one_large_element() -> None:
    blocks = np.append(np.arange(-70, 71) / 100, 1.0).astype(np.float32)[None]
    storage = BlockStorage(bits=4, block=blocks.shape[1], axis=0, is_symmetric=True)
    rounded = discovery.rounding("clip-search").round(blocks, storage)
    assert rounded.scales[0] < 0.9 / 7 and rounded.integers[0, -1] == 7


def test_symmetric_search_uses_the_lowest_integer() -> None:
    blocks = np.float32([[*range(-8, 7)]])
    storage = BlockStorage(bits=4, block=15, axis=0, is_symmetric=True)
    rounded = discovery.rounding("k-quant").round(blocks, storage)
    np.testing.assert_array_equal(rounded.integers, blocks)
    np.testing.assert_array_equal(rounded.scales, [1.0])


def test_half_quadratic_steps_count_the_largest_error_less() -> None:
    """Thirteen elements are on a grid of steps of 0.1, the largest is 0.4 steps off."""
    blocks = np.append(np.arange(-6, 7) / 10, 0.74).astype(np.float32)[None]
    storage = BlockStorage(bits=4, block=14, axis=0, is_symmetric=True)
    rounded = discovery.rounding("hqq").round(blocks, storage)
    levels = np.append(np.arange(-6, 7), 7)
    np.testing.assert_array_equal(rounded.integers[0], levels)
    least_squares = (levels * blocks[0]).sum() / np.square(levels).sum()
    assert 0.1 < rounded.scales[0] < 0.1 + 0.9 * (least_squares - 0.1)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("bits", BITS)
def test_fit_recovers_the_grid_of_its_targets(bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    storage = BlockStorage(bits=bits, block=32, axis=0)
    _, high = storage_span(storage.dtype)
    integers = rng.integers(0, high + 1, (32, 50)).astype(np.float64)
    zeros, others = (rng.integers(0, high + 1, 50).astype(np.float64) for _ in range(2))
    scales = rng.uniform(0.1, 9, 50).astype(np.float32).astype(np.float64)
    weights = rng.uniform(0.1, 1, (32, 50))
    before = BlockGrids(np.ones(50), others)
    fitted = GridFit(scales * (integers - zeros), weights, storage).grids(integers - others, before)
    np.testing.assert_array_equal(fitted.zeros, zeros)
    np.testing.assert_array_equal(fitted.scales, scales)
    nothing = GridFit(np.zeros((32, 50)), weights, storage).grids(integers - others, before)
    np.testing.assert_array_equal(nothing.scales, before.scales)
    np.testing.assert_array_equal(nothing.zeros, before.zeros)
