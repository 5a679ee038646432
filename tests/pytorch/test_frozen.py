"""Frozen weights: packed by the compiler, with what scales channels folded into them, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.kernels import CONVOLUTION, CONVOLUTION_ADD, LINEAR, PACK_FILTER, PACK_MATRIX, packs
from mezzo.torch.weights import frozen

pytestmark = pytest.mark.skipif(not packs(torch.bfloat16), reason="oneDNN packs no BF16 weights on this machine")
# Weights, inputs, and answers are rounded to half an eps each, in up to three products in a row.
_TOLERANCE = 8 * BF16_EPS


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Scaled(nn.Module):
    """A product, what is done to its answer with two tensors of the model's, and a product behind."""

    def __init__(
        self,
        product: nn.Module,
        call: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
        behind: nn.Module,
        size: tuple[int, ...],
    ) -> None:
        super().__init__()
        self.product, self.call, self.behind = product, call, behind
        self.scale, self.shift = nn.Parameter(torch.rand(size) + 0.5), nn.Parameter(torch.randn(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.behind(self.call(self.product(x), self.scale, self.shift))
        return answer


def _linear(call: Any, size: tuple[int, ...] = (24,), bias: bool = True) -> nn.Module:
    return Scaled(nn.Linear(32, 24, bias=bias), call, nn.Linear(24, 8), size)


def _convolution(call: Any, size: tuple[int, ...] = (6, 1, 1), **about: Any) -> nn.Module:
    return Scaled(nn.Conv2d(4, 6, 3, **about), call, nn.Conv2d(6, 4, 1), size)


def _sequences(call: Any) -> nn.Module:
    return Scaled(nn.Conv1d(4, 6, 3), call, nn.Conv1d(6, 4, 1), (6, 1))


def _normed(product: nn.Module, *behind: nn.Module) -> nn.Module:
    """BatchNorm behind a convolution, as it is after training."""
    norm = nn.BatchNorm2d(8)
    with torch.no_grad():
        for one in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
            assert one is not None, "a plain one has all four"
            one.copy_(torch.rand(8) + 0.1)
    return nn.Sequential(product, norm, *behind, nn.Conv2d(8, 4, 1))


class Residual(nn.Module):
    """Two convolutions with norms, the second behind a sum with what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3, padding=1, bias=False), nn.Conv2d(8, 8, 1, bias=False)
        self.one, self.two, self.head = nn.BatchNorm2d(8), nn.BatchNorm2d(8), nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.one(self.first(x)))
        answer: torch.Tensor = self.head(torch.relu(self.two(self.second(y)) + y))
        return answer


_FOLDED: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "scale and shift": (lambda: _linear(lambda y, a, b: y * a + b), 1),
    "shift and scale": (lambda: _linear(lambda y, a, b: (b + y) * a), 1),
    "less a shift": (lambda: _linear(lambda y, a, b: (y - b) * a - b), 1),
    "no bias": (lambda: _linear(lambda y, a, b: y * a - b, bias=False), 1),
    "numbers": (lambda: _linear(lambda y, a, b: (y * 2 - 0.5) * a * 0.25, bias=False), 1),
    "a number": (lambda: _linear(lambda y, a, b: (y - 3) * 0.5), 1),
    "one for all": (lambda: _linear(lambda y, a, b: y * a + b, size=(1,)), 1),
    "and an activation": (lambda: _linear(lambda y, a, b: torch.relu(y * a + b)), 1),
    "both products": (lambda: nn.Sequential(_linear(lambda y, a, b: y * a), Times()), 2),
    "filters": (lambda: _convolution(lambda y, a, b: y * a + b), 1),
    "filters without bias": (lambda: _convolution(lambda y, a, b: y * a + b, bias=False), 1),
    "filters of sequences": (lambda: _sequences(lambda y, a, b: torch.relu(y * a + b)), 1),
    "in groups": (lambda: _convolution(lambda y, a, b: y * a - b, groups=2, stride=2), 1),
    "batch norm": (lambda: _normed(nn.Conv2d(4, 8, 3, bias=False)), 1),
    "batch norm and relu": (lambda: _normed(nn.Conv2d(4, 8, 3), nn.ReLU()), 1),
    "batch norms": (lambda: _normed(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8)), 1),
    "residual": (Residual, 2),
}
_APART: dict[str, Callable[[], nn.Module]] = {
    "the other way around": lambda: _linear(lambda y, a, b: b - y),
    "of rows": lambda: _linear(lambda y, a, b: y * a, size=(5, 1)),
    "of places": lambda: _convolution(lambda y, a, b: y * a, size=(7, 6)),
    "of what comes in": lambda: _linear(lambda y, a, b: y * y.mean()),
    "of itself": lambda: _linear(lambda y, a, b: y * y),
    "read before": lambda: _linear(lambda y, a, b: y * a + y.sum()),
    "behind an activation": lambda: _linear(lambda y, a, b: torch.relu(y) * a),
}


class Times(nn.Module):
    """A weight with the input's features first, and a scale of each feature of the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(torch.randn(8, 6)), nn.Parameter(torch.rand(6) + 0.5)
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head((x @ self.weight) * self.scale)
        return answer


def _judged(model: nn.Module, monkeypatch: Any) -> int:
    """How many products have what scales them folded in, when the answer was compared with that of FP64."""
    sizes = {nn.Conv2d: (2, 4, 9, 8), nn.Conv1d: (2, 4, 9)}
    size = next(
        (size for kind, size in sizes.items() if any(isinstance(one, kind) for one in model.modules())), (5, 32)
    )
    model, x = model.eval(), torch.randn(size)
    folded: list[bool] = []
    fold, run = frozen._fold, driving.without_code
    graphs: list[torch.fx.GraphModule] = []
    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(
            driving, "without_code", lambda module, *about, **more: graphs.append(module) or run(module, *about)
        )
        patch.setattr(frozen, "_fold", lambda *given: folded.append(fold(*given)) or folded[-1])
        wanted = model.double()(x.double())
        found = compiled(model.float(), freeze=True)(x)
    assert folded, "there are packed products"
    called = {node.target for module in graphs for node in module.graph.nodes}
    assert called.isdisjoint({PACK_FILTER, PACK_MATRIX}), "the compiler packs what it knows"
    assert called & {CONVOLUTION, CONVOLUTION_ADD, LINEAR}
    assert 0 < error_of(found, wanted) < _TOLERANCE
    return sum(folded)


@pytest.mark.parametrize("name", list(_FOLDED))
def test_scalings_of_channels_are_part_of_frozen_weights(name: str, monkeypatch: Any) -> None:
    make, count = _FOLDED[name]
    assert _judged(make(), monkeypatch) == count


@pytest.mark.parametrize("name", list(_APART))
def test_what_scales_no_channels_stays_apart(name: str, monkeypatch: Any) -> None:
    assert _judged(_APART[name](), monkeypatch) == 0


def test_a_channel_of_no_variance_is_scaled_in_range(monkeypatch: Any) -> None:
    model: Any = _normed(nn.Conv2d(4, 8, 3), nn.ReLU())
    with torch.no_grad():
        model[0].weight[0] = 0
        model[1].running_var[0] = 1e-12
        model[1].running_mean[0] = model[0].bias[0]
    assert _judged(model, monkeypatch) == 1


def test_weights_that_are_written_or_given_back_are_no_constants() -> None:
    class Kept(driving.Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            answer = super().forward(x)
            self.up.weight.neg_()
            return answer + self.down.weight.view(-1)[0]

    model = Kept().eval()
    exact = Kept().eval().double()
    exact.load_state_dict(model.state_dict())
    run = compiled(model, freeze=True)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 32)
            found, wanted = run(x), exact(x.double())
            assert error_of(found, wanted) < _TOLERANCE


def test_casts_of_constants_are_no_casts_of_calls() -> None:
    run = compiled(driving.Net().eval(), freeze=True)
    with torch.no_grad():
        run(torch.randn(4, 32))
    assert account(run).graphs[0].casts == 4  # of what each of two products reads and makes
