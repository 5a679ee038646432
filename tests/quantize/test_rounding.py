"""Laws that every rounding keeps on random blocks, and what round-to-nearest gives by hand."""

import numpy as np
import pytest

from mezzo.formats.block_storage import BITS, SCALE_DTYPES, BlockStorage
from mezzo.formats.dtypes import FORMATS, DType, storage_span
from mezzo.formats.rounding import round_through
from mezzo.plugins import discovery

ROUNDINGS = discovery.names("rounding")


def blocks_of(seed: int) -> np.ndarray:
    """Blocks of all sizes: zeros, constants, subnormal and huge numbers, one sign."""
    rng = np.random.default_rng(seed)
    blocks = rng.standard_normal((12, rng.integers(1, 40))) * 10.0 ** rng.integers(-44, 38, (12, 1))
    blocks[0], blocks[1], blocks[2] = 0.0, 3e38, np.abs(blocks[2])
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
    assert (rounded.integers[0] == rounded.zero_points[0]).all()  # zeros stay zero
    again = discovery.rounding(name).round(blocks[3:5], storage)  # each block by itself
    np.testing.assert_array_equal(again.integers, rounded.integers[3:5])


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


@pytest.mark.parametrize("seed", range(12))
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
