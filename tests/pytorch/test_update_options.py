"""Options of optimizers that change from step to step: compiled updates take them as PyTorch's own steps do."""

import warnings
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from update_cases import MAKERS, TOLERANCE, far, give_gradients, make_steps, make_weights

import mezzo.torch


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


@pytest.mark.parametrize("name", ["momentum", "AdamW", "RMSprop", "NAdam"])
def test_schedules_move_rates_and_momenta_in_one_update(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from mezzo.torch.train.optimizer import updates

    calls: list[int] = []
    plain_compile = updates.compile_step
    monkeypatch.setattr(updates, "compile_step", lambda *given: calls.append(1) or plain_compile(*given))
    found, wanted = make_weights(), make_weights()
    optimizer, plain = mezzo.torch.compile_update(MAKERS[name](found)), MAKERS[name](wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is compiled
        schedules = [torch.optim.lr_scheduler.OneCycleLR(one, 0.01, total_steps=20) for one in (optimizer, plain)]
        make_steps(found, optimizer, schedules[0])
    make_steps(wanted, plain, schedules[1])
    assert far(found, wanted) <= TOLERANCE
    assert len(calls) == 1


def test_a_momentum_and_a_decay_that_come_and_go_are_heeded() -> None:
    """What is 0 is left out of a step, and of its code."""
    found, wanted = make_weights(), make_weights()
    optimizer, plain = (torch.optim.SGD(of, lr=0.01, momentum=0.9, weight_decay=0.1) for of in (found, wanted))
    optimizer = mezzo.torch.compile_update(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for number in range(12):
            for weights, one in ((found, optimizer), (wanted, plain)):
                give_gradients(weights, number)
                one.param_groups[0]["momentum"] = 0.1 * ((number + 1) % 4)
                one.param_groups[0]["weight_decay"] = 0.1 * ((number + 1) % 3)
                one.step()
    assert far(found, wanted) <= TOLERANCE


def test_options_that_are_tensors_are_read_at_each_step() -> None:
    found, wanted = make_weights(), make_weights()
    betas, rate = (torch.tensor(0.9), torch.tensor(0.99)), torch.tensor(0.01)
    optimizer: Any = torch.optim.Adam(found, lr=rate, betas=betas, foreach=False)  # type: ignore[arg-type]  # or tensors
    optimizer, plain = mezzo.torch.compile_update(optimizer), torch.optim.Adam(wanted, lr=0.01)
    for number in range(8):
        betas[0].fill_(0.5 + number / 20)
        rate.fill_(0.01 * (1 + number))
        plain.param_groups[0].update(betas=(float(betas[0]), float(betas[1])), lr=float(rate))
        for weights, one in ((found, optimizer), (wanted, plain)):
            give_gradients(weights, number)
            one.step()
    assert far(found, wanted) <= TOLERANCE


def test_options_that_change_too_often_are_left_to_the_optimizer() -> None:
    found, wanted = make_weights(), make_weights()
    optimizer, plain = (torch.optim.SGD(of, lr=0.01, momentum=0.9) for of in (found, wanted))
    optimizer = mezzo.torch.compile_update(optimizer)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for number in range(12):
            for weights, one in ((found, optimizer), (wanted, plain)):
                give_gradients(weights, number)
                one.param_groups[0]["maximize"] = bool(number % 2)
                one.param_groups[0]["momentum"] = 0.5 + 0.01 * number
                one.param_groups[0]["dampening"] = number  # a whole number is none that moves
                one.step()
    told = [str(one.message) for one in said if "not compiled" in str(one.message)]
    assert told == [
        "steps of SGD are PyTorch's own from here on, not compiled: its options, other than the learning rate, changed "
        "8 times"
    ]
    assert far(found, wanted) <= TOLERANCE
