"""Weights that are computed from constants: parts of a Parameter, and reparametrized ones. With `freeze=True` they are
weights like others, so the model runs as one that has them as Parameters.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
import torch.nn.functional as F
from driving import IN_PAIRS, Net
from torch import nn
from torch.nn.utils import parametrizations, prune

import mezzo.torch
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


class Functional(nn.Module):
    """A function of an input and of some Parameters."""

    def __init__(self, call: Callable[..., torch.Tensor], **weights: torch.Tensor) -> None:
        super().__init__()
        self.call, self.names = call, tuple(weights)
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x, *(getattr(self, name) for name in self.names))


def _matrix(*sizes: int) -> torch.Tensor:
    return torch.randn(*sizes) / sizes[-1] ** 0.5


def _two_linears(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return F.linear(torch.relu(F.linear(x, first)), second)


def _two_convolutions(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return F.conv2d(torch.relu(F.conv2d(x, first, padding=1)), second)


def _split(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _two_linears(x, *weight.split([48, 64]))


def _stacked(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return _two_linears(x, weights[0], weights[1].t())


def _adapted(x: torch.Tensor, weight: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return _two_linears(x, weight + low @ high, weight)


def _standardized(x: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    return _two_convolutions(x, _standard(first), _standard(second))


def _standard(weight: torch.Tensor) -> torch.Tensor:
    variance, mean = torch.var_mean(weight, [1, 2, 3], keepdim=True)
    return (weight - mean) * torch.rsqrt(variance + 1e-6) / weight[0].numel() ** 0.5


def _normed() -> nn.Module:
    linears = parametrizations.weight_norm(nn.Linear(64, 48)), parametrizations.spectral_norm(nn.Linear(48, 64))
    linears[0].parametrizations.weight.original0.mul_(1.5)
    return nn.Sequential(linears[0], nn.ReLU(), linears[1])


def _pruned() -> nn.Module:
    module = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 64))
    for linear in (module[0], module[2]):
        prune.l1_unstructured(linear, "weight", 0.5)
    return module


class _Twin(nn.Module):
    """Two products of a module in order, whose weights it has itself."""

    def __init__(self, call: Callable[..., torch.Tensor], *weights: torch.Tensor) -> None:
        super().__init__()
        self.call = call
        self.weights = nn.ParameterList([nn.Parameter(weight.detach().clone()) for weight in weights])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x, *self.weights)


def _split_weights(module: Any) -> _Twin:
    return _Twin(_two_linears, *module.weight.split([48, 64]))


def _linears_of(module: Any) -> nn.Module:
    linears = [nn.Linear(64, 48), nn.Linear(48, 64)]
    for linear, source in zip(linears, (module[0], module[2]), strict=True):
        linear.weight.copy_(source.weight)
        linear.bias.copy_(source.bias)
    return nn.Sequential(linears[0], nn.ReLU(), linears[1])


# A module with computed weights, one with the same weights as Parameters, and the size of an input.
_KINDS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[Any], nn.Module], tuple[int, ...]]] = {
    "parts": (
        lambda: Functional(_split, weight=_matrix(112, 48)),
        _split_weights,
        (16, 48),
    ),
    "stacked": (
        lambda: Functional(_stacked, weights=_matrix(2, 64, 64)),
        lambda module: _Twin(_two_linears, module.weights[0], module.weights[1].t()),
        (16, 64),
    ),
    "adapted": (
        lambda: Functional(_adapted, weight=_matrix(64, 64), low=_matrix(64, 4), high=_matrix(4, 64)),
        lambda module: _Twin(_two_linears, module.weight + module.low @ module.high, module.weight),
        (16, 64),
    ),
    "standardized": (
        lambda: Functional(_standardized, first=_matrix(16, 8, 3, 3), second=_matrix(24, 16, 1, 1)),
        lambda module: _Twin(_two_convolutions, _standard(module.first), _standard(module.second)),
        (2, 8, 10, 10),
    ),
    "normed": (_normed, _linears_of, (16, 64)),
    "pruned": (_pruned, _linears_of, (16, 64)),
}


def _made(name: str) -> tuple[nn.Module, nn.Module, list[torch.Tensor]]:
    """A module with computed weights, its twin, and data."""
    build, twin_of, size = _KINDS[name]
    module = build().eval()
    module(torch.randn(size))
    return module, twin_of(module).eval(), [torch.randn(size) for _ in range(8)]


@pytest.mark.parametrize("options", [{}, {"calibrator": "none"}], ids=["static", "rows"])
@pytest.mark.parametrize("name", _KINDS)
def test_frozen_they_run_in_int8_as_parameters_do(name: str, options: dict[str, str]) -> None:
    module, twin, data = _made(name)
    calibration = {} if options else {"data": data}
    runs = []
    for each in (module, twin):
        torch._dynamo.reset()
        run = mezzo.torch.compile(each, to="int8", freeze=True, **calibration, **options)
        runs.append((run(data[0]), account(run).graphs[0].int8_products))
    (answer, products), (expected, expected_products) = runs
    assert products == expected_products == (0 if name == "standardized" and options else 2)
    # Twins have weights that differ by roundings of FP32, which may turn a single integer.
    assert float((answer - expected).norm() / expected.norm()) < 1e-3


@pytest.mark.parametrize("to", ["bf16", "int4,bf16"])
def test_frozen_they_are_packed_as_parameters_are(to: str) -> None:
    module, twin, data = _made("parts")
    answers, packed = [], []
    for each in (module, twin):
        torch._dynamo.reset()
        run = mezzo.torch.compile(each, to=to, freeze=True)
        answers.append(run(data[0]))
        packed.append(account(run).graphs[0].int4_products)
    assert packed[0] == packed[1]
    assert torch.equal(*answers)


def test_attention_to_another_sequence_multiplies_parts_of_a_weight_in_int8() -> None:
    module = nn.MultiheadAttention(64, 4, batch_first=True).eval()
    data = [(torch.randn(2, 6, 64), *[torch.randn(2, 9, 64)] * 2) for _ in range(8)]
    run = mezzo.torch.compile(module, to="int8", freeze=True, data=data)
    answer, exact = run(*data[0])[0], module(*data[0])[0]
    weights = sorted(value for value, _ in run.plans[0].quantized if value.partition("#")[0].endswith("weight"))
    assert account(run).graphs[0].int8_products == 3
    assert weights == ["in_proj_weight#1", "in_proj_weight#2", "out_proj.weight"]
    assert float((answer - exact).norm() / exact.norm()) < 0.05  # INT8 of a softmax's average of values


def test_a_saved_plan_has_them_and_refuses_others(tmp_path: Path) -> None:
    module, _, data = _made("normed")
    run = mezzo.torch.compile(module, to="int8", freeze=True, data=data)
    answer = run(data[0])
    mezzo.torch.save_plan(run, tmp_path / "plan.json")
    torch._dynamo.reset()
    again = mezzo.torch.compile(module, plan=tmp_path / "plan.json", freeze=True)
    assert torch.equal(again(data[0]), answer)
    assert account(again).graphs[0].int8_products == 2


class _Written(Net):
    """Its weight is a Parameter times a number that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.factor: torch.Tensor
        self.register_buffer("factor", torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.factor.mul_(1.5)
        return F.linear(x, self.up.weight * self.factor)


class _Returned(Net):
    """It gives its caller a view of its weight."""

    def forward(self, x: torch.Tensor) -> Any:
        return F.linear(x, self.up.weight * 2), self.up.weight.view(-1)


class _Drawn(Net):
    """Its weight is another one at every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, torch.normal(self.up.weight, 0.1))


@pytest.mark.parametrize("kind", [_Written, _Returned, _Drawn])
@pytest.mark.parametrize("to", ["int8", "fp16"])
def test_what_may_change_from_call_to_call_is_no_constant(kind: type[Net], to: str) -> None:
    module, exact = kind().eval(), kind().eval()
    exact.load_state_dict(module.state_dict())
    x, is_drawn = torch.randn(4, 32), kind is _Drawn
    calibration = {"data": [torch.randn(4, 32) for _ in range(4)]} if to == "int8" else {}
    # Else Inductor draws numbers first, and no weight is an operand of that.
    drawing = {"fallback_random": True} if is_drawn else None
    run = mezzo.torch.compile(module, to=to, freeze=True, options=drawing, **calibration)
    module.load_state_dict(exact.state_dict())
    answers = []
    for _ in range(3):
        answer, expected = run(x), exact(x)
        if kind is _Returned:
            (answer, view), (expected, other) = answer, expected
            view.mul_(1.25)
            other.mul_(1.25)
        answers.append(answer)
        assert is_drawn or float((answer - expected).norm() / expected.norm()) < 0.02
    assert not torch.equal(answers[0], answers[1])


def test_weights_that_may_change_are_computed_at_every_call() -> None:
    module, _, data = _made("normed")
    run = mezzo.torch.compile(module, to="int8", data=data)
    before = run(data[0])
    module[0].parametrizations.weight.original0.mul_(2)  # type: ignore[union-attr, operator]  # parametrizations have no types
    assert not torch.equal(run(data[0]), before)
    assert account(run).graphs[0].int8_products == 0


@pytest.mark.parametrize("options", [{}, {"calibrator": "none"}], ids=["static", "rows"])
@pytest.mark.parametrize("name", ["parts", "stacked", "adapted", "standardized"])
def test_the_plan_says_why_they_run_in_floats_where_weights_may_change(name: str, options: dict[str, str]) -> None:
    module, _, data = _made(name)
    run = mezzo.torch.compile(module, to="int8", data=None if options else data, **options)
    run(data[0])
    products = [node for node in run.plans[0].nodes if node.op in ("mm", "convolution")]
    reasons = ["its weight is computed at every call, and freeze=True computes it once"] * 2
    if name == "adapted":  # its other products are of two weights, and by a weight of the module's own
        assert [node.because for node in products].count(reasons[0]) == 1
    else:
        assert [node.because for node in products] == reasons


def test_gradients_reach_what_they_are_computed_from() -> None:
    module, _, data = _made("normed")
    run = mezzo.torch.compile(module, to="fp16", freeze=True)
    for call in (run, module):
        with torch.enable_grad():
            call(data[0]).sum().backward()
    twice = {name: weight.grad for name, weight in module.named_parameters()}
    module.zero_grad()
    with torch.enable_grad():
        module(data[0]).sum().backward()
    for name, weight in module.named_parameters():
        # Both runs added up, in FP16 and in FP32.
        assert float((twice[name] - 2 * weight.grad).norm() / weight.grad.norm()) < 0.02, name


@pytest.mark.parametrize("to", ["int8", "fp16"])
def test_with_gradients_enabled_inductor_freezes_nothing(to: str) -> None:
    module, _, data = _made("normed")
    calibration = {"data": data} if to == "int8" else {}
    run = mezzo.torch.compile(module.requires_grad_(False), to=to, freeze=True, **calibration)
    with torch.enable_grad():
        answer = run(data[0])
    assert float((answer - module(data[0])).norm() / answer.norm()) < 0.02
    assert float((run(data[0]) - module(data[0])).norm() / answer.norm()) < 0.05  # two products in INT8
    assert [graph.int8_products for graph in account(run).graphs] == [0, 2 if to == "int8" else 0]
