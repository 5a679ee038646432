"""True rounding of PyTorch programs: what an emulator computes is what the converted program computes."""

import random

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import ml_dtypes
import torch
from lab_programs import Perceptron, exported, opened, random_feeds, random_network

import mezzo
from mezzo.aten.lab.arrays import array_of, tensor_from
from mezzo.aten.lab.rounding import round_through
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind

NUMPY = {
    DType.FLOAT16: np.float16,
    DType.BFLOAT16: ml_dtypes.bfloat16,
    DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
}
SEEDS = range(8)


def same(ours, theirs):
    return ours.keys() == theirs.keys() and all(
        np.array_equal(ours[n].view(np.uint8), theirs[n].view(np.uint8)) for n in ours
    )


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_rounding_is_ml_dtypes_rounding(dtype):
    numbers = np.arange(0, 2**32, 65521, dtype=np.uint32).view(np.float32)
    every = np.arange(2 ** (8 * np.dtype(NUMPY[dtype]).itemsize), dtype=np.uint32)
    exact = every.astype(f"u{np.dtype(NUMPY[dtype]).itemsize}").view(NUMPY[dtype]).astype(np.float32)
    finite = np.unique(exact[np.isfinite(exact)])
    middles = ((finite[:-1].astype(np.float64) + finite[1:]) / 2).astype(np.float32)
    beside = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    probes = np.concatenate([numbers, exact, middles, *beside])
    with np.errstate(all="ignore"):
        expected = probes.astype(NUMPY[dtype]).astype(np.float32)
    found = round_through(torch.from_numpy(probes), dtype).numpy()
    assert np.array_equal(np.isnan(found), np.isnan(expected))
    kept = ~np.isnan(expected)
    assert np.array_equal(found[kept].view(np.uint32), expected[kept].view(np.uint32))


def test_a_limit_bounds_finite_numbers_alone():
    numbers = torch.tensor([1e6, -1e6, 3.0, float("inf"), float("-inf"), float("nan")])
    found = round_through(numbers, DType.FLOAT16, 65504.0).tolist()
    assert found[:5] == [65504.0, -65504.0, 3.0, float("inf"), float("-inf")]
    assert np.isnan(found[5])


@pytest.mark.parametrize("kind", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16])
def test_arrays_of_low_formats_are_tensors_and_back(kind):
    array = np.linspace(-3, 3, 7).astype(kind).reshape(7, 1)
    assert np.array_equal(array_of(tensor_from(array)).view(np.uint8), array.view(np.uint8))


@pytest.mark.parametrize("seed", SEEDS)
def test_all_in_fp32_is_what_pytorch_gives_bit_for_bit(seed):
    network, feeds = random_network(seed), random_feeds(seed)
    model = opened(network)
    emulator = model.lab.emulator(model.read(DType.BFLOAT16), [DType.BFLOAT16])
    native = model.lab.native()(feeds)
    with torch.no_grad():
        eager = network(torch.from_numpy(feeds["x"]))
    assert all(torch.equal(torch.from_numpy(native[str(place)]), one) for place, one in enumerate(eager))
    assert same(dict(emulator.run(feeds, {})), dict(native))
    assert same(dict(model.lab.emulated(None)(feeds)), dict(native))


@pytest.mark.parametrize("low", ["bf16", "fp16"])
@pytest.mark.parametrize("seed", SEEDS)
def test_an_emulated_plan_is_the_emulated_result_bit_for_bit(seed, low):
    program, feeds = exported(random_network(seed)), random_feeds(seed)
    for policy in ("balanced", "aggressive"):
        result = mezzo.convert(program, to=low, policy=policy, target="none")
        assert same(mezzo.emulate(program, feeds, plan=result.plan), mezzo.emulate(result.model, feeds)), policy


@pytest.mark.parametrize("seed", [0, 5, 7])
def test_an_emulator_runs_any_mix_of_what_is_legal(seed):
    """And an assignment leaves nothing behind for the next."""
    model, feeds = opened(random_network(seed)), random_feeds(seed)
    reading = model.read(DType.BFLOAT16)
    emulator = model.lab.emulator(reading, [DType.BFLOAT16, DType.FLOAT16])
    rng = random.Random(seed)
    free = [n for n in reading.graph.nodes if n.signature.dtype is HIGH and n.kind is not Kind.SOURCE]
    before = dict(emulator.run(feeds, {}))
    for _ in range(4):
        low = {node.id: rng.choice([DType.BFLOAT16, DType.FLOAT16]) for node in free if rng.random() < 0.5}
        found = emulator.run(feeds, low)
        assert all(found[name].shape == before[name].shape for name in before)
    assert same(before, dict(emulator.run(feeds, {})))


@pytest.mark.parametrize("dtype", NUMPY, ids=str)
def test_a_low_product_is_fp32_of_rounded_operands_rounded(dtype):
    network = Perceptron()
    model = opened(network.first, torch.zeros(4, 32))
    reading = model.read(dtype)
    (product,) = [node.id for node in reading.graph.nodes if node.kind is Kind.OP]
    x = np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)
    found = model.lab.emulator(reading, [dtype]).run({"input": x}, {product: dtype})["0"]
    data, weight, bias = (
        torch.from_numpy(one.astype(NUMPY[dtype]).astype(np.float32))
        for one in (x, network.first.weight.detach().numpy(), network.first.bias.detach().numpy())
    )
    made = torch.nn.functional.linear(data, weight, bias).numpy()
    assert np.array_equal(found, made.astype(NUMPY[dtype]).astype(np.float32))


def tiled_sum(data, weight, tile, kind):
    """What a device gives that rounds its sum after every tile."""
    total = np.zeros((data.shape[0], weight.shape[1]), np.float32)
    for start in range(0, data.shape[1], tile):
        partial = torch.from_numpy(data[:, start : start + tile]) @ torch.from_numpy(weight[start : start + tile])
        total = (total + partial.numpy()).astype(kind).astype(np.float32)
    return total


def test_sums_in_tiles_are_rounded_after_every_tile():
    weight = torch.randn(48, 5, generator=torch.Generator().manual_seed(1))

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self, x):
            return x.to(torch.bfloat16) @ self.weight.to(torch.bfloat16)

    model = opened(Product(), torch.zeros(3, 48))
    x = np.random.default_rng(1).standard_normal((3, 48)).astype(np.float32)
    low = [one.astype(ml_dtypes.bfloat16).astype(np.float32) for one in (x, weight.numpy())]
    for tile in (16, 20, 64):
        found = model.lab.emulated(Accumulation(DType.BFLOAT16, tile))({"x": x})["0"]
        assert np.array_equal(found, tiled_sum(*low, tile, ml_dtypes.bfloat16))  # type: ignore[call-arg]  # an operator that is defined in this test


@pytest.mark.parametrize("groups", [1, 4])
def test_a_convolution_sums_whole_channels_in_tiles(groups):
    """Of a kernel of ones whose sums are exact in FP32, so that the order of adding within a tile is none."""
    conv = torch.nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=True)
    with torch.no_grad():
        conv.weight.fill_(1)
        conv.bias.fill_(0.5)
    model = opened(conv, torch.zeros(1, 8, 5, 5))
    reading = model.read(DType.FLOAT16)
    (node,) = [node.id for node in reading.graph.nodes if node.kind is Kind.OP]
    x = np.random.default_rng(2).integers(0, 2000, (1, 8, 5, 5)).astype(np.float32)
    emulator = model.lab.emulator(reading, [DType.FLOAT16], Accumulation(DType.FLOAT16, 18))
    found = emulator.run({"input": x}, {node: DType.FLOAT16})["0"]
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3)).sum((4, 5))[0]
    width = 8 // groups
    expected = np.zeros((8, 5, 5), np.float32)
    for out in range(8):
        mine = patches[out // width * width : out // width * width + width]
        total = np.zeros((5, 5), np.float32)
        for start in range(0, width, 2):
            total = (total + mine[start : start + 2].sum(0)).astype(np.float16).astype(np.float32)
        expected[out] = (total + np.float32(0.5)).astype(np.float16)
    assert np.array_equal(found[0], expected)


def test_sums_that_stay_high_are_not_tiled():
    model = opened(Perceptron().first, torch.zeros(4, 32))
    reading = model.read(DType.FLOAT16)
    (product,) = [node.id for node in reading.graph.nodes if node.kind is Kind.OP]
    feeds = {"input": np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)}
    low = {product: DType.FLOAT16}
    plain = model.lab.emulator(reading, [DType.FLOAT16]).run(feeds, low)
    sums = Accumulation(DType.FLOAT16, 4)
    tiled = model.lab.emulator(reading, [DType.FLOAT16], sums).run(feeds, low)
    spared = model.lab.emulator(reading, [DType.FLOAT16], sums, sums_high={product}).run(feeds, low)
    assert same(dict(spared), dict(plain)) and not same(dict(tiled), dict(plain))


def test_an_overflow_shows_as_infinity():
    class Large(torch.nn.Module):
        def forward(self, x):
            return (x.to(torch.float16) * 1000.0).to(torch.float32)

    feeds = {"x": np.array([100.0, -100.0, 1.0, np.nan, 1e-9], np.float32)}
    found = opened(Large(), torch.zeros(5)).lab.emulated(None)(feeds)["0"]
    assert np.array_equal(found, np.float32([np.inf, -np.inf, 1000.0, np.nan, 0.0]), equal_nan=True)


def test_an_emulator_refuses_what_it_cannot_run():
    model = opened(Perceptron(), torch.zeros(4, 32))
    emulator = model.lab.emulator(model.read(DType.BFLOAT16), [DType.BFLOAT16])
    feeds = {"x": np.zeros((4, 32), np.float32)}
    count = len(model.read(DType.BFLOAT16).graph.nodes)
    with pytest.raises(InputError, match=rf"has no node 99; ids go from 0 to {count - 1}"):
        emulator.run(feeds, {99: DType.BFLOAT16})
    with pytest.raises(InputError, match="was not made for f16; its formats are bf16"):
        emulator.run(feeds, dict.fromkeys(range(count), DType.FLOAT16))
    with pytest.raises(ContractError, match="i4 is not emulated in PyTorch programs; the formats are bf16, f16"):
        model.lab.emulator(model.read(DType.BFLOAT16), [DType.INT4])
