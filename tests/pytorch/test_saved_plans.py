"""Plan files of compiled modules: replayed without data, edited by hand, and refused in one line where they misfit."""

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import IN_PAIRS, generate_no_code
from torch import nn

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.evaluate.data_session import open_session
from mezzo.torch import capturing
from mezzo.torch.compiler import scales
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.int8_kernels import multiplies_int8

pytestmark = pytest.mark.skipif(not multiplies_int8(IN_PAIRS), reason="oneDNN has no INT8 kernels on this machine")


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    generate_no_code(monkeypatch)
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Parts(nn.Module):
    """Two graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 96), nn.Linear(96, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.first(x))
        torch._dynamo.graph_break()
        result: torch.Tensor = self.second(x)
        return result


def rows(seed: int, count: int = 4) -> torch.Tensor:
    return torch.randn(count, 64, generator=torch.Generator().manual_seed(seed))


def made(to: str = "int8,bf16", **options: Any) -> Any:
    data = {"data": [rows(seed) for seed in range(6)], "correct": "none"} if "int8" in to else {}
    return mezzo.torch.compile(Parts().eval(), to=to, **{**data, **options})


def computed(run: Any) -> list[list[str]]:
    return [[str(node.precision.compute) for node in plan.nodes if node.op == "addmm"] for plan in run.plans]


@pytest.mark.parametrize("was_frozen", [True, False])
@pytest.mark.parametrize("to", ["int8", "int8,bf16", "bf16"])
def test_plans_are_replayed_without_data_frozen_or_not(to: str, was_frozen: bool, tmp_path: Path) -> None:
    run = made(to, freeze=was_frozen)
    expected = run(rows(99))
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    for is_frozen in (True, False):
        again = mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json", freeze=is_frozen)
        assert torch.equal(again(rows(99)), expected)
        assert torch.equal(again(rows(98, 9)), run(rows(98, 9)))  # of other sizes
        assert computed(again)[:2] == computed(run)[:2] == [["int8" if "int8" in to else to]] * 2
    for copied in (copy.deepcopy(again), pickle.loads(pickle.dumps(again))):
        assert torch.equal(copied(rows(99)), expected)
    torch._dynamo.reset()  # its limit on what is compiled for one function
    mezzo.torch.save_plan(again, tmp_path / "second.json")
    assert torch.equal(mezzo.torch.compile(run._orig_mod, plan=tmp_path / "second.json")(rows(99)), expected)


class Normed(nn.Sequential):
    """Batch norms: their statistics are buffers, which are inputs of the graph unless they are frozen."""

    def __init__(self) -> None:
        parts = (nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, 3), nn.BatchNorm2d(8))
        super().__init__(*parts)
        for norm in (self[1], self[4]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)


def images(seed: int) -> torch.Tensor:
    return torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("was_frozen", [True, False])
@pytest.mark.parametrize("budget", [None, 0.05])
def test_plans_of_networks_with_buffers_are_replayed_frozen_or_not(
    was_frozen: bool, budget: float | None, tmp_path: Path
) -> None:
    module = Normed().eval()
    options = {} if budget is None else {"max_error": budget}
    data = [images(seed) for seed in range(6)]
    run = mezzo.torch.compile(module, to="int8", freeze=was_frozen, data=data, correct="none", **options)
    expected = run(images(99))
    assert account(run).graphs[0].int8_products == 2
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    for is_frozen in (True, False):
        again = mezzo.torch.compile(module, plan=tmp_path / "plan.json", freeze=is_frozen)
        # A norm that is folded into constants rounds otherwise, which moves integers by one here and there.
        assert float((again(images(99)) - expected).norm() / expected.norm()) < 2e-3
        assert account(again).graphs[0].int8_products == 2


def test_weights_that_change_keep_the_scales_of_the_plan(tmp_path: Path) -> None:
    run = made()
    run(rows(99))
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    run._orig_mod.first.weight.mul_(0.5)
    again = mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json")
    assert torch.equal(again(rows(99)), run(rows(99)))
    run._orig_mod.second.weight.mul_(-2)
    assert torch.equal(again(rows(99)), run(rows(99)))


def test_precisions_may_be_edited_and_other_graphs_are_planned_anew(tmp_path: Path) -> None:
    run = made()
    run(rows(99))
    path = tmp_path / "plan.json"
    mezzo.torch.save_plan(run, path)
    document = json.loads(path.read_text())
    node = next(node for node in document["graphs"][0]["nodes"] if node["op"] == "addmm")
    node["precision"] = "f32"
    for other in document["graphs"][0]["nodes"]:
        if other["kind"] == "op":
            other["precision"] = "f32"
    del document["graphs"][1]
    path.write_text(json.dumps(document))
    again = mezzo.torch.compile(run._orig_mod, plan=path)
    again(rows(99))
    assert computed(again) == [["f32"], ["bf16"]]


def test_a_machine_without_the_kernels_refuses_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = made()
    run(rows(99))
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    monkeypatch.setattr(scales, "multiplies_int8", lambda in_pairs: False)
    with pytest.raises(InputError, match=r"plan .* runs 'first/addmm' in int8, and oneDNN's INT8 matmuls fail"):
        mezzo.torch.compile(run._orig_mod, plan=tmp_path / "plan.json")(rows(99))


# -- plans within a budget -------------------------------------------------------------------------------------------


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 16)).eval()


@pytest.mark.parametrize("is_frozen", [True, False])
@pytest.mark.parametrize(("to", "counts"), [("int8,bf16", (3, 2, 0)), ("bf16", (0, 0, 0))])
def test_a_budget_is_held_on_unseen_data(to: str, counts: tuple[int, ...], is_frozen: bool) -> None:
    module, unseen = layers(), [rows(seed, 8) for seed in range(99, 131)]
    exact = torch.cat([module(x) for x in unseen])
    for budget, count in zip((0.1, 0.014, 1e-4), counts, strict=True):
        torch._dynamo.reset()
        data = [rows(seed, 8) for seed in range(12)]
        options: dict[str, Any] = {"correct": "none"} if is_frozen else {}
        run = mezzo.torch.compile(module, to=to, data=data, max_error=budget, freeze=is_frozen, **options)
        result = torch.cat([run(x) for x in unseen])
        assert float((result - exact).norm() / exact.norm()) <= budget
        # Where pairs are added, weights err more, and a product less is within the middle budget.
        assert account(run).graphs[0].int8_products == count - (IN_PAIRS and count == 2)


class Counted(nn.Module):
    """A buffer that is read as it was, one that the graph writes to, and one that is replaced after it."""

    shift: torch.Tensor
    written: torch.Tensor
    replaced: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        for name, value in (("shift", torch.randn(64)), ("written", torch.ones(1)), ("replaced", torch.ones(1))):
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layer(x) + self.written * self.shift - self.replaced * self.shift
        self.written.add_(1)
        self.replaced = self.replaced + 1
        return result


def test_a_budget_counts_the_samples_of_a_network_with_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Buffers have no rows of a batch: they are data of a call only once they have changed."""
    fed: list[set[str]] = []

    def opened(model: Any, feeds: Any) -> Any:
        fed.extend(set(batch) for batch in feeds)
        return open_session(model, feeds)

    monkeypatch.setattr(capturing, "open_session", opened)
    run = mezzo.torch.compile(Normed().eval(), to="int8", data=[images(seed) for seed in range(8)], max_error=0.05)
    assert [len(names) for names in fed] == [1] * 8
    run(images(99))
    assert account(run).graphs[0].int8_products == 2
    fed.clear()
    torch._dynamo.reset()
    module = Counted().eval()
    run = mezzo.torch.compile(module, to="int8", data=[rows(seed, 8) for seed in range(8)], max_error=0.05)
    assert [len(names) for names in fed] == [2, *[3] * 7]
    run(rows(99, 8))
    assert account(run).graphs[0].int8_products == 1


class Logarithm(nn.Module):
    """A logarithm, which takes no error of numbers near 0: its matmul stays in FP32 unless data shows larger ones."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 64)
        self.layer.weight.fill_(0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(1e-3 + nn.functional.softplus(30 * self.layer(x)))


@pytest.mark.parametrize("to", ["bf16", "int8"])
def test_a_budget_clears_what_data_refutes(to: str) -> None:
    data = [rows(seed, 8).abs() for seed in range(12)]
    run = mezzo.torch.compile(Logarithm(), to=to, data=data, max_error=0.1)
    run(data[0])
    assert [str(node.precision.compute) for node in run.plans[0].nodes if node.op == "addmm"] == [to]


def test_a_plan_within_a_budget_is_saved(tmp_path: Path) -> None:
    module = layers()
    run = mezzo.torch.compile(module, to="int8", data=[rows(seed, 8) for seed in range(12)], max_error=0.014)
    expected = run(rows(99, 8))
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    assert dict(run.plans[0].settings)["max_error"] == "0.014"
    assert torch.equal(mezzo.torch.compile(module, plan=tmp_path / "plan.json")(rows(99, 8)), expected)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_error": 0.1}, "max_error is held on data; give data="),
        ({"max_error": -1.0, "data": [rows(0)]}, "max_error is -1.0; give a relative error above 0"),
        ({"max_error": 0.1, "data": []}, "data holds no batch; give one at least"),
        ({"max_error": 0.1, "data": [rows(0)]}, "max_error is held by one graph, and the data came to 2"),
        ({"data": [rows(0)]}, "data gives scales of INT8, or holds max_error, and to has no int8"),
    ],
)
def test_budgets_that_cannot_be_held_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        mezzo.torch.compile(Parts().eval(), **options)


def _first(document: Any, change: Callable[[Any], object]) -> None:
    change(document["graphs"][0])


SPOILT: dict[str, tuple[Callable[[Any], object], str]] = {
    "format": (lambda document: document.update(format="mezzo-plan/1"), "has format 'mezzo-plan/1', wanted"),
    "no graphs": (lambda document: document.update(graphs={}), "holds no list of graphs"),
    "no graph": (lambda document: document.update(graphs=[]), "holds no list of graphs"),
    "no plan": (lambda document: document.update(graphs=[7]), "graph 1 has format 'int'"),
    "other formats": (
        lambda document: document["graphs"][0].update(levels=["f16", "f32"]),
        "plans to different formats",
    ),
    "dialect": (lambda document: _first(document, lambda graph: graph.update(dialect="onnx")), "dialect"),
    "scaled": (
        lambda document: _first(document, lambda graph: graph.update(scaled={"x": {"exponent": 1, "because": ""}})),
        "changes numbers or nodes of its graph",
    ),
    "scale": (
        lambda document: _first(
            document, lambda graph: graph["quantized"].update(l_args_0_={"dtype": "u8", "scale": -1, "zero_point": 0})
        ),
        "",
    ),
    "dtype": (
        lambda document: _first(
            document, lambda graph: [how.update(dtype="f32") for how in graph["quantized"].values()]
        ),
        "",
    ),
    "channels": (
        lambda document: _first(
            document,
            lambda graph: [how.update(axis=7, scale=[1.0, 2.0], zero_point=0) for how in graph["quantized"].values()],
        ),
        "",
    ),
    "no scales": (lambda document: _first(document, lambda graph: graph.pop("quantized")), ""),
    "a node less": (lambda document: _first(document, lambda graph: graph["nodes"].pop(0)), ""),
}


@pytest.mark.parametrize("name", SPOILT)
def test_what_is_no_plan_of_it_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    run = made()
    run(rows(99))
    path = tmp_path / "plan.json"
    mezzo.torch.save_plan(run, path)
    spoil, message = SPOILT[name]
    document = json.loads(path.read_text())
    spoil(document)
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as caught:
        mezzo.torch.compile(run._orig_mod, plan=path)(rows(99))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": [torch.zeros(1, 64)]}, "data cannot change what a plan has decided"),
        ({"to": "bf16"}, "to 'bf16' contradicts the plan"),
        ({"policy": "off"}, "contradicts the plan"),
        ({"plan": "nowhere.json"}, "cannot read plan 'nowhere.json'"),
    ],
)
def test_what_contradicts_a_plan_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    run = made()
    with pytest.raises(InputError, match="there is no plan to save"):
        mezzo.torch.save_plan(run, tmp_path / "plan.json")
    run(rows(99))
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    with pytest.raises(InputError, match=message):
        mezzo.torch.compile(run._orig_mod, **{"plan": tmp_path / "plan.json", **options})
    assert account(run).graphs


class Positions(nn.Module):
    """Operators of integers, of which a plan says nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(32, 64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(x.shape[0]) // 2 + 1
        result: torch.Tensor = torch.relu(self.layer(x + self.table(places)))
        return result


@pytest.mark.parametrize("is_frozen", [True, False])
def test_operators_of_integers_do_not_hide_the_plan_of_a_graph(is_frozen: bool, tmp_path: Path) -> None:
    module, data = Positions().eval(), [rows(seed, 8) for seed in range(8)]
    run = mezzo.torch.compile(module, to="int8", data=data, freeze=is_frozen)
    expected = run(rows(99, 8))
    assert account(run).graphs[0].int8_products == 1
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    again = mezzo.torch.compile(module, plan=tmp_path / "plan.json", freeze=is_frozen)
    assert torch.equal(again(rows(99, 8)), expected)
    assert account(again).graphs[0].int8_products == 1
