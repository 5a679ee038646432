"""Weights that products read as oneDNN packs them: which ones, their answers, and whose changes are seen."""

from collections.abc import Callable
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import driving  # needs torch
import torch
from driving import BF16_EPS, compiled, error_of
from torch import nn

from mezzo.torch.compiler import backend
from mezzo.torch.compiler.compiled import account
from mezzo.torch.onednn.kernels import packs
from mezzo.torch.weights.weights import SHADOWS

pytestmark = pytest.mark.skipif(not packs(torch.bfloat16), reason="oneDNN packs no BF16 weights on this machine")
# Weights, inputs, and answers are rounded to half an eps each, and FP32 sums in other orders are far less; two layers.
_TOLERANCE = 6 * BF16_EPS


@pytest.fixture(autouse=True)
def _anew() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


class Turned(nn.Module):
    """A product whose weight has the input's features first, as in GPT-2's Conv1D."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(32, 24)), nn.Parameter(torch.randn(24))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.addmm(self.bias, x, self.weight)


class Called(nn.Module):
    """A function of an input and one weight."""

    def __init__(self, weight: torch.Tensor, call: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight, self.call = nn.Parameter(weight), call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x, self.weight)


_FLAT, _SEQUENCE, _IMAGE, _VOLUME = (6, 32), (2, 8, 9), (2, 8, 9, 7), (1, 4, 5, 6, 7)
_PACKED = {
    "linear": (lambda: nn.Linear(32, 24), _FLAT),
    "linear without bias": (lambda: nn.Linear(32, 24, bias=False), _FLAT),
    "linear of three axes": (lambda: nn.Linear(32, 24), (2, 5, 32)),
    "one row": (lambda: nn.Linear(32, 24), (1, 32)),
    "one feature": (lambda: nn.Linear(32, 1), _FLAT),
    "turned": (Turned, _FLAT),
    "convolution": (lambda: nn.Conv2d(8, 16, 3, padding=1), _IMAGE),
    "convolution without bias": (lambda: nn.Conv2d(8, 16, 3, bias=False), _IMAGE),
    "strided and dilated": (lambda: nn.Conv2d(8, 16, 3, stride=2, padding=(2, 1), dilation=2), _IMAGE),
    "padding by name": (lambda: nn.Conv2d(8, 16, 3, stride=2, padding="valid"), _IMAGE),
    "grouped": (lambda: nn.Conv2d(8, 16, 3, groups=4), _IMAGE),
    "depthwise": (lambda: nn.Conv2d(8, 8, 3, groups=8), _IMAGE),
    "pointwise": (lambda: nn.Conv2d(8, 16, 1), _IMAGE),
    "of volumes": (lambda: nn.Conv3d(4, 6, 3, padding=1), _VOLUME),
    "of sequences": (lambda: nn.Conv1d(8, 16, 3), _SEQUENCE),
    "of sequences, strided": (lambda: nn.Conv1d(8, 16, 3, stride=2, padding=2, dilation=2), _SEQUENCE),
    "of sequences, depthwise": (lambda: nn.Conv1d(8, 8, 3, groups=8, bias=False), _SEQUENCE),
}
_LEFT = {
    "transposed convolution": (lambda: nn.ConvTranspose2d(8, 6, 3), _IMAGE),
    "read twice": (lambda: Called(torch.randn(32, 32), lambda x, w: x @ w + (x[None] @ w[None])[0]), _FLAT),
    "squared": (lambda: Called(torch.randn(32, 32), lambda x, w: x @ (w @ w)), _FLAT),
    "both ways": (lambda: Called(torch.randn(32, 32), lambda x, w: (x @ w) @ w.t()), _FLAT),
    "half a sum": (lambda: Called(torch.randn(32, 6), lambda x, w: torch.addmm(x[:, :6], x, w, alpha=0.5)), _FLAT),
    "a bias of rows": (lambda: Called(torch.randn(32, 6), lambda x, w: torch.addmm(x[:, :6], x, w)), _FLAT),
    "at two sizes": (
        lambda: Called(
            torch.randn(4, 8, 3, 3),
            lambda x, w: nn.functional.conv2d(x, w).sum() + nn.functional.conv2d(x[:, :, :5], w).sum(),
        ),
        _IMAGE,
    ),
}


def _judged(model: nn.Module, size: tuple[int, ...], **options: object) -> tuple[str, ...]:
    """The weights of a model that are packed, when its answer was compared with that of FP64."""
    run, x = compiled(model.eval(), **options), torch.randn(size)
    with torch.no_grad():
        found = run(x)
        wanted = model.double()(x.double())
        model.float()
    assert 0 < error_of(found, wanted) < _TOLERANCE
    return account(run).graphs[0].packed


@pytest.mark.parametrize("name", list(_PACKED))
def test_products_read_packed_weights(name: str) -> None:
    make, size = _PACKED[name]
    assert _judged(make(), size) == ("weight",)


@pytest.mark.parametrize("name", list(_LEFT))
def test_what_is_no_plain_product_reads_low_copies(name: str) -> None:
    make, size = _LEFT[name]
    assert _judged(make(), size) == ()


def test_a_machine_that_packs_nothing_has_the_same_answers(monkeypatch: Any) -> None:
    monkeypatch.setattr(backend, "packs", lambda dtype: False)
    for name, (make, size) in _PACKED.items():
        torch._dynamo.reset()
        assert _judged(make(), size) == (), name


def test_sizes_that_are_free_pack_matrices_alone() -> None:
    model = nn.Sequential(nn.Conv2d(8, 4, 3), nn.Flatten(), nn.Linear(140, 5))
    assert _judged(model, _IMAGE, dynamic=True) == ("2.weight",)


def test_graphs_of_several_sizes_share_a_packed_matrix() -> None:
    model = nn.Linear(32, 24).eval()
    before, run = len(SHADOWS), compiled(model, dynamic=False)
    with torch.no_grad():
        for n in (2, 3, 5):
            x = torch.randn(n, 32)
            assert error_of(run(x), model(x)) < _TOLERANCE
    assert [graph.packed for graph in account(run).graphs] == [("weight",)] * 3
    assert len(SHADOWS) == before + 1


@pytest.mark.parametrize("name", ["linear", "turned", "convolution", "of volumes", "of sequences"])
def test_a_packed_weight_that_changes_is_packed_again(name: str) -> None:
    make, size = _PACKED[name]
    model: Any = make().eval()
    run, x = compiled(model), torch.randn(size)
    with torch.no_grad():
        first = run(x)
        for change in (
            lambda: model.weight.mul_(-3),
            lambda: setattr(model, "weight", nn.Parameter(torch.randn_like(model.weight))),
            lambda: model.bias.add_(50),  # read as it is, no copy of it is made
            lambda: model.load_state_dict({key: one * 2 for key, one in model.state_dict().items()}),
        ):
            change()
            found, wanted = run(x), model(x)
            assert error_of(found, wanted) < _TOLERANCE
            assert error_of(first, wanted) > 0.05, "the answer changes with the weight"
            first = found


@pytest.mark.parametrize("freeze", [False, True])
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_results_and_views_have_the_strides_of_eager(memory_format: Any, freeze: bool) -> None:
    model = driving.Strides().eval().to(memory_format=memory_format)
    run, x = compiled(model, freeze=freeze), torch.randn(2, 4, 9, 8).to(memory_format=memory_format)
    with torch.no_grad():
        for found, wanted in zip(run(x), model(x), strict=True):
            assert found.stride() == wanted.stride()
            assert error_of(found, wanted) < _TOLERANCE


def test_a_bias_is_added_as_it_is() -> None:
    model = nn.Linear(32, 24).eval()
    with torch.no_grad():
        model.weight.zero_()
        model.bias.copy_(torch.full((24,), 1 + 2.0**-12))
        x = torch.randn(6, 32)
        run = compiled(nn.Sequential(model, nn.Linear(24, 24)).eval())
        run(x)
    graph = account(run).graphs[0]
    assert graph.shadows == graph.packed == ("0.weight", "1.weight")


def test_the_models_of_the_driver_pack_what_they_multiply_by() -> None:
    wanted: dict[type[nn.Module], tuple[str, ...]] = {
        driving.Net: ("up.weight", "down.weight"),
        driving.Gated: ("gate.weight", "up.weight", "down.weight"),
        driving.Conv: ("conv.weight", "head.weight"),
    }
    for kind, names in wanted.items():
        torch._dynamo.reset()
        run = compiled(kind().eval())
        with torch.no_grad():
            run(torch.randn(4, 3, 8, 8) if kind is driving.Conv else torch.randn(4, 32))
        assert set(account(run).graphs[0].packed) == set(names)
