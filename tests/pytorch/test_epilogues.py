"""Activations inside the products before them: which are found, that nothing else is, and their answers."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn
from torch.nn import functional as F

from mezzo.torch.compiler import passes
from mezzo.torch.onednn.kernels import packs

pytestmark = pytest.mark.skipif(not packs(torch.bfloat16), reason="oneDNN packs no BF16 weights on this machine")
Activation = Callable[[torch.Tensor], torch.Tensor]
# Weights, inputs, and answers are rounded to half an eps each, in two layers; gates have slopes up to 1.13.
_TOLERANCE = 6 * BF16_EPS


def _gelu_in_parts(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))


_FUSED: dict[str, Activation] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "gelu in parts": _gelu_in_parts,
    "silu": F.silu,
    "silu in parts": lambda x: x * torch.sigmoid(x),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}
_APART: dict[str, Activation] = {
    "another slope": lambda x: 0.5 * x * (1 + torch.erf(x * 0.7)),
    "another half": lambda x: 0.4 * x * (1 + torch.erf(x * 2**-0.5)),
    "read before": lambda x: F.gelu(x) + x,
    "read inside": lambda x: torch.sigmoid(x) * (x * torch.sigmoid(x)),
    "another gate": lambda x: x * torch.sigmoid(1.702 * x),
    "leaky": lambda x: F.leaky_relu(x, 0.1),
    "a sum": lambda x: F.relu(x + 0.25),
}


class Around(nn.Module):
    """An activation between two products."""

    def __init__(self, act: Activation, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.act, self.first, self.second = act, first, second

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.second(self.act(self.first(x)))
        return answer


def _linears(act: Activation) -> tuple[nn.Module, torch.Tensor]:
    return Around(act, nn.Linear(32, 24), nn.Linear(24, 16)), torch.randn(2, 5, 32)


def _convolutions(act: Activation) -> tuple[nn.Module, torch.Tensor]:
    return Around(act, nn.Conv2d(4, 6, 3, padding=1), nn.Conv2d(6, 3, 1)), torch.randn(2, 4, 9, 8)


def _sequences(act: Activation) -> tuple[nn.Module, torch.Tensor]:
    return Around(act, nn.Conv1d(4, 6, 3, padding=1), nn.Conv1d(6, 3, 1)), torch.randn(2, 4, 9)


def _answers(model: nn.Module, x: torch.Tensor, monkeypatch: Any) -> tuple[int, torch.Tensor, torch.Tensor]:
    """How many activations became part of a product, and the answer beside the exact one."""
    torch._dynamo.reset()
    counts: list[int] = []
    fuse = passes.fuse
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(passes, "fuse", lambda graph: counts.append(fuse(graph)))
        found = compiled(model.eval())(x)
        wanted = model.double()(x.double())
        model.float()
    return sum(counts), found, wanted


def _fused(model: nn.Module, x: torch.Tensor, monkeypatch: Any) -> tuple[int, float]:
    """How many activations became part of a product, and the error of the answer."""
    count, found, wanted = _answers(model, x, monkeypatch)
    return count, error_of(found, wanted)


@pytest.mark.parametrize("make", [_linears, _convolutions, _sequences])
@pytest.mark.parametrize("name", list(_FUSED))
def test_an_activation_becomes_part_of_the_product_before_it(name: str, make: Any, monkeypatch: Any) -> None:
    torch.manual_seed(0)
    model, x = make(_FUSED[name])
    count, error = _fused(model, x, monkeypatch)
    assert count == 1
    assert 0 < error < _TOLERANCE


@pytest.mark.parametrize("name", list(_APART))
def test_what_is_like_an_activation_stays_apart(name: str, monkeypatch: Any) -> None:
    torch.manual_seed(0)
    model, x = _linears(_APART[name])
    count, error = _fused(model, x, monkeypatch)
    assert count == 0
    assert 0 < error < _TOLERANCE


@pytest.mark.parametrize("name", list(_FUSED))
def test_an_answer_in_fp32_is_not_rounded(name: str, monkeypatch: Any) -> None:
    torch.manual_seed(0)
    model, x = Around(_FUSED[name], nn.Linear(32, 24), nn.Identity()), torch.randn(5, 32)
    assert _fused(model, x, monkeypatch)[0] == 0


class Shared(nn.Module):
    """An activation that two products read, in shapes of their own, and in one case a sum too."""

    def __init__(self, also: bool) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(32, 24), nn.Linear(24, 16), nn.Linear(12, 16)
        self.also = also

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.gelu(self.first(x))
        made: torch.Tensor = self.second(y) + self.third(y.reshape(-1, 12))[:5]
        return made + y.sum() if self.also else made


@pytest.mark.parametrize("also", [False, True])
def test_all_that_read_an_activation_read_it_low(also: bool, monkeypatch: Any) -> None:
    torch.manual_seed(0)
    count, error = _fused(Shared(also), torch.randn(5, 32), monkeypatch)
    assert count == (0 if also else 1)
    assert 0 < error < _TOLERANCE


def test_sums_are_not_rounded_before_an_activation(monkeypatch: Any) -> None:
    """Weights and inputs are BF16's own, so answers are rounded three times, or twice where one rounding is saved: the
    mean square falls by a third.
    """
    torch.manual_seed(0)
    model = Around(torch.tanh, nn.Linear(2, 64), nn.Linear(64, 64))
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.bfloat16())
    x = torch.randn(50, 2).bfloat16().float()
    squares = []
    for is_known in (True, False):
        with monkeypatch.context() as patch:
            if not is_known:
                patch.setattr("mezzo.torch.onednn.epilogues._activations", dict)
            count, found, wanted = _answers(model, x, monkeypatch)
        assert count == is_known
        squares.append(float((found - wanted).square().mean()))
    fused, apart = squares
    assert fused < 0.85 * apart
