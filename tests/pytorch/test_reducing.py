"""Sums of weights' gradients in low precision: over steps of accumulation, and over workers."""

import copy
import gc
import socket
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

import mezzo.torch
from mezzo.common.errors import InputError
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import account
from mezzo.torch.compiler.settings import read_settings

_WORKERS = 2
_DYNAMOS_OWN = "_is_torch_compile"  # what torch.compile leaves on every module
# What a worker sends is rounded once, and so is the sum.
_TOLERANCE = 4 * BF16_EPS


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


def test_gradients_are_given_and_added_up_in_bf16() -> None:
    model = driving.Net().train()
    beside = copy.deepcopy(model)
    run, plain = mezzo.torch.compile(model, weight_grad_reduce="bf16"), compiled(beside)
    feeds = [torch.randn(4, 32) for _ in range(3)]
    expected: dict[str, torch.Tensor] = {}
    for x in feeds:
        run(x).sum().backward()
        plain(x).sum().backward()
        for name, one in _gradients(beside).items():
            low = one.bfloat16()
            expected[name] = expected[name] + low if name in expected else low
        beside.zero_grad()
    found = _gradients(model)
    assert {one.dtype for one in found.values()} == {torch.bfloat16}
    for name, one in expected.items():
        assert error_of(found[name], one) < _TOLERANCE, name


def test_gradients_of_products_are_what_the_products_give() -> None:
    model, x = driving.Net().train(), torch.randn(4, 32)
    beside = copy.deepcopy(model)
    run = mezzo.torch.compile(model, weight_grad_reduce="bf16")
    run(x).sum().backward()
    torch._dynamo.reset()
    mezzo.torch.compile(beside, weight_grad_reduce="fp32")(x).sum().backward()
    low, wide = _gradients(model), _gradients(beside)
    assert {one.dtype for one in wide.values()} == {torch.float32}
    for name in ("up.weight", "down.weight"):
        assert torch.equal(low[name].float(), wide[name])


def test_what_is_compiled_while_gradients_wait_is_compiled() -> None:
    model = driving.Net().train()
    run = mezzo.torch.compile(model, weight_grad_reduce="bf16")
    run(torch.randn(4, 32)).sum().backward()
    before = _gradients(model)
    with torch.no_grad():
        run(torch.randn(4, 32))
    run(torch.randn(3, 32)).sum().backward()
    assert len(account(run).graphs) == 3
    assert all(graph.plan is not None for graph in account(run).graphs)
    assert all(model.get_parameter(name).grad is one for name, one in before.items())


@pytest.mark.parametrize("is_reset", [False, True], ids=["as it is", "Dynamo reset"])
def test_later_graphs_are_planned_beside_low_gradients(is_reset: bool) -> None:
    """Graphs of the same module that something else compiles, too: Dynamo runs what reads such a weight as it is."""
    model = driving.Net().train()
    run, x = compiled(model, weight_grad_reduce="bf16"), torch.randn(4, 32)
    run(x).sum().backward()
    before = _gradients(model)
    if is_reset:
        torch._dynamo.reset()
    outer = compiled(nn.Sequential(model, nn.Linear(32, 32)), fullgraph=True)
    for one in (run, outer):
        with torch.no_grad():
            one(torch.randn(3, 32))
        assert account(one).graphs[-1].plan is not None
    assert len(account(outer).graphs) == 1
    assert all(model.get_parameter(name).grad is one for name, one in before.items())


def test_module_is_as_it_was_when_what_was_compiled_is_gone() -> None:
    model, x = driving.Net().train(), torch.randn(4, 32)
    before = {name: {*vars(one), _DYNAMOS_OWN} for name, one in model.named_modules()}
    run = compiled(model, weight_grad_reduce="bf16")
    run(x).sum().backward()
    low = _gradients(model)
    del run
    gc.collect()
    assert {name: {*vars(one), _DYNAMOS_OWN} for name, one in model.named_modules()} == before
    for name, weight in model.named_parameters():
        assert weight.grad_dtype is torch.float32
        assert weight.grad is not None
        assert torch.equal(weight.grad, low[name].float())
    model.zero_grad()
    model(x).sum().backward()
    assert {one.dtype for one in _gradients(model).values()} == {torch.float32}


def test_other_that_is_compiled_of_the_module_keeps_its_format() -> None:
    model, x = driving.Net().train(), torch.randn(4, 32)
    run, other = (compiled(model, weight_grad_reduce="bf16") for _ in range(2))
    run(x).sum().backward()
    del run
    gc.collect()
    other(x).sum().backward()
    assert {one.dtype for one in _gradients(model).values()} == {torch.bfloat16}


def test_gradients_that_are_there_are_rounded() -> None:
    model = driving.Net().train()
    model(torch.randn(4, 32)).sum().backward()
    before = {name: one.clone() for name, one in _gradients(model).items()}
    run = mezzo.torch.compile(model, weight_grad_reduce="bf16")
    assert account(run).graphs == []
    assert {name: one.bfloat16() for name, one in before.items()}.keys() == _gradients(model).keys()
    assert all(torch.equal(one.bfloat16(), model.get_parameter(name).grad) for name, one in before.items())  # type: ignore[arg-type]


def _load(model: nn.Module) -> None:
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)


def _replace(model: Any) -> None:
    model.up.weight = nn.Parameter(model.up.weight.detach().clone())
    model.down = nn.Linear(64, 32)


def _convert(model: nn.Module) -> None:
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model.double().float()
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(False)


def _thaw(model: nn.Module) -> None:
    model.requires_grad_(True)


def _add(model: Any) -> None:
    model.norm = nn.Sequential(model.norm, nn.Linear(64, 64))


@pytest.mark.parametrize("change", [_load, _replace, _convert, _thaw, _add])
@pytest.mark.parametrize("is_first", [True, False], ids=["before the first call", "between calls"])
def test_weights_that_are_new_have_gradients_of_the_format_too(change: Any, is_first: bool) -> None:
    model = driving.Net().train()
    model.norm.requires_grad_(change is not _thaw)
    run, x = compiled(model, weight_grad_reduce="bf16", fullgraph=False), torch.randn(4, 32)
    if not is_first:
        run(x).sum().backward()
        model.zero_grad()
    change(model)
    for _ in range(2):
        run(x).sum().backward()
    found = _gradients(model)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert {one.dtype for one in found.values()} == {torch.bfloat16}


def test_a_module_is_not_kept_alive_by_what_looks_after_its_gradients() -> None:
    """Dynamo keeps backends until it is reset."""
    model = driving.Net()
    backend = Backend(read_settings({"weight_grad_reduce": "bf16"}), model=model)
    assert backend.model is model
    del model
    gc.collect()
    assert backend.model is None


@pytest.mark.parametrize(
    "make",
    [
        lambda of: torch.optim.AdamW(of, lr=0.01),
        lambda of: torch.optim.AdamW(of, lr=0.01, fused=True),
        lambda of: torch.optim.Rprop(of, lr=0.01),
        lambda of: torch.optim.LBFGS(of, lr=0.1, max_iter=3),
    ],
    ids=["AdamW", "fused", "Rprop", "LBFGS"],
)
@pytest.mark.parametrize("is_named", [True, False], ids=["by name", "by place"])
def test_steps_with_closures_take_gradients_in_bf16(make: Any, is_named: bool) -> None:
    """As trainers call them: gradients are computed inside the step, low, and are low again behind it."""
    torch.manual_seed(0)
    model, x = driving.Net().train(), torch.randn(4, 32)
    run, optimizer = compiled(model, weight_grad_reduce="bf16"), make(model.parameters())
    inside: list[torch.dtype] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=len(inside) % 2 == 0)
        loss: torch.Tensor = run(x).square().mean()
        loss.backward()
        assert model.up.weight.grad is not None
        inside.append(model.up.weight.grad.dtype)
        return loss

    steps = [optimizer.step(closure=closure) if is_named else optimizer.step(closure) for _ in range(4)]
    losses = [float(one.detach()) for one in steps]
    assert losses[-1] < losses[0] / 2, "it learns"
    assert set(inside) == {torch.bfloat16}
    assert {one.dtype for one in _gradients(model).values()} == {torch.bfloat16}


def test_a_step_that_raises_leaves_nothing_behind_for_the_next() -> None:
    model, x = driving.Net().train(), torch.randn(4, 32)
    run = compiled(model, weight_grad_reduce="bf16")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run(x).sum().backward()

    def fails() -> None:
        raise ValueError("no loss")

    with pytest.raises(ValueError, match="no loss"):
        optimizer.step(fails)
    optimizer.zero_grad()
    run(2 * x).sum().backward()
    expected = {name: one.clone() for name, one in _gradients(model).items()}
    optimizer.step()
    assert all(torch.equal(one, expected[name].to(one.dtype)) for name, one in _gradients(model).items())


def test_a_function_has_no_weights_of_its_own() -> None:
    with pytest.raises(InputError, match="option 'weight_grad_reduce' is 'bf16' for function, which has no weights"):
        mezzo.torch.compile(lambda x: x, weight_grad_reduce="bf16")


def test_wrapping_for_workers_what_was_compiled_is_told(tmp_path: Path) -> None:
    """Where it was left to PyTorch the backward raised an error about formats."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model, x = driving.Net().train(), torch.randn(4, 32)
        wrapped = DistributedDataParallel(compiled(model, weight_grad_reduce="bf16"))
        with pytest.raises(InputError) as caught:
            wrapped(x)
        assert str(caught.value) == (
            "option 'weight_grad_reduce' is 'bf16', and DistributedDataParallel stands around what was compiled; "
            "compile what it gives: mezzo.torch.compile(DistributedDataParallel(model), ...)"
        )
        inside = DistributedDataParallel(driving.Net().train())
        compiled(inside, weight_grad_reduce="bf16", fullgraph=False)(x).sum().backward()
        assert {one.dtype for one in _gradients(inside).values()} == {torch.float32}
    finally:
        torch.distributed.destroy_process_group()


def test_workers_agree_and_send_what_is_asked_for(tmp_path: Path) -> None:
    with socket.socket() as asked:
        asked.bind(("127.0.0.1", 0))
        port = asked.getsockname()[1]
    torch.multiprocessing.spawn(_work, (port, str(tmp_path)), nprocs=_WORKERS)
    found = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(_WORKERS)]
    exact = found[0].pop("exact")
    assert found[1].pop("exact").keys() == exact.keys()
    assert found[0].keys() == {"fp32", "bf16", "after bf16", "fp16", "after fp16", "fsdp fp32", "fsdp bf16"}
    for way in ("after bf16", "after fp16"):  # plain FP32, in the module as it was written
        assert all(error_of(gradient, exact[name]) < 2.0**-16 for name, gradient in found[0][way].items())
    for way, of in found[0].items():
        for name, gradient in of.items():
            assert torch.equal(gradient, found[1][way][name]), (way, name)  # workers have the same sums
            assert error_of(gradient, exact[name]) < 2 * _TOLERANCE, (way, name)  # products of two layers round as well
    for way in ("bf16", "fp16"):
        assert any(not torch.equal(one, found[0]["fp32"][name]) for name, one in found[0][way].items())
    rounded = {name: one.bfloat16().float() for name, one in found[0]["bf16"].items()}
    assert all(torch.equal(one, found[0]["bf16"][name]) for name, one in rounded.items())  # what was sent is BF16


def _work(rank: int, port: int, folder: str) -> None:
    """One of two workers with half of the data, in all ways."""
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=_WORKERS)
    torch.manual_seed(0)
    start, feed = _Plain(), torch.randn(_WORKERS, 8, 32)
    exact = copy.deepcopy(start).double()
    exact(feed.double().flatten(0, 1)).square().mean().backward()
    found: dict[str, Any] = {"exact": _gradients(exact)}
    for word in ("fp32", "bf16", "fp16"):
        torch._dynamo.reset()
        model = DistributedDataParallel(copy.deepcopy(start))
        run = mezzo.torch.compile(model, weight_grad_reduce=word)
        run(feed[rank]).square().mean().backward()
        found[word] = _gradients(model.module)
        assert account(run).plans, "it is planned"
        assert all(plan is not None for plan in account(run).plans)
        if word != "fp32":
            with pytest.raises(InputError, match="the model has a communication hook"):
                mezzo.torch.compile(model, weight_grad_reduce=word)
            del run
            gc.collect()
            model.zero_grad()
            model(feed[rank]).square().mean().backward()
            found[f"after {word}"] = _gradients(model.module)
            mezzo.torch.compile(model, weight_grad_reduce=word)
    for word, dtype in (("fp32", None), ("bf16", torch.bfloat16)):
        torch._dynamo.reset()
        sharded: Any = copy.deepcopy(start)
        sharded.compile(backend="mezzo", options={"weight_update": "fp32"})  # hooks of FSDP2 stand around it
        fully_shard(sharded, mesh=_mesh(), mp_policy=MixedPrecisionPolicy(reduce_dtype=dtype))
        other = {"fp32": "bf16", "bf16": "fp32"}[word]
        with pytest.raises(InputError, match="mp_policy=MixedPrecisionPolicy"):
            mezzo.torch.compile(sharded, weight_grad_reduce=other)
        mezzo.torch.compile(sharded, weight_grad_reduce=word)
        sharded(feed[rank]).square().mean().backward()
        whole = {name: one.full_tensor() for name, one in _gradients(sharded).items()}  # type: ignore[attr-defined]
        found[f"fsdp {word}"] = whole
        (graph,) = account(sharded).graphs
        assert graph.has_backward
        assert graph.shadows == ()  # what is gathered anew at each call is cast at each call
    torch.save(found, Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def _mesh() -> Any:
    return torch.distributed.init_device_mesh("cpu", (_WORKERS,))


class _Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.up(x).tanh())
        return made
