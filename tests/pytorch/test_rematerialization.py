"""What a training step keeps: the cheapest way exactly, and what is decided is what happens."""

import itertools
from collections.abc import Callable, Collection
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import compiled
from random_programs import Program
from torch import fx, nn
from training_laws import planned, step

from mezzo.aten.read.retype import CAST
from mezzo.common.errors import InputError
from mezzo.torch.compiler.compiled import account
from mezzo.torch.train import joint, rematerialization
from mezzo.torch.train.joint_nodes import bytes_of
from mezzo.torch.train.live_bytes import Saved, Timeline
from mezzo.torch.train.saved_values import NEVER, Prices, SavedValues
from mezzo.torch.train.step_time import step_time_bytes

_WEIGHTS = (0.0, 0.3, 0.6, 0.8, 0.9, 1.0)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class _Chain(nn.Module):
    """Products with norms and activations between them, as in a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(32, 128), nn.LayerNorm(128), nn.Linear(128, 32)
        self.last = nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.last(x + self.down(self.norm(nn.functional.gelu(self.up(x)))).tanh())
        return made


def _kept_bytes(run: Callable[[torch.Tensor], torch.Tensor], model: nn.Module, x: torch.Tensor) -> int:
    """What autograd holds between the passes, weights apart."""
    made, size = _saved_by(lambda: run(x), model)
    made.sum().backward()
    return size


def _saved_by(run: Callable[[], Any], model: nn.Module) -> tuple[Any, int]:
    """What a call returns, and the bytes that it saves for the backward, weights and buffers apart."""
    weights = {one.untyped_storage().data_ptr() for one in (*model.parameters(), *model.buffers())}
    found: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            found[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        made = run()
    return made, sum(found.values())


def test_the_more_memory_weighs_the_less_is_kept() -> None:
    model, x = _Chain(), torch.randn(64, 32)
    told, kept = [], []
    for memory in _WEIGHTS:
        torch._dynamo.reset()
        run = compiled(model, memory=memory)
        run(x).sum().backward()
        told.append(account(run).graphs[0].kept_bytes)
        kept.append(_kept_bytes(run, model, x))
    assert told == sorted(told, reverse=True)
    assert repr(account(run)).endswith("; forward and backward, 28.7 KB kept between them")
    assert kept[-1] < 0.6 * kept[0]
    for one, other in zip(told, kept, strict=True):
        assert one is not None
        assert 0.95 * other <= one <= 1.4 * other, "what Inductor folds later is not kept"


def _without_a_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what is kept to PyTorch's partitioner."""
    monkeypatch.setattr(joint, "_has_budget", lambda graph: True)


@pytest.mark.parametrize("seed", [2, 3, 4, 5, 7, 9, 12, 13])
def test_by_default_less_is_kept_than_pytorch_keeps_and_gradients_are_the_same_bits(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained() -> tuple[Any, int]:
        torch._dynamo.reset()
        model = planned(Program(seed).text, "bf16", seed)
        run = compiled(model, fullgraph=False)
        return _saved_by(lambda: step(model, seed, run), model)

    ours, kept = trained()
    _without_a_cut(monkeypatch)
    theirs, kept_by_pytorch = trained()
    assert kept <= kept_by_pytorch
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], one) for name, one in theirs.items())


@pytest.mark.parametrize(("rows", "is_kept"), [(8, True), (8192, False)])
def test_by_default_a_low_copy_of_a_weight_is_kept_where_making_it_again_takes_long_beside_products(
    rows: int, is_kept: bool
) -> None:
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256))
    run, x = compiled(model), torch.randn(rows, 256)
    own = {x.untyped_storage().data_ptr(), *(one.untyped_storage().data_ptr() for one in model.parameters())}
    shapes: list[torch.Size] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            shapes.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(x).sum().backward()
    assert any(rows not in shape for shape in shapes) is is_kept


def test_a_budget_of_the_program_for_pytorchs_partitioner_is_left_to_it() -> None:
    model, x = _Chain(), torch.randn(64, 32)
    with torch._functorch.config.patch(activation_memory_budget=0.5):
        run = compiled(model)
        run(x).sum().backward()
    assert account(run).graphs[0].kept_bytes is None


@pytest.mark.parametrize("memory", _WEIGHTS)
def test_gradients_stay_right(memory: float) -> None:
    model, x = _Chain(), torch.randn(64, 32)
    run = compiled(model, memory=memory)
    run(x).square().sum().backward()
    found = {name: one.grad for name, one in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    model.double()(x.double()).square().sum().backward()
    for name, one in model.named_parameters():
        grad = found[name]
        assert grad is not None and one.grad is not None
        # Eight products in a row round twice each, and what the backward reads is rounded once.
        assert float((grad.double() - one.grad).norm() / one.grad.norm()) < 17 * 2.0**-9, name


@pytest.mark.parametrize("given", [-0.1, 1.5, "much", True])
def test_a_weight_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(InputError) as caught:
        compiled(_Chain(), memory=given)
    assert str(caught.value) == (
        f"option 'memory' is {given!r}; give a number from 0, least time and error, to 1, least memory"
    )


# -- beside every way there is ---------------------------------------------------------------------------------------


def _product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.sin() @ w


def _rounded(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    made = (x * 2).exp()
    return made.bfloat16().float() * made.square()


def _shared(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    made = x.sigmoid()
    return made.sum(1, keepdim=True).sqrt() * made


def _layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return ((x @ w).tanh().exp() @ w).sin()


@pytest.mark.parametrize("function", [_product, _rounded, _shared])
@pytest.mark.parametrize("weight", [0.0, 0.5, 2.0, 9.0, 100.0])
def test_nothing_is_cheaper(function: Any, weight: float) -> None:
    """Of all ways to have what the backward reads the cut is the cheapest: each node kept, made again, or neither."""
    graph, weights = _joint(function)
    late = joint.backward_of(graph)
    problem = SavedValues(graph=graph, late=late, free=weights, low=torch.bfloat16)
    prices = Prices(weight, problem.wide_bytes / 8)
    found = problem.solve(prices)
    low, whole, again = set(found.low), set(found.whole), set(found.again)
    assert _price(problem, prices, whole, again, low) == pytest.approx(_cheapest(problem, prices))


@pytest.mark.parametrize("function", [_product, _rounded, _shared, _layers])
@pytest.mark.parametrize("weight", [0.5, 2.0, 9.0, 100.0])
def test_the_price_of_bytes_at_the_peak_never_raises_the_peak(function: Any, weight: float) -> None:
    graph, weights = _joint(function)
    problem = SavedValues(graph=graph, late=joint.backward_of(graph), free=weights, low=torch.bfloat16)
    prices = Prices(weight, problem.wide_bytes / 8)
    assert rematerialization.least(problem, prices).peak_bytes <= problem.solve(prices).peak_bytes


@pytest.mark.parametrize("function", [_product, _rounded, _shared, _layers])
def test_the_default_rounds_nothing_and_spends_a_share_of_the_steps_time(function: Any) -> None:
    graph, weights = _joint(function)
    problem = SavedValues(graph=graph, late=joint.backward_of(graph), free=weights, low=torch.bfloat16)
    found, fastest = rematerialization.least_for_free(problem), problem.solve(Prices(1 / 16, NEVER))
    assert not found.low
    assert found.roundings == 0
    assert found.time_bytes - fastest.time_bytes <= step_time_bytes(graph.nodes) / 25


def _time_of_a_product(device: str) -> float:
    graph = fx.Graph()
    x, w = graph.placeholder("x"), graph.placeholder("w")
    made = graph.call_function(torch.ops.aten.mm.default, (x, w))
    x.meta["val"], w.meta["val"] = torch.empty(10, 20, device=device), torch.empty(20, 30, device=device)
    made.meta["val"] = torch.empty(10, 30, device=device)
    return step_time_bytes(graph.nodes)


def test_a_products_time_is_its_flops_by_what_the_device_computes_per_byte_and_its_bytes() -> None:
    flops, moved = 2 * 10 * 20 * 30, 4 * (10 * 20 + 20 * 30 + 10 * 30)
    assert _time_of_a_product("cpu") == flops / 16 + moved
    assert _time_of_a_product("meta") == flops / 200 + moved


def test_the_peak_is_what_lives_during_one_product() -> None:
    """Of 64 bytes each. At the last product: the result, the operand, and what three products made. At the one before
    the last two, if these are saved: the result, what two products made, an operand, and tanh and exp for what follows.
    """
    graph, _ = _joint(_layers)
    timeline = Timeline(graph, joint.backward_of(graph))
    named = {node.name: node for node in timeline.early}
    products = [node.name for node in timeline.calls if node in timeline.kernels]
    assert products == ["mm", "mm_1", "mm_2", "mm_3", "mm_4", "mm_5"]
    at = {name: timeline.time[node] for node in timeline.kernels for name in [node.name]}
    assert timeline.peak(Saved((), (), ())) == (5 * 64, at["mm_5"])
    saved = Saved(
        [named[name] for name in ("mm_1", "tanh", "exp")], (), [named[name] for name in ("cos", "mul_2", "sub")]
    )
    assert timeline.peak(saved) == (6 * 64, at["mm_3"])


@pytest.mark.parametrize(("other", "extra"), [(torch.float64, 2), (torch.bfloat16, 0)], ids=str)
def test_only_a_low_form_that_the_backward_reads_makes_keeping_low_free(other: torch.dtype, extra: int) -> None:
    """A number in FP32 that is multiplied in another type besides: the product's backward reads that, transposed."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        made = x @ w
        converted = made.to(other)
        return (converted @ converted).float() + made * x

    graph, weights = _joint(function)
    problem = SavedValues(graph=graph, late=joint.backward_of(graph), free=weights, low=torch.bfloat16)
    made = next(node for node in problem.nodes if node.target is torch.ops.aten.mm.default)
    (converted,) = [user for user in made.users if user.target is CAST]
    found = problem.solve(Prices(0.3, 0.0))
    assert found.low == [made]
    assert converted in found.whole
    whole = [node for node in found.whole if node not in weights]
    assert found.kept_bytes == sum(map(bytes_of, whole)) + extra * made.meta["val"].numel()


def _cheapest(problem: Any, prices: Any) -> float:
    best = float("inf")
    open_nodes = [node for node in problem.nodes if _choices(problem, prices, node) != ["none"]]
    assert 3 <= len(open_nodes) <= 9, "few enough to try all"
    for choice in itertools.product(*(_choices(problem, prices, node) for node in open_nodes)):
        chosen = dict(zip(open_nodes, choice, strict=True))
        whole = {node for node, what in chosen.items() if what == "whole"}
        again = {node for node, what in chosen.items() if what == "again"}
        low = {node for node in problem.nodes if node not in whole | again and problem.may_be_low(node)}
        best = min(best, _price(problem, prices, whole, again, low))
    return best


def _choices(problem: Any, prices: Any, node: fx.Node) -> list[str]:
    found = ["none"]
    if problem._keep_price(node, prices) < NEVER:
        found.append("whole")
    if problem.may_be_again(node):
        found.append("again")
    return found


def _price(
    problem: Any, prices: Any, whole: Collection[fx.Node], again: Collection[fx.Node], low: Collection[fx.Node]
) -> float:
    """What a way costs; infinite where the backward lacks something."""
    had = {*whole, *again}
    for node in problem.nodes:
        if problem._is_read_late(node) and node not in had and node not in low:
            return float("inf")
        if node in again and any(operand not in had for operand in node.all_input_nodes):
            return float("inf")
    return (
        sum(problem._keep_price(node, prices) for node in whole)
        + sum(problem._again_bytes(node) for node in again)
        + sum(problem._low_price(node, prices) for node in low)
    )


def _joint(function: Any) -> tuple[fx.Graph, frozenset[fx.Node]]:
    """The joint graph of a function of an input and a weight."""
    held: list[fx.Graph] = []
    seen = joint.advise_partitioner

    def advise(graph: fx.Graph, *given: Any) -> None:
        held.append(graph)

    x, w = torch.randn(4, 4, requires_grad=True), nn.Parameter(torch.randn(4, 4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mezzo.torch.compiler.passes.advise_partitioner", advise)
        compiled(lambda x, w: function(x, w), policy="off")(x, w)
    assert seen is joint.advise_partitioner
    (graph,) = held
    return graph, frozenset(node for node in graph.nodes if node.name == "primals_2")
