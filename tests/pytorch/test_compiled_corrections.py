"""Corrections of INT8 error in compiled modules whose weights are constants: the kernels multiply the integers that
GPTQ chose, by the scales of the plan.
"""

import base64
import copy
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import IN_PAIRS
from test_int8_corrections import NETWORKS, rows
from torch import nn

import mezzo.torch
from mezzo.aten.edit.quantizing import round_through_integers
from mezzo.common.errors import InputError
from mezzo.formats.dtypes import QUANTIZED
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.int8_kernels import convolves_int8, multiplies_int8

pytestmark = pytest.mark.skipif(
    not (multiplies_int8(IN_PAIRS) and convolves_int8(IN_PAIRS)), reason="oneDNN has no INT8 kernels on this machine"
)


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def corrected(name: str, steps: str = "auto", **options: Any) -> Any:
    """A network that is compiled with its weights as constants."""
    data = [rows(name, seed) for seed in range(12)]
    return mezzo.torch.compile(NETWORKS[name][0](), to="int8", data=data, freeze=True, correct=steps, **options)


def error(run: Any, name: str) -> float:
    """The relative L2 error on inputs that nothing was chosen on."""
    unseen = torch.cat([rows(name, seed) for seed in range(50, 66)])
    exact = copy.deepcopy(run._orig_mod).double()(unseen.double())
    return float((run(unseen) - exact).norm() / exact.norm())


def kept(run: Any) -> list[str]:
    """The corrections that the plans of a module say that they keep."""
    notes = [note.partition(",")[0] for plan in run.plans for note in plan.notes]
    return [note.removeprefix("correction ") for note in notes if note.endswith(": kept")]


@pytest.mark.parametrize(
    ("name", "steps", "most"),
    [("perceptron", "auto", 0.8), ("convolutions", "auto", 0.4), ("convolutions", "smooth,weights,bias", 0.85)],
)
def test_corrections_lower_the_error_and_leave_the_module_as_it_is(name: str, steps: str, most: float) -> None:
    plain = error(corrected(name, "none"), name)
    torch._dynamo.reset()
    run = corrected(name, steps)
    before = copy.deepcopy(run._orig_mod.state_dict())
    assert error(run, name) < most * plain
    assert "weights: kept" in kept(run)
    assert any(how.turned for plan in run.plans for _, how in plan.quantized)
    for key, tensor in run._orig_mod.state_dict().items():
        assert torch.equal(tensor, before[key]), key


@pytest.mark.parametrize("name", ["perceptron", "convolutions"])
def test_errors_of_layers_are_those_of_corrected_weights(name: str) -> None:
    """What is emulated of the last operator has the error of the answers, but for where roundings fall: a twentieth."""
    run = corrected(name)
    errors = mezzo.torch.compare(run._orig_mod, run, [rows(name, seed) for seed in range(50, 58)], layers="operators")
    assert "weights: kept" in kept(run)
    (output,) = errors.outputs
    last = run.plans[0].nodes[-2].name
    (layer,) = [layer for layer in errors.layers if layer.node == last]
    assert layer.error == pytest.approx(output.error, rel=0.05)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["linear", "transposed", "convolution", "scaled convolution"])
def test_kernels_multiply_the_integers_of_the_plan(name: str, seed: int, tmp_path: Path) -> None:
    """Every second weight or so is rounded to its other neighbour, the largest ones too, which would give them
    other scales: what is computed is the product of these integers times the scales of the plan."""
    torch.manual_seed(seed)
    modules: dict[str, nn.Module] = {
        "linear": nn.Linear(64, 48),
        "transposed": _Transposed(),
        "convolution": nn.Conv2d(16, 24, 3, padding=1),
        "scaled convolution": nn.Sequential(nn.Conv2d(16, 24, 3, bias=False), nn.BatchNorm2d(24)),
    }
    module = modules[name].eval()
    shape = (8, 16, 6, 6) if "convolution" in name else (8, 64)
    if isinstance(module, nn.Sequential):
        module[1].weight.normal_()  # signs of both kinds
        module[1].weight[3] = 0
        module[1].running_mean.normal_()
    data = [torch.randn(*shape) for _ in range(4)]
    first = mezzo.torch.compile(module, to="int8", data=data, freeze=True, correct="none")
    first(data[0])
    mezzo.torch.save_plan(first, tmp_path / "plan.json")
    document = json.loads((tmp_path / "plan.json").read_text())
    parameters = dict(first.plans[0].quantized)
    (weight,) = [key for key in parameters if key.endswith("weight")]
    (inputs,) = [key for key in parameters if key.startswith("l_")]
    elements, bits = dict(module.named_parameters())[weight].numel(), np.random.default_rng(seed)
    turned = base64.b64encode(bits.bytes(-(-elements // 8))).decode()
    document["graphs"][0]["quantized"][weight]["turned"] = turned
    (tmp_path / "turned.json").write_text(json.dumps(document))
    torch._dynamo.reset()
    run = mezzo.torch.compile(module, plan=tmp_path / "turned.json", freeze=True)
    x = torch.randn(*shape)
    result = run(x)
    (how,) = [how for key, how in run.plans[0].quantized if key == weight]
    assert how.turned
    exact = copy.deepcopy(module).double()
    holder = dict(exact.named_parameters())[weight]
    holder.copy_(round_through_integers(dict(module.named_parameters())[weight], how).double())
    numbers = round_through_integers(x, parameters[inputs]).double()
    assert account(run).graphs[0].int8_products == 1
    right = exact(numbers)
    # FP32's rounding of a scaled sum of integers, of the bias and of what follows.
    assert float((result - right).abs().max()) < 16 * torch.finfo(torch.float32).eps * float(right.abs().max())


class _Transposed(nn.Module):
    """A matmul whose weight has inputs first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 48))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_a_saved_plan_holds_the_corrections(tmp_path: Path) -> None:
    run = corrected("convolutions", "leave,smooth,weights,bias")
    x = rows("convolutions", 99)
    expected = run(x)
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    torch._dynamo.reset()
    again = mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json", freeze=True)
    assert torch.equal(again(x), expected)
    mezzo.torch.save_plan(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "plan.json").read_text()
    with pytest.raises(InputError, match=r"plan\.json' corrects weights, which freeze=True makes constants"):
        mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json")


@pytest.mark.parametrize("is_saved", [False, True])
def test_weights_that_are_others_by_then_are_refused(is_saved: bool, tmp_path: Path) -> None:
    run = corrected("perceptron")
    if is_saved:
        run(rows("perceptron", 99))
        mezzo.torch.save_plan(run, tmp_path / "plan.json")
        torch._dynamo.reset()
        run = mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json", freeze=True)
    run._orig_mod[3].weight.mul_(1.5)
    with pytest.raises(
        InputError, match=r"corrects '3.weight', whose numbers are others now; compile with data"
    ) as told:
        run(rows("perceptron", 99))
    assert "\n" not in str(told.value)


class Blocks(nn.Module):
    """Layers in lists and in modules within modules, and a break between two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList([nn.Sequential(nn.Linear(64, 64), nn.ReLU()) for _ in range(2)])
        self.inner = nn.Module()
        self.inner.way = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.first:
            x = layer(x)
        torch._dynamo.graph_break()
        result: torch.Tensor = self.inner.way(x.unflatten(1, (1, 8, 8)))
        return result


@pytest.mark.parametrize("is_function", [False, True])
def test_every_graph_is_corrected_whatever_the_names_of_its_weights(is_function: bool) -> None:
    module = Blocks().eval()
    data, unseen = [torch.randn(16, 64) for _ in range(8)], torch.randn(64, 64)

    def doubled(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = 2.0 * module(x)
        return result

    called: Any = doubled if is_function else module
    exact, errors = called(unseen), {}
    for steps in ("none", "weights"):
        torch._dynamo.reset()
        run = mezzo.torch.compile(called, to="int8", data=data, freeze=True, correct=steps)
        errors[steps] = float((run(unseen) - exact).norm() / exact.norm())
        plans = account(run).plans
        weights = [{name: how for name, how in plan.quantized if name.endswith("weight")} for plan in plans[:2]]
        assert [*map(sorted, weights)] == [
            ["first.0.0.weight", "first.1.0.weight"],
            ["inner.way.0.weight", "inner.way.4.weight"],
        ]
        assert [any(how.turned for how in graph.values()) for graph in weights] == [steps == "weights"] * 2
    assert errors["weights"] < 0.9 * errors["none"]


@pytest.mark.parametrize("is_dynamic", [None, True])
@pytest.mark.parametrize("sizes", [(16, 16, 16, 16, 16, 5), (16, 3, 8, 12, 5, 7)])
def test_batches_may_have_other_sizes(sizes: tuple[int, ...], is_dynamic: bool | None) -> None:
    data = [rows("convolutions", seed, count) for seed, count in enumerate(sizes)]
    options: dict[str, Any] = {"data": data, "freeze": True, "dynamic": is_dynamic}
    run = mezzo.torch.compile(NETWORKS["convolutions"][0](), to="int8", correct="weights", **options)
    assert error(run, "convolutions") < 7e-3  # of all batches: scales of the last alone give 1.6e-2
    assert kept(run) == ["weights: kept"] * len(run.plans)


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize("is_dynamic", [None, True])
def test_a_graph_may_have_one_size_open_and_another_fixed(is_dynamic: bool | None, is_frozen: bool) -> None:
    """Dynamo opens the sizes that it has seen change, and never that of one sample, which has its own graph."""
    module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).eval()
    sizes = [(4, 12), (4, 20), (4, 9), (1, 16), (4, 17), (4, 30), (2, 8), (1, 11), (4, 11)]
    data = [torch.randn(*size, 64) for size in sizes]
    run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen, dynamic=is_dynamic)
    for size in ((4, 12), (5, 23), (1, 7), (8, 40)):
        x = torch.randn(*size, 64)
        assert 0.0 < float((run(x) - module(x)).norm() / module(x).norm()) < 0.03
    assert [graph.int8_products for graph in account(run).graphs] == [2] * len(account(run).graphs)


def test_a_budget_is_held_with_corrections_and_batch_norms() -> None:
    data = [rows("convolutions", seed) for seed in range(100, 124)]
    plain = error(corrected("convolutions", "none"), "convolutions")
    torch._dynamo.reset()
    run = mezzo.torch.compile(NETWORKS["convolutions"][0](), to="int8", data=data, freeze=True, max_error=0.9 * plain)
    assert 0.0 < error(run, "convolutions") < 0.9 * plain
    assert account(run).graphs[0].int8_products >= 4
    assert "weights: kept" in kept(run)


def test_random_data_and_too_little_of_it_correct_nothing() -> None:
    run = mezzo.torch.compile(NETWORKS["perceptron"][0](), to="int8", data=[rows("perceptron", 0, 1)], freeze=True)
    run(rows("perceptron", 99, 1))
    assert kept(run) == []
    notes = [note for note in run.plans[0].notes if note.startswith("correction ")]
    assert notes == [
        f"correction {step}: left, as no data was held back that could show that it helps"
        for step in ("leave", "smooth", "weights")
    ]


class Cut(nn.Module):
    """A size that is a number of the caller's, not one of a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x: torch.Tensor, count: int) -> torch.Tensor:
        result: torch.Tensor = self.layer(x)[:, :count]
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_graph_takes_its_numbers_from_the_caller(is_frozen: bool) -> None:
    """The first call has a graph of its own, and the others share one, whose number is an input."""
    module, mixed = Cut().eval(), torch.randn(8, 64)
    data = [(torch.randn(16, 8) @ mixed, count) for count in range(5, 45)]
    run, x = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen), torch.randn(16, 8) @ mixed
    for count in (12, 60):
        assert 0.0 < float((run(x, count) - module(x, count)).norm() / module(x, count).norm()) < 0.03
    assert account(run).graphs[0].int8_products == 1
    assert kept(run) == (["weights: kept"] if is_frozen else [])
    torch._dynamo.reset()
    within = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen, max_error=0.0001)
    assert torch.allclose(within(x, 12), module(x, 12), atol=1e-5)
    assert account(within).graphs[0].int8_products == 0


class Shifting(nn.Module):
    """A module that writes to its own attributes, as Swin's blocks do: Dynamo reads it in another way."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.shift = nn.Linear(64, 64), 3

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shift = 0
        result: torch.Tensor = self.layer(x) + self.shift
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
def test_weights_of_modules_that_write_to_themselves_have_their_names(is_frozen: bool) -> None:
    module, mixed = nn.Sequential(nn.Linear(64, 64), Shifting()).eval(), torch.randn(8, 64)
    data = [torch.randn(16, 8) @ mixed for _ in range(12)]
    run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen)
    run(data[0])
    assert account(run).graphs[0].int8_products == 2
    (plan,) = run.plans
    assert {name for name, how in plan.quantized if how.axis is not None} == {"0.weight", "1.layer.weight"}
    assert kept(run) == (["weights: kept"] if is_frozen else [])


class Holding(nn.Module):
    """A module with tensors and layers that are attributes alone, one of them made at the first call as LeViT does."""

    def __init__(self) -> None:
        super().__init__()
        self.layers, self.shift = [nn.Linear(64, 64).eval() for _ in range(2)], torch.randn(64)
        self.tables: dict[str, torch.Tensor] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if "cpu" not in self.tables:
            self.tables["cpu"] = torch.rand(64) + 1
        result: torch.Tensor = self.layers[1](torch.relu(self.layers[0](x) + self.shift)) * self.tables["cpu"]
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
def test_tensors_that_are_attributes_alone_may_be_replaced(is_frozen: bool) -> None:
    """Dynamo marks them when it compiles without freezing, which calibrating does."""
    module, data = Holding().eval(), [torch.randn(16, 64) for _ in range(12)]
    run, x = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen), torch.randn(64, 64)
    for _ in range(2):
        assert 0.0 < float((run(x) - module(x)).norm() / module(x).norm()) < 0.03
        module.shift = torch.randn(64)
        module.tables["cpu"] = torch.rand(64) + 1
    graph = account(run).graphs[0]
    assert graph.int8_products == 2 and graph.plan is not None
    channels = {name for name, how in graph.plan.quantized if how.axis is not None}
    assert channels == {"layers.0.weight", "layers.1.weight"}


def test_a_module_that_is_never_traced_is_told() -> None:
    module, data = nn.LSTM(8, 8).eval(), [torch.randn(3, 2, 8)] * 8
    with pytest.warns(UserWarning, match="nothing runs in INT8: Dynamo traced no graph on the data") as told:
        run = mezzo.torch.compile(module, to="int8", data=data)
    assert len(told) == 1 and "\n" not in str(told[0].message)
    assert torch.equal(run(data[0])[0], module(data[0])[0])
    with pytest.raises(InputError, match="max_error is held by a graph: Dynamo traced no graph on the data"):
        mezzo.torch.compile(module, to="int8", data=data, max_error=0.1)


class TiedHead(nn.Module):
    """An embedding whose weight is that of the last layer too, as in language models."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer, self.head = nn.Embedding(96, 64), nn.Linear(64, 64), nn.Linear(64, 96, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.head(torch.relu(self.layer(self.table(tokens))))
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_budget_may_leave_the_other_product_of_a_tied_weight_in_int8(is_frozen: bool) -> None:
    """The plan stores the weight twice, which the layer's weight in INT8 would have made up for."""
    module, data = TiedHead().eval(), [torch.randint(0, 96, (4, 8)) for _ in range(12)]
    run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen, max_error=0.015, correct="none")
    x = torch.randint(0, 96, (32, 8))
    assert 0.0 < float((run(x) - module(x)).norm() / module(x).norm()) <= 0.015
    (plan,) = run.plans
    in_int8 = {node.name for node in plan.nodes if node.op in ("addmm", "mm") and node.precision.compute in QUANTIZED}
    assert in_int8 == {"head/mm"} and account(run).graphs[0].int8_products == 1


class Gated(nn.Module):
    """A gated product of two matmuls, as in language models, one of whose channels is far larger than the others."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(64, 128), nn.Linear(64, 128), nn.Linear(128, 64)
        self.up.weight[3] *= factor
        self.down.weight[:, 3] /= factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(nn.functional.silu(self.gate(x)) * self.up(x))
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize(("factor", "is_wrong"), [(1.0, False), (1000.0, True)])
def test_answers_that_are_wrong_on_the_data_are_told(factor: float, is_wrong: bool, is_frozen: bool) -> None:
    module, data = Gated(factor).eval(), [torch.randn(16, 64) for _ in range(12)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen)
    messages = [str(each.message) for each in told if "answers in INT8 are wrong" in str(each.message)]
    x = torch.randn(64, 64)
    assert (float((run(x) - module(x)).norm() / module(x).norm()) > 0.3) is is_wrong
    assert len(messages) == is_wrong
    assert all("give max_error, which keeps what errs in floats" in line and "\n" not in line for line in messages)
    if is_wrong:
        torch._dynamo.reset()
        within = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen, max_error=0.1)
        assert float((within(x) - module(x)).norm() / module(x).norm()) <= 0.1
        assert account(within).graphs[0].int8_products == 2


@pytest.mark.parametrize("is_frozen", [True, False])
def test_ranges_of_rows_take_the_place_of_scales_of_data_that_give_wrong_answers(
    is_frozen: bool, tmp_path: Path
) -> None:
    """The first token is a hundred times the others, as in language models, and each row is normalized at the end."""

    def draw(seed: int) -> torch.Tensor:
        tokens = torch.randn(2, 8, 64, generator=torch.Generator().manual_seed(seed))
        tokens[:, 0] *= 100.0
        return tokens

    module = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64), nn.LayerNorm(64)).eval()
    data = [draw(seed) for seed in range(12)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen)
        answer, right = run(draw(99)), module(draw(99))
    assert float((answer - right).norm() / right.norm()) < 0.02
    (plan,) = run.plans
    assert len(plan.dynamic) == account(run).graphs[0].int8_products == 2
    assert any("matmuls find the range of each row as they run" in note for note in plan.notes)
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    torch._dynamo.reset()
    again = mezzo.torch.compile(module, plan=tmp_path / "plan.json", freeze=is_frozen)
    assert torch.equal(again(draw(99)), answer)
