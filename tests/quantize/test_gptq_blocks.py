"""Laws of GPTQ rounding in blocks: integers, scales and zero points of [inputs, outputs] weights."""

import numpy as np
import pytest

from mezzo.contracts.rounding import RoundedBlocks
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import DType, storage_span
from mezzo.formats.rounding import round_through
from mezzo.plugins import discovery
from mezzo.quantize.arithmetic.gptq import RoundedMatrix, error_feedback, round_blocks

ROUNDINGS = [name for name in discovery.names("rounding") if not discovery.rounding(name).takes_data]


def base_rounding(weights: np.ndarray, storage: BlockStorage, name: str) -> RoundedMatrix:
    """The rounding without compensation, of blocks filled with zeros."""
    inputs, outputs = weights.shape
    count = -(-inputs // storage.block)
    padded = np.zeros((count * storage.block, outputs), np.float32)
    padded[:inputs] = weights
    blocks = padded.reshape(count, storage.block, outputs).transpose(0, 2, 1).reshape(-1, storage.block)
    rounded: RoundedBlocks = discovery.rounding(name).round(blocks, storage)
    integers = rounded.integers.reshape(count, outputs, storage.block).transpose(0, 2, 1).reshape(-1, outputs)
    return RoundedMatrix(
        integers[:inputs], rounded.scales.reshape(count, outputs), rounded.zero_points.reshape(count, outputs)
    )


def output_error(weights: np.ndarray, rounded: RoundedMatrix, square: np.ndarray, storage: BlockStorage) -> float:
    """trace((W - Q)' H (W - Q))."""
    scales, zeros = (np.repeat(part, storage.block, axis=0)[: len(weights)] for part in rounded[1:])
    errors = (rounded.integers - zeros) * scales.astype(np.float64) - weights
    return float((errors * (square @ errors)).sum())


@pytest.mark.parametrize("inputs", [1, 31, 64, 200])
@pytest.mark.parametrize("block", [16, 32, 100, 128])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_uncorrelated_inputs_give_the_base_rounding(name: str, is_symmetric: bool, block: int, inputs: int) -> None:
    weights = np.random.default_rng(inputs).standard_normal((inputs, 7)).astype(np.float32)
    storage = BlockStorage(bits=4, block=block, axis=0, is_symmetric=is_symmetric)
    rounded = round_blocks(weights, error_feedback(np.eye(inputs)), storage, discovery.rounding(name))
    for part, base in zip(rounded, base_rounding(weights, storage, name), strict=True):
        np.testing.assert_array_equal(part, base)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("block", [16, 48, 64, 100])
@pytest.mark.parametrize("is_symmetric", [True, False])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_output_error_is_below_that_of_the_base_rounding(name: str, is_symmetric: bool, block: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    data = rng.standard_normal((2000, 150)) @ (rng.standard_normal((150, 150)) * rng.gamma(0.5, size=150))
    square, weights = data.T @ data / len(data), rng.standard_normal((150, 20)).astype(np.float32)
    storage = BlockStorage(bits=4, block=block, axis=0, is_symmetric=is_symmetric, scale_dtype=DType.FLOAT16)
    rounded = round_blocks(weights, error_feedback(square), storage, discovery.rounding(name))
    errors = [
        output_error(weights, result, square, storage) for result in (rounded, base_rounding(weights, storage, name))
    ]
    assert errors[0] < 0.9 * errors[1], f"seed {seed}"
    low, high = storage_span(storage.dtype)
    for integers in (rounded.integers, rounded.zero_points):
        assert low <= integers.min() and integers.max() <= high
    np.testing.assert_array_equal(rounded.scales, round_through(rounded.scales, DType.FLOAT16))


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    weights = np.random.default_rng(1).standard_normal((40, 3)).astype(np.float32)
    storage = BlockStorage(bits=8, block=16, axis=0)
    rounded = round_blocks(weights, error_feedback(np.zeros((40, 40))), storage, discovery.rounding("nearest"))
    for part, base in zip(rounded, base_rounding(weights, storage, "nearest"), strict=True):
        np.testing.assert_array_equal(part, base)


def test_outputs_do_not_depend_on_each_other() -> None:
    """Products of other widths add in another order: an integer in a thousand may differ by one."""
    rng = np.random.default_rng(2)
    data = rng.standard_normal((300, 96)) @ rng.standard_normal((96, 96))
    weights, storage = rng.standard_normal((96, 2500)).astype(np.float32), BlockStorage(bits=4, block=32, axis=0)
    feedback = error_feedback(data.T @ data)
    whole = round_blocks(weights, feedback, storage, discovery.rounding("k-quant"))
    some = round_blocks(weights[:, ::7], feedback, storage, discovery.rounding("k-quant"))
    differ = whole.integers[:, ::7] != some.integers
    assert differ.mean() < 1e-3
    np.testing.assert_allclose(whole.scales[:, ::7], some.scales, rtol=0.2)
    assert whole.integers.shape == weights.shape and whole.zero_points.shape == (3, 2500)
