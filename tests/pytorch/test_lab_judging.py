"""Programs compared, measured and tuned by the code that ONNX models are."""

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs mezzo[torch]")

import torch
from lab_programs import (
    Attention,
    Perceptron,
    exported,
    opened,
    perceptron_data,
    random_feeds,
    random_network,
)

import mezzo
from mezzo.aten.lab.runner import in_float64
from mezzo.common.errors import ContractError, InputError
from mezzo.contracts.lab import EMULATED, Running
from mezzo.formats.dtypes import DType

NATIVE = Running(is_emulated=False, accumulation=None, names=("the reference", "the model"))


@pytest.fixture(scope="module")
def perceptron():
    return exported(Perceptron(), torch.zeros(16, 32))


def relative(found, wanted):
    return np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted.astype(np.float64))


def test_a_comparison_is_what_numpy_makes_of_the_answers(perceptron):
    data = perceptron_data()
    result = mezzo.convert(perceptron, to="bf16", policy="aggressive", target="none")
    found = mezzo.compare(perceptron, result.model, data)
    network = Perceptron()
    with torch.no_grad():
        wanted = np.concatenate([network(torch.from_numpy(one["x"])).numpy() for one in data])
    answers = np.concatenate([mezzo.emulate(result.model, one)["0"] for one in data])
    # Sums of squares in FP64 in another order: 1e-9 is a million times their noise.
    assert found.outputs[0].relative_l2.estimate == pytest.approx(relative(answers, wanted), rel=1e-9)
    assert [layer.name for layer in found.layers] == ["first/linear", "tanh", "second/linear", "tanh#1"]
    assert found.verdict.error.estimate > 0


def test_layers_are_compared_with_what_plain_torch_computes(perceptron):
    """Each layer of the candidate is FP32 of rounded operands, rounded: as written out here."""
    network, (batch, *_) = Perceptron(), perceptron_data()

    def low(one):
        return one.to(torch.bfloat16).to(torch.float32)

    model = opened(network, torch.zeros(16, 32))
    result = mezzo.convert(perceptron, to="bf16", policy="aggressive", target="none")
    pair = model.lab.pair(result.model, EMULATED)
    wanted, found = pair.load(pair.layers()).run(batch)
    with torch.no_grad():
        x = torch.from_numpy(batch["x"])
        exact = network.first(x)
        assert np.array_equal(wanted["first/linear"], exact.numpy())
        rounded = low(torch.nn.functional.linear(low(x), low(network.first.weight), low(network.first.bias)))
        assert np.array_equal(found["first/linear"], rounded.numpy())


def test_a_program_compared_with_itself_has_no_error(perceptron):
    found = mezzo.compare(perceptron, perceptron, perceptron_data())
    assert all(one.relative_l2.estimate == 0 for one in (*found.outputs, *found.layers))


@pytest.mark.parametrize("seed", range(3))
def test_layers_of_both_come_in_any_parts(seed):
    network, feeds = random_network(seed), random_feeds(seed)
    model = opened(network)
    result = mezzo.convert(exported(network), to="bf16", target="none")
    pair = model.lab.pair(result.model, EMULATED)
    layers = pair.layers()
    assert layers
    parts = pair.split_layers(layers, feeds)
    assert [name for part in parts for name in part] == [*layers]
    whole = pair.load(layers).run(feeds)
    piece = pair.load({name: layers[name] for name in [*layers][:2]}).run(feeds)
    for side, other in zip(whole, piece, strict=True):
        assert all(np.array_equal(side[name], other[name], equal_nan=True) for name in other)


def test_natively_a_result_runs_on_pytorchs_own_kernels(perceptron):
    result = mezzo.convert(perceptron, to="bf16", policy="aggressive", target="none")
    (batch, *_) = perceptron_data()
    pair = opened(Perceptron(), torch.zeros(16, 32)).lab.pair(result.model, NATIVE)
    found = pair.load({}).run(batch)[1]["0"]
    with torch.no_grad():
        eager = result.model.module()(torch.from_numpy(batch["x"])).numpy()
    assert np.array_equal(found, eager)


def test_what_reaches_an_output_is_what_it_depends_on():
    class Apart(torch.nn.Module):
        def forward(self, x, y):
            return x.to(torch.bfloat16).to(torch.float32) * 2, torch.ones_like(x), y + 1

    lab = opened(Apart(), torch.zeros(2), torch.zeros(2)).lab
    found = lab.subject().reached(["x"])
    assert found["0"].formats == {DType.FLOAT32, DType.BFLOAT16} and found["0"].reads_data
    assert not found["1"].reads_data and not found["2"].reads_data
    assert found["2"].formats == {DType.FLOAT32}


def test_weights_move_but_for_large_ones(perceptron):
    lab = opened(Perceptron(), torch.zeros(16, 32)).lab
    (batch, *_) = perceptron_data()
    plain = lab.native()(batch)["0"]
    assert np.array_equal(lab.subject().moved(lambda weight: weight, 1 << 30)(batch)["0"], plain)
    assert not np.array_equal(lab.subject().moved(lambda weight: weight * 2, 1 << 30)(batch)["0"], plain)
    assert np.array_equal(lab.subject().moved(lambda weight: weight * 2, 8)(batch)["0"], plain)


@pytest.mark.parametrize("seed", range(4))
def test_fp64_is_what_a_network_in_fp64_computes(seed):
    network, feeds = random_network(seed), random_feeds(seed)
    found = in_float64(opened(network).original).run(feeds)
    with torch.no_grad():
        wanted = network.double()(torch.from_numpy(feeds["x"]).double())
    for place, one in enumerate(wanted):
        made = found[str(place)]
        assert made.dtype == one.numpy().dtype
        # Kernels alike in another order of sums at most: 1e3 eps of FP64 is far below FP32's first bit.
        assert np.allclose(made, one.numpy(), rtol=1e3 * 2.0**-52, atol=1e-12, equal_nan=True)


def test_fp64_follows_a_program_that_names_types_itself():
    class Named(torch.nn.Module):
        def forward(self, x):
            low = x.to(torch.bfloat16) / 3
            return low.to(torch.float32) + torch.full((2,), 1.0, dtype=torch.float16)

    x = np.array([1.0, 1e-3])
    found = in_float64(opened(Named(), torch.zeros(2)).original).run({"x": x.astype(np.float32)})["0"]
    assert found.dtype == np.float64
    assert np.array_equal(found, x.astype(np.float32).astype(np.float64) / 3 + 1)


def test_programs_of_other_ports_are_not_compared(perceptron):
    class Other(torch.nn.Module):
        def forward(self, x, y):
            return x + y

    other = exported(Other(), torch.zeros(2), torch.zeros(2))
    with pytest.raises(InputError, match=r"inputs differ: the model needs 'y', which has no counterpart; the"):
        mezzo.compare(perceptron, other, perceptron_data())


def test_a_candidate_that_fails_is_a_verdict_and_a_reference_that_fails_bad_input():
    class Picking(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(4, 2)

        def forward(self, x):
            return self.table(x)

    model = opened(Picking(), torch.zeros(3, dtype=torch.int64))
    feeds = {"x": np.array([0, 1, 9])}
    with pytest.raises(ContractError, match=r"not run in PyTorch: aten.embedding.default raises IndexError: index"):
        model.lab.native()(feeds)
    pair = model.lab.pair(model.original, EMULATED)
    with pytest.raises(InputError, match=r"^the reference: the program does not run in PyTorch: aten.embedding"):
        pair.load({}).run(feeds)
    with pytest.raises(ContractError, match=r"^the model: the program does not run"):
        pair.candidate()(feeds)


def test_ranges_are_what_numpy_finds():
    network = Attention(is_fused=False, has_mask=False).eval()
    feeds = [random_feeds(seed) for seed in range(2)]
    program = exported(network)
    found = {one.value: one for one in mezzo.ranges(program, feeds).values}
    model = opened(network)
    reading = model.read(DType.FLOAT16)
    numbers = {}
    for one in feeds:
        for value, held in model.lab.observer(reading, range(len(reading.graph.values)))(one):
            numbers.setdefault(reading.graph.values[value].name, []).append(held)
    assert {"x", "qkv/linear", "softmax"} <= found.keys()
    for name, told in found.items():
        whole = np.concatenate([held.ravel() for held in numbers[name]])
        assert (told.minimum, told.maximum, told.count) == (whole.min(), whole.max(), whole.size)
        if told.sampled == told.count:
            # A weighted mean in FP64 in another order.
            assert told.mean_absolute == pytest.approx(np.abs(whole.astype(np.float64)).mean(), rel=1e-9)
    assert "qkv.weight" not in found


def test_ranges_tell_what_is_not_finite():
    class Odd(torch.nn.Module):
        def forward(self, x):
            return torch.log(x)

    x = np.array([1.0, 0.0, -1.0, 7.0], np.float32)
    found = {one.value: one for one in mezzo.ranges(exported(Odd(), torch.ones(4)), [{"x": x}]).values}["log"]
    assert found.has_nan and found.has_infinity
    assert (found.minimum, found.maximum) == (0.0, float(torch.log(torch.tensor(x))[3]))


def test_samples_are_spread_over_a_long_value():
    class Same(torch.nn.Module):
        def forward(self, x):
            return x * 1

    x = np.arange(1000, dtype=np.float32)
    gathered = opened(Same(), torch.zeros(1000)).lab.instruments({"x": x}).run({"x": x}, 0, 10)
    assert gathered.counts.tolist() == [1000, 1000] and gathered.lengths.tolist() == [10, 10]
    assert (gathered.samples.reshape(2, 10) // 100 == np.arange(10)).all()


def test_sensitivity_alone_adds_up_to_about_all(perceptron):
    """Rounding errors of units are independent: their squares add up, within what so few numbers tell."""
    found = mezzo.sensitivity(perceptron, perceptron_data(), to="bf16")
    alone = [unit.error for unit in found.units]
    assert len(alone) >= 5 and all(error > 0 for error in alone)
    total = np.sqrt(np.square(alone).sum())
    # Half and twice: of three roundings in a row a value sees the first alone, and thousands of numbers are averaged.
    assert total / 2 < found.all_low < total * 2


def test_tuning_reaches_a_budget(perceptron):
    data = perceptron_data()
    loose = mezzo.convert(perceptron, to="bf16", policy="aggressive", target="none")
    error = mezzo.compare(perceptron, loose.model, data).verdict.error.estimate
    for share, is_low in ((0.5, False), (2, True)):
        tuned = mezzo.tune(perceptron, data=data, to="bf16", max_error=error * share, target="none")
        assert mezzo.compare(perceptron, tuned.model, data).verdict.error.estimate <= error * share
        assert (DType.BFLOAT16 in {one.precision.compute for one in tuned.plan.nodes}) == is_low
