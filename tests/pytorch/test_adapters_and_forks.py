"""Weights that come and go as adapters do, and processes that fork: the answer is that of the model as it is now."""

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

import mezzo.torch

_TOLERANCE = 12 * BF16_EPS  # as in test_driver.py
_FORK = """
import os, torch, driving
torch.set_num_threads(1)  # OpenMP's threads do not live on in a child
torch.manual_seed(0)
model, x = driving.Net().eval(), torch.randn(4, 32)
run = driving.compiled(model)
with torch.no_grad():
    before = run(x)
    child = os.fork()
    if child == 0:
        same = torch.equal(run(x), before)
        model.up.weight.mul_(-2)
        fresh = driving.compiled(model)(x)
        os._exit(0 if same and torch.equal(run(x), fresh) and not torch.equal(fresh, before) else 1)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), torch.equal(run(x), before))
"""


class Adapted(nn.Module):
    """A linear layer with an adapter of low rank beside it."""

    def __init__(self, base: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.randn(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.base(x) + nn.functional.linear(nn.functional.linear(x, self.down), self.up)
        return answer

    def change(self) -> torch.Tensor:
        return self.up @ self.down


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def _is_right(run: object, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """The answer of a compiled model, held to that of the model as it is."""
    assert callable(run)
    found: torch.Tensor = run(x)
    wanted = copy.deepcopy(model).double()(x.double())
    assert 0 < error_of(found, wanted) < _TOLERANCE
    return found


def test_adapters_are_put_in_exchanged_and_taken_out() -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    run = compiled(model, fullgraph=False)
    with torch.no_grad():
        plain = _is_right(run, model, x)
        base, adapters = model.up, [Adapted(model.up), Adapted(model.up)]
        answers = []
        for adapter in (*adapters, *adapters):
            model.up = adapter  # type: ignore[assignment]  # any module may stand there
            answers.append(_is_right(run, model, x))
        model.up = base
        assert torch.equal(_is_right(run, model, x), plain)
    assert torch.equal(answers[0], answers[2])
    assert torch.equal(answers[1], answers[3])
    assert error_of(answers[0], answers[1]) > 0.05, "adapters differ"


@pytest.mark.parametrize("is_seen", [True, False])
def test_adapters_are_merged_and_unmerged(is_seen: bool) -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    run, adapter = compiled(model), Adapted(model.up)
    kept = model.up.weight.detach().clone()
    with torch.no_grad():
        plain = _is_right(run, model, x)
        for change in (adapter.change(), -adapter.change()):
            if is_seen:
                model.up.weight += change
            else:
                model.up.weight.data += change
                mezzo.torch.refresh(model)
            found = _is_right(run, model, x)
        model.up.weight.copy_(kept)  # sums in floats do not come back to the bit
        assert torch.equal(_is_right(run, model, x), plain)
        assert error_of(found, plain) < _TOLERANCE


def test_a_merge_that_changes_no_version_is_seen() -> None:
    model, x = driving.Net().eval(), torch.randn(4, 32)
    run = compiled(model)
    with torch.no_grad():
        before = run(x)
        model.up.weight.data += Adapted(model.up).change()
        assert not torch.equal(_is_right(run, model, x), before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_sees_its_own_weights_change_and_no_others() -> None:
    root = Path(__file__).parents[2]
    paths = os.pathsep.join((str(root / "src"), str(root / "tests" / "pytorch")))
    command = [sys.executable, "-c", _FORK]
    ran = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stdout.split() == ["0", "True"]
