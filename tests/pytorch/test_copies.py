"""Copies, pickles and checkpoints: of compiled modules, and of optimizers whose steps are compiled."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import compiled
from torch import nn
from update_cases import MAKERS, TOLERANCE, far, make_steps, make_weights

import mezzo.torch
from mezzo.torch.train.optimizer import updates

_AGAIN = pytest.mark.parametrize(
    "again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))], ids=["copy", "pickle"]
)


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@_AGAIN
def test_copies_of_what_is_frozen_are_frozen(again: Callable[[Any], Any]) -> None:
    x = torch.randn(4, 32)
    run = again(compiled(driving.Net().eval(), freeze=True))
    with torch.no_grad():
        before = run(x)
        run.up.weight.zero_()
        assert torch.equal(run(x), before)


class _Breaks(driving.Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch._dynamo.graph_break()
        return super().forward(x)


@_AGAIN
def test_copies_are_one_graph_where_that_was_asked_for(again: Callable[[Any], Any]) -> None:
    run = again(compiled(driving.Net().eval(), dynamic=True))
    with torch.no_grad():
        for rows in (3, 5):
            run(torch.randn(rows, 32))
        assert len(mezzo.torch.account(run).graphs) == 1
        with pytest.raises(torch._dynamo.exc.Unsupported):
            again(compiled(_Breaks().eval(), fullgraph=True))(torch.randn(7, 32))


@_AGAIN
def test_copies_sum_gradients_in_the_format_too(again: Callable[[Any], Any]) -> None:
    run, x = compiled(driving.Net().train(), weight_grad_reduce="bf16"), torch.randn(4, 32)
    run(x).sum().backward()
    other = again(run)
    other(x).sum().backward()
    assert {one.grad.dtype for one in other.parameters() if one.grad is not None} == {torch.bfloat16}
    assert other.up.weight is not run.up.weight


# -- of optimizers -------------------------------------------------------------------------------------------------


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """One entry for each update that is compiled."""
    calls: list[object] = []
    plain = updates.compile_step
    monkeypatch.setattr(updates, "compile_step", lambda *given: calls.append(1) or plain(*given))
    return calls


def _weights_of(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return optimizer.param_groups[0]["params"]


@_AGAIN
@pytest.mark.parametrize("name", ["momentum", "AdamW"])
def test_copies_of_an_optimizer_are_compiled_and_step_their_own_weights(
    name: str, again: Callable[[Any], Any], compilations: list[object]
) -> None:
    first, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS[name](first)), MAKERS[name](wanted)
    make_steps(first, optimizer, count=3)
    make_steps(wanted, plain, count=3)
    other = again(optimizer)
    before = [one.detach().clone() for one in first]
    make_steps(_weights_of(other), other, count=4)
    make_steps(wanted, plain, count=4)
    assert far(_weights_of(other), wanted) <= TOLERANCE
    assert far(first, before) == 0
    assert len(compilations) == 2
    assert type(other) is type(optimizer)


def test_a_shallow_copy_steps_what_it_shares() -> None:
    found, wanted = make_weights(), make_weights()
    for weights in (found, wanted):
        optimizer: Any = MAKERS["AdamW"](weights)
        optimizer = mezzo.torch.compile_update(optimizer) if weights is found else optimizer
        other = copy.copy(optimizer)
        for _ in range(2):
            make_steps(weights, optimizer, count=2)
            make_steps(weights, other, count=2)
    assert far(found, wanted) <= TOLERANCE


class _Whole(torch.optim.SGD):
    """Copies all that it holds, as some optimizers of others do."""

    def __getstate__(self) -> dict[str, Any]:  # type: ignore[override]  # as they have it
        return {name: one for name, one in vars(self).items() if not name.startswith("_")}


def test_copies_of_an_optimizer_that_copies_all_it_holds_step_their_own_weights() -> None:
    first, wanted = make_weights(), make_weights()
    optimizer, plain = (mezzo.torch.compile_update(_Whole(first, lr=0.1)), torch.optim.SGD(wanted, lr=0.1))
    other = copy.deepcopy(optimizer)
    before = [one.detach().clone() for one in first]
    make_steps(_weights_of(other), other, count=3)
    make_steps(wanted, plain, count=3)
    assert far(_weights_of(other), wanted) <= TOLERANCE
    assert far(first, before) == 0


def _reset(optimizer: Any) -> None:
    optimizer.state.clear()


def _load_fresh(optimizer: Any) -> None:
    optimizer.load_state_dict(MAKERS["AdamW"](make_weights()).state_dict())


def _load_stepped(optimizer: Any) -> None:
    weights = make_weights()
    stepped = MAKERS["AdamW"](weights)
    make_steps(weights, stepped, count=2)
    optimizer.load_state_dict(stepped.state_dict())


@pytest.mark.parametrize("change", [_reset, _load_fresh, _load_stepped])
def test_what_is_loaded_or_reset_between_steps_is_gone_on_with(change: Any, compilations: list[object]) -> None:
    found, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS["AdamW"](found)), MAKERS["AdamW"](wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it stays compiled
        for weights, one in ((found, optimizer), (wanted, plain)):
            make_steps(weights, one, count=4)
            change(one)
            make_steps(weights, one, count=4)
    assert far(found, wanted) <= TOLERANCE
    assert len(compilations) == 1  # what was compiled before serves again


def test_a_copy_of_model_and_optimizer_trains_as_they_do() -> None:
    model = driving.Net().train()
    pair = (compiled(model, weight_update="fp32", weight_grad_reduce="bf16"), None)
    optimizer = mezzo.torch.compile_update(torch.optim.AdamW(model.parameters(), lr=0.01))
    pair = copy.deepcopy((pair[0], optimizer))
    ends = []
    for run, one in ((pair[0], pair[1]), (compiled(model, weight_update="fp32", weight_grad_reduce="bf16"), optimizer)):
        for number in range(4):
            one.zero_grad()
            run(torch.randn(4, 32, generator=torch.Generator().manual_seed(number))).square().mean().backward()
            one.step()
        ends.append([weight.detach().clone() for weight in run.parameters()])
    assert far(*ends) == 0
