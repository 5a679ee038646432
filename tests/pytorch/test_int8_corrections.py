"""Corrections of INT8 error in exported programs: GPTQ rounding, SmoothQuant and bias correction, as ONNX models have
them.
"""

import io
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from lab_programs import LENGTH, WIDTH, exported, random_network
from scaled_programs import module_program, with_random_scales
from torch import nn
from torch.export import Dim, ExportedProgram, export

import mezzo
from mezzo.aten.edit.constants import correct
from mezzo.aten.edit.quantizing import round_through_integers, turn
from mezzo.aten.model import TorchModel
from mezzo.aten.opening import open_model
from mezzo.common.errors import InputError
from mezzo.contracts.corrections import Correction
from mezzo.contracts.lab import EMULATED
from mezzo.contracts.options.request import Request
from mezzo.conversion.conversion import convert_model
from mezzo.conversion.judged_model import judge_model
from mezzo.formats.dtypes import DType
from mezzo.formats.quantization import Quantization
from mezzo.planner.choices.quantized_parameters import quantized_ports
from mezzo.planner.options import read_options, replay_options
from mezzo.quantize.arithmetic.arithmetic import quantize, round_trip
from mezzo.quantize.product_layouts import is_own_constant, layout_of, weight_of
from mezzo.quantize.smooth_quant import find_places, scaling_corrections

SEEDS = range(6)


@pytest.fixture(autouse=True)
def _no_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def perceptron() -> nn.Sequential:
    """A normalization with channels of very different sizes, and products behind it."""
    torch.manual_seed(0)
    layers = [nn.LayerNorm(64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 16)]
    network = nn.Sequential(*layers)
    network[0].weight.copy_(torch.exp(torch.randn(64) * 0.8))
    network[0].bias.normal_(0, 0.1)
    network[1].weight.div_(network[0].weight.mean())
    return network.eval()


def convolutions() -> nn.Sequential:
    """Convolutions of several forms behind a batch norm."""
    torch.manual_seed(1)
    layers = [
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=16, padding=1),
        nn.ReLU(), nn.Conv2d(16, 32, 1), nn.ReLU(), nn.Conv2d(32, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    ]  # fmt: skip
    network = nn.Sequential(*layers)
    network[1].running_var.uniform_(0.5, 2)
    network[1].weight.copy_(torch.exp(torch.randn(16) * 0.8))
    network[1].bias.normal_(0, 0.2)
    return network.eval()


NETWORKS = {"perceptron": (perceptron, (64,)), "convolutions": (convolutions, (3, 12, 12))}


def rows(name: str, seed: int, count: int = 16) -> torch.Tensor:
    """Inputs of few directions, as those of networks are."""
    sizes = NETWORKS[name][1]
    mixed = torch.randn(12, *sizes, generator=torch.Generator().manual_seed(5)).flatten(1)
    draw = torch.Generator().manual_seed(seed)
    parts = torch.randn(count, 12, generator=draw), torch.randn(count, mixed.shape[1], generator=draw)
    return (parts[0] @ mixed + 0.05 * parts[1]).unflatten(1, sizes)


def program_of(name: str) -> ExportedProgram:
    return export(NETWORKS[name][0](), (rows(name, 0),), dynamic_shapes=({0: Dim("n")},))


def convert(name: str, steps: str, **options: Any) -> mezzo.Converted:
    data = [{"input": rows(name, seed).numpy()} for seed in range(12)]
    return mezzo.convert(
        program_of(name), to="int8", target="torch-cpu", data=data, correct=steps, reduce_range="no", **options
    )


def error_of(result: mezzo.Converted) -> float:
    assert result.measured is not None and result.measured.comparison is not None
    return max(output.relative_l2.estimate for output in result.measured.comparison.outputs)


def told(result: mezzo.Converted) -> dict[str, str]:
    """What is said of each step, by its name."""
    said = [note.removeprefix("correction ") for note in result.plan.notes if note.startswith("correction ")]
    return {name: text.strip() for name, _, text in (note.partition(":") for note in said)}


# -- what GPTQ and the plan say is what the program holds ------------------------------------------------------------


def with_random_turns(program: ExportedProgram, plan: mezzo.Plan, seed: int) -> mezzo.Plan:
    """The plan with every second weight or so of one reader rounded to the other neighbour, and its scales made
    smaller, so that large weights are clipped.
    """
    graph, rng = open_model(program, progress=None).read(DType.BFLOAT16).graph, np.random.default_rng(seed)
    own = {value.name: value for at, value in enumerate(graph.values) if is_own_constant(graph, at)}

    def turned(name: str, how: Quantization) -> Quantization:
        if name not in own or how.axis is None:
            return how
        scales = tuple(np.float32(scale * rng.uniform(0.7, 1)).item() for scale in how.scales)
        return replace(how, scales=scales, turned=rng.bytes(-(-own[name].elements // 8)))

    return replace(plan, quantized=tuple((name, turned(name, how)) for name, how in plan.quantized))


def emulated(program: ExportedProgram, plan: mezzo.Plan, feeds: dict[str, Any]) -> list[np.ndarray]:
    """What the source program answers under the plan, call by call."""
    model = open_model(program, progress=None)
    decided, _ = convert_model(model, replay_options({}, plan), plan)
    line = decided.problem.line
    emulator = model.lab.emulator(decided.reading, [DType.QUANTIZED8], quantized=quantized_ports(decided.problem))
    quantized = [number for number, level in enumerate(decided.levels) if level == line.quantized]
    return [*emulator.run(feeds, dict.fromkeys(quantized, DType.QUANTIZED8)).values()]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_networks_hold_the_integers_of_the_plan_and_answer_as_emulated(seed: int, tmp_path: Path) -> None:
    program = exported(random_network(seed))
    before = {name: tensor.clone() for name, tensor in program.state_dict.items()}
    draw = torch.Generator().manual_seed(seed)
    data = [{"x": torch.randn(2, LENGTH, WIDTH, generator=draw).numpy()} for _ in range(4)]
    first = mezzo.convert(program, to="int8", target="torch-cpu", data=data, correct="none").plan
    plan = with_random_turns(program, first, seed)
    mezzo.save_plan(plan, tmp_path / "plan.json")
    result = mezzo.convert(program, plan=tmp_path / "plan.json")
    for name, how in plan.quantized:
        if how.turned and result.model.state_dict[name].dtype is torch.int8:
            integers = result.model.state_dict[name].numpy()
            assert np.array_equal(integers, quantize(before[name].numpy(), how)), f"seed {seed}: {name}"
    answers = result.model.module()(torch.from_numpy(data[0]["x"]))
    for answer, other in zip(answers, emulated(program, plan, data[0]), strict=True):
        # Kernels of attention sum in another order, which may move some numbers by a step, 1 / 255 of their range.
        assert np.linalg.norm(answer.numpy() - other) <= 0.02 * np.linalg.norm(other), f"seed {seed}"
    assert all(torch.equal(before[name], tensor) for name, tensor in program.state_dict.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_quantize_operators_round_a_turned_weight_back_to_its_integers(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, size = rng.integers(0, 3), rng.integers(1, 9, 3)
    axis = None if axis == 2 else int(axis)
    weight = (rng.standard_normal(size) * 10.0 ** rng.integers(-30, 30)).astype(np.float32)
    count = 1 if axis is None else size[axis]
    scales = np.abs(weight).max(initial=np.finfo(np.float32).tiny * 128) / rng.uniform(60, 130, count)
    how = Quantization(
        dtype=DType.INT8, axis=axis, scales=tuple(scales.astype(np.float32).tolist()), zero_points=(0,) * count,
        turned=rng.bytes(-(-weight.size // 8)),
    )  # fmt: skip
    strided = torch.from_numpy(weight.transpose().copy()).permute(2, 1, 0)  # not in memory order
    turned = turn(strided, how)
    plain = replace(how, turned=b"")
    assert np.array_equal(quantize(turned.numpy(), plain), quantize(weight, how))
    assert np.array_equal(round_through_integers(turned, plain).numpy(), round_trip(weight, how))
    assert np.array_equal(round_through_integers(strided, how).numpy(), round_trip(weight, how))


# -- what is kept, and why -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("steps", ["auto", "smooth", "weights", "smooth,weights,bias"])
def test_corrected_is_never_further_off_on_data_held_back(name: str, steps: str, tmp_path: Path) -> None:
    plain, corrected = convert(name, "none"), convert(name, steps)
    assert told(plain) == {}
    kept = [step for step, text in told(corrected).items() if text.startswith("kept")]
    assert (error_of(corrected) < error_of(plain)) is bool(kept)
    assert bool(corrected.plan.corrected) is bool({"smooth", "bias"} & {*kept})
    assert any(how.turned for _, how in corrected.plan.quantized) is ("weights" in kept)
    mezzo.save_plan(corrected.plan, tmp_path / "plan.json")
    again = mezzo.convert(program_of(name), plan=tmp_path / "plan.json").model
    assert again.state_dict.keys() == corrected.model.state_dict.keys()
    assert all(torch.equal(tensor, again.state_dict[key]) for key, tensor in corrected.model.state_dict.items())
    x = rows(name, 99)
    assert torch.equal(again.module()(x), corrected.model.module()(x))


def test_what_helps_does_so_on_other_data() -> None:
    right = perceptron()(rows("perceptron", 99, 256))
    errors = []
    for steps in ("none", "smooth", "smooth,weights"):
        answer = convert("perceptron", steps).model.module()(rows("perceptron", 99, 256))
        errors.append(float((answer - right).norm() / right.norm()))
    assert errors[2] < 0.9 * errors[1] < 0.9 * 0.9 * errors[0]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_corrections_are_kept_as_of_the_onnx_model(name: str) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("openvino")
    file = io.BytesIO()
    options = {"dynamo": False, "opset_version": 17, "input_names": ["input"], "output_names": ["y"]}
    torch.onnx.export(NETWORKS[name][0](), (rows(name, 0),), file, dynamic_axes={"input": {0: "n"}}, **options)
    model = onnx.load_from_string(file.getvalue())
    data = [{"input": rows(name, seed).numpy()} for seed in range(12)]
    theirs = mezzo.convert(
        model, to="int8", target="openvino-cpu", data=data, correct="smooth,weights", reduce_range="no"
    )
    ours = convert(name, "smooth,weights")
    for step in ("smooth", "weights"):
        assert told(ours)[step].partition(",")[0] == told(theirs)[step].partition(",")[0]
    # OpenVINO's biases are integers, and the batch norm is folded there.
    assert error_of(ours) == pytest.approx(error_of(theirs), rel=0.05)
    assert [each.value for each in ours.plan.corrected] == [each.value for each in theirs.plan.corrected]


def test_programs_of_core_operators_have_the_same_corrections() -> None:
    """A weight is transposed for its only matmul there."""
    data = [{"input": rows("perceptron", seed).numpy()} for seed in range(12)]
    program = program_of("perceptron").run_decompositions()
    core = mezzo.convert(program, to="int8", target="torch-cpu", data=data, correct="smooth,weights", reduce_range="no")
    whole = convert("perceptron", "smooth,weights")
    assert [text.partition(";")[0] for text in told(core).values()] == [
        text.partition(";")[0] for text in told(whole).values()
    ]
    assert error_of(core) == pytest.approx(error_of(whole), rel=0.02)
    for name, how in core.plan.quantized:
        assert not how.turned or core.model.state_dict[name].dtype is torch.int8


def test_corrected_weights_are_saved_and_loaded(tmp_path: Path) -> None:
    result = convert("perceptron", "smooth,weights", dst=tmp_path / "int8.pt2")
    again = torch.export.load(tmp_path / "int8.pt2").module()
    x = rows("perceptron", 99)
    assert torch.equal(again(x), result.model.module()(x))


# -- SmoothQuant changes no float ------------------------------------------------------------------------------------


class Norms(nn.Module):
    """Norms in several forms before products."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(5))
        self.bias, self.scale = nn.Parameter(torch.randn(WIDTH)), nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.norm, self.conv = nn.BatchNorm1d(LENGTH), nn.Conv1d(LENGTH, LENGTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.linears[0](nn.functional.layer_norm(x, (WIDTH,), None, self.bias))
        x = self.linears[1](nn.functional.layer_norm(x, (WIDTH,)))
        x = self.linears[2](x * self.scale)
        x = self.linears[4](torch.relu(self.linears[3](x)))
        return self.conv(torch.relu(self.norm(x)))


SMOOTHED: dict[str, Callable[[], nn.Module]] = {
    "norms": Norms,
    **{f"random {seed}": partial(random_network, seed) for seed in range(12)},
}


@pytest.mark.parametrize("name", SMOOTHED)
def test_channels_scaled_between_constants_leave_the_answers(name: str) -> None:
    model = open_model(exported(SMOOTHED[name]().eval()), progress=None)
    reading, judged = judge_model(model, read_options(Request(to="int8", target="torch-cpu")))
    assert judged.quantizing is not None
    places, rng = [*find_places(reading.graph, judged.quantizing.units)], np.random.default_rng(0)
    assert name != "norms" or len(places) == 3  # neither of norms without a weight, nor one constant twice
    corrections: list[Correction] = []
    for place in places:
        value, axis = place.made[0]
        factors = 2.0 ** rng.integers(-2, 3, reading.graph.shapes[value][axis])
        corrections += scaling_corrections(reading.graph, place, factors.astype(np.float32))
    feeds = {"x": torch.randn(2, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1)).numpy()}
    before, after = model.lab.native()(feeds), model.corrected(corrections).lab.native()(feeds)
    for output in before:
        assert np.allclose(before[output], after[output], rtol=1e-4, atol=1e-5)


# -- layouts of products ---------------------------------------------------------------------------------------------


PRODUCTS = {
    "linear": (nn.Linear(6, 4), (5, 6)),
    "linear of tokens": (nn.Linear(6, 4, bias=False), (2, 5, 6)),
    "conv1d": (nn.Conv1d(6, 4, 3, padding=2, stride=2, dilation=2), (2, 6, 9)),
    "conv2d": (nn.Conv2d(6, 4, (3, 2), padding=(1, 2), stride=(2, 1)), (2, 6, 8, 7)),
    "conv2d of groups": (nn.Conv2d(6, 4, 3, groups=2, padding="valid"), (2, 6, 8, 7)),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_product_is_rows_by_columns(name: str) -> None:
    module, sizes = PRODUCTS[name]
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0))
    for program in (export(module, (x,)), export(module, (x,)).run_decompositions()):
        graph = open_model(program, progress=None).read(DType.BFLOAT16).graph
        (node,) = (node for node in graph.nodes if layout_of(graph, node) is not None)
        found_weight = weight_of(graph, node)
        assert found_weight is not None
        value, product = found_weight
        assert graph.values[value].name == "weight"
        weight = module.weight.numpy()
        bias = 0.0 if module.bias is None else module.bias.numpy()
        answers = product.rows(x.numpy().reshape(-1, 6) if node.op in ("addmm", "mm") else x.numpy(), 10**6)
        found = np.concatenate([*(answers @ product.columns(weight))], axis=1) + bias
        right = module(x).numpy()
        right = right.reshape(-1, 4) if name.startswith("linear") else np.moveaxis(right, 1, -1).reshape(-1, 4)
        assert np.allclose(found, right, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "sizes"),
    [
        (nn.Conv1d(6, 4, 3, padding="same"), (2, 6, 9)),  # which end has more is not said
        (nn.Conv2d(6, 4, 3), (6, 8, 8)),  # without a batch axis
        (nn.ConvTranspose1d(6, 4, 3), (2, 6, 9)),
    ],
)
def test_other_products_have_no_layout(module: nn.Module, sizes: tuple[int, ...]) -> None:
    graph = open_model(export(module, (torch.zeros(sizes),)), progress=None).read(DType.BFLOAT16).graph
    assert all(layout_of(graph, node) is None for node in graph.nodes)


# -- corrections of constants ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_corrected_constants_are_those_of_a_corrected_module(seed: int) -> None:
    """Of programs with power-of-two scales too, where a weight is read times such a scale."""
    rng = random.Random(seed)
    program, _ = with_random_scales(module_program(seed)[0], rng)
    model = TorchModel(program)
    reading = model.read(DType.BFLOAT16)
    graph = reading.graph
    held = [at for at, _ in model.weights(reading, [*graph.constants]) if graph.shapes[at] and len(graph.uses[at])]
    numbers = dict(model.weights(reading, held))
    for value in held:
        axis = rng.randrange(numbers[value].ndim)
        size = numbers[value].shape[axis]
        factors, added = ([rng.choice((0.5, 2.0)) for _ in range(size)] for _ in range(2))
        name = graph.values[value].name
        correction = Correction(value=name, axis=axis, factors=tuple(factors), added=tuple(added))
        if value in graph.shared:
            with pytest.raises(InputError, match="whose elements another constant shares"):
                model.corrected([correction])
            continue
        changed = model.corrected([correction])
        after = dict(changed.weights(changed.read(DType.BFLOAT16), held))
        along = [-1 if at == axis else 1 for at in range(numbers[value].ndim)]
        expected = numbers[value] * np.reshape(factors, along) + np.reshape(added, along)
        assert np.allclose(after[value], expected, rtol=1e-6), f"seed {seed}: {name}"
        assert all(np.array_equal(after[at], numbers[at]) for at in held if at != value)
    assert all(np.array_equal(array, numbers[at]) for at, array in model.weights(reading, held))


@pytest.mark.parametrize("seed", range(4))
def test_values_of_two_programs_have_the_scales_of_the_first(seed: int) -> None:
    """So that what a bias is moved by is in its own units."""
    plain = module_program(seed)[0]
    scaled, exponents = with_random_scales(plain, random.Random(seed))
    feeds = {"x": torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(seed)).numpy()}
    alike = TorchModel(plain).lab.pair(plain, EMULATED)
    right, _ = alike.load(alike.layers()).run(feeds)
    for first, second in ((plain, scaled), (scaled, plain), (scaled, scaled)):
        pair = TorchModel(first).lab.pair(second, EMULATED)
        ours, theirs = pair.load(pair.layers()).run(feeds)
        for name in pair.layers().keys() & alike.layers().keys():
            by = 2.0 ** -exponents.get(name, 0) if first is scaled else 1.0
            assert np.allclose(ours[name], right[name] * by, rtol=1e-4, atol=1e-6), f"seed {seed}: {name}"
            assert np.allclose(ours[name], theirs[name], rtol=1e-4, atol=1e-6), f"seed {seed}: {name}"


def test_a_weight_of_two_layers_is_not_corrected() -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    module[2].weight = module[0].weight
    graph = open_model(export(module, (torch.zeros(2, 8),)), progress=None).read(DType.BFLOAT16).graph
    weights = {weight_of(graph, node)[0] for node in graph.nodes if weight_of(graph, node)}  # type: ignore[index]
    assert len(weights) == 1 and not any(is_own_constant(graph, weight) for weight in weights)


def test_names_of_one_weight_still_share_what_is_corrected() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.other = nn.Linear(64, 64), nn.Linear(64, 64)
            self.other.weight = self.used.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x)

    program = export(Named().eval(), (torch.zeros(2, 64),))
    data = [{"x": torch.randn(2, 64, generator=torch.Generator().manual_seed(seed)).numpy()} for seed in range(4)]
    plan = mezzo.convert(program, to="int8", target="torch-cpu", data=data, correct="none").plan
    state = mezzo.convert(program, plan=with_random_turns(program, plan, 0)).model.state_dict
    assert state["used.weight"].dtype is torch.int8 and state["other.weight"] is state["used.weight"]


@pytest.mark.parametrize(
    ("correction", "found"),
    [
        (Correction(value="nobody", axis=0, factors=(1.0,)), "which is no constant of the program"),
        (Correction(value="input", axis=0, factors=(1.0,)), "which is no constant of the program"),
        (Correction(value="0.weight", axis=0, factors=(1.0,)), "with 1 numbers along axis 0, and its shape is 64;"),
        (Correction(value="0.weight", axis=1, factors=(1.0,)), "with 1 numbers along axis 1"),
        (Correction(value="1.bias", axis=0, factors=(2e38,) * 128, added=(3.4e38,) * 128), "FP32 does not hold"),
    ],
)
def test_corrections_that_do_not_fit_are_refused(correction: Correction, found: str) -> None:
    model = open_model(program_of("perceptron"), progress=None)
    with pytest.raises(InputError, match=found) as caught:
        correct(model.read(), [correction])
    assert "\n" not in str(caught.value)


def test_bits_that_do_not_fit_are_refused() -> None:
    plan = convert("perceptron", "none").plan

    def given(name: str, bits: bytes) -> mezzo.Plan:
        changed = [(own, replace(how, turned=bits) if own == name else how) for own, how in plan.quantized]
        return replace(plan, quantized=tuple(changed))

    with pytest.raises(InputError, match=r"rounds '1\.weight' by GPTQ with 1 bytes of bits, and its 8192 elements"):
        mezzo.convert(program_of("perceptron"), plan=given("1.weight", b"x"))
    with pytest.raises(InputError, match="which is no constant of the program"):
        mezzo.convert(program_of("perceptron"), plan=given("0/layer_norm", bytes(64 * 16 // 8)))
