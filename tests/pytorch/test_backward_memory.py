"""What a backward holds at once: gradients are converted one by one, and sums read what products read, rounded."""

import copy
import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

# This folder itself passes for an empty "torch" where PyTorch is not installed.
pytest.importorskip("torch.nn", reason="needs mezzo[torch]")

import torch
from driving import dump, spell_type, without_code
from torch import fx, nn

import mezzo.torch
from mezzo.aten.read.retype import CAST
from mezzo.torch.compiler import passes
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import wrap
from mezzo.torch.compiler.settings import read_settings

_SUM: Any = torch.ops.aten.sum.dim_IntList


@pytest.fixture(autouse=True)
def _anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    torch._dynamo.reset()
    torch.manual_seed(0)


class _Block(nn.Module):
    """Two products, and between them an activation that is spelled out in FP32."""

    def __init__(self, width: int = 8, inner: int = 16) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + torch.tanh(0.8 * (x + 0.04 * torch.pow(x, 3.0))))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.down(self.activated(self.up(x)))
        return made


class _Normed(_Block):
    """The gradient of a residual sum is read by two products of the backward, and goes on in FP32."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.norm(x + super().forward(x))
        return made


class _Kept(_Block):
    """What is added to each row has its gradient summed in a region that stays FP32."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(16))

    def activated(self, x: torch.Tensor) -> torch.Tensor:
        with mezzo.torch.keep():
            shifted = x + self.shift
        return super().activated(shifted)


class _Residual(_Block):
    """What the last bias's gradient is the sum of goes past the products as well, in FP32."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = self.gain * x
        made = held + super().forward(held)
        return torch.tanh(made) * made


def _backward_of(model: nn.Module, x: torch.Tensor, **options: object) -> fx.Graph:
    """The backward as Inductor gets it."""
    graphs: list[fx.Graph] = []

    def keep(module: fx.GraphModule, inputs: object, **about: object) -> Callable[..., Any]:
        if about.get("is_backward"):
            graphs.append(module.graph)
        return without_code(module, inputs)

    wrap(model, Backend(read_settings(options), keep), fullgraph=True)(x).sum().backward()
    (graph,) = graphs
    return graph


def test_gradients_are_converted_by_calls_of_their_own_and_biases_are_summed_from_what_products_read() -> None:
    assert dump(_backward_of(_Block(), torch.randn(4, 8))) == (
        "bf16[4,8] = convert_element_type.default(f32[4,8])\n"
        "f32[4,16] = convert_element_type.default(bf16[4,16])\n"
        "f32[4,16] = pow.Tensor_Scalar(f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16])\n"
        "f32[4,16] = add.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16])\n"
        "f32[4,16] = tanh.default(f32[4,16])\n"
        "f32[4,16] = add.Tensor(f32[4,16])\n"
        "bf16[4,16] = mm.default(bf16[4,8], bf16[8,16])\n"
        "f32[4,16] = convert_element_type.default(bf16[4,16])\n"
        "bf16[8,16] = mm.default(bf16[8,4], bf16[4,16])\n"
        "f32[1,8] = sum.dim_IntList(f32[4,8])\n"
        "f32[4,16] = mul.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16])\n"
        "f32[4,16] = sub.Tensor(f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16])\n"
        "f32[4,16] = add.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16])\n"
        "f32[4,16] = pow.Tensor_Scalar(f32[4,16])\n"
        "f32[4,16] = mul.Scalar(f32[4,16])\n"
        "f32[4,16] = mul.Tensor(f32[4,16], f32[4,16])\n"
        "f32[4,16] = add.Tensor(f32[4,16], f32[4,16])\n"
        "bf16[4,16] = convert_element_type.default(f32[4,16])\n"
        "bf16[16,8] = mm.default(bf16[16,4], bf16[4,8])\n"
        "f32[1,16] = sum.dim_IntList(bf16[4,16])\n"
        "f32[8,16] = widened.default(bf16[8,16], bf16[16,8])\n"
        "f32[16,8] = widened.default(bf16[16,8])"
    )


@pytest.mark.parametrize("to", ["bf16", "fp16"])
def test_what_two_products_read_is_rounded_once(to: str) -> None:
    """One of them reads it transposed: that is a view of what the other reads."""
    graph = _backward_of(_Normed(), torch.randn(2, 4, 8), to=to)
    rounded = [node for node in graph.nodes if node.target is CAST and node.args[1] is not torch.float32]
    sources = [_maker(node) for node in rounded]
    assert len(sources) == len(set(sources))


def _maker(node: fx.Node) -> fx.Node:
    """What makes the number that a conversion reads, behind its views."""
    source = node.all_input_nodes[0]
    return _maker(source) if getattr(source.target, "is_view", False) else source


def _sums(graph: fx.Graph) -> list[str]:
    """Of which format each sum over rows reads its terms, in order."""
    return [_terms_of(node) for node in graph.nodes if node.target is _SUM]


def _terms_of(node: fx.Node) -> str:
    return spell_type(node.all_input_nodes[0].meta["val"])


@pytest.mark.parametrize(
    ("model", "options", "terms"),
    [
        (_Kept(), {}, "f32[4,16]"),
        (_Residual(), {}, "f32[4,8]"),
        (_Block(), {"exclude": ["up/backward/sum"]}, "f32[4,16]"),
        (_Block(), {"to": "fp16"}, "f32[4,16]"),
        (_Block(), {}, "f32[4,8]"),
    ],
    ids=["a region is kept", "others read it", "excluded by name", "FP16 would lose small ones", "it comes in so"],
)
def test_a_sum_reads_what_it_read(model: nn.Module, options: Mapping[str, object], terms: str) -> None:
    assert terms in _sums(_backward_of(model, torch.randn(4, 8), **options))


def test_a_bias_has_the_fp32_sum_of_its_rounded_gradient() -> None:
    """As it is rounded for the product beside it: nothing rounds the sum."""
    model, x = _Block(), torch.randn(64, 8)
    terms: list[torch.Tensor] = []

    def watch(module: fx.GraphModule, inputs: object, **about: object) -> Callable[..., Any]:
        """Return what is summed for the bias, too."""
        if not about.get("is_backward"):
            return without_code(module, inputs)
        (summed,) = [node for node in module.graph.nodes if node.target is _SUM and _terms_of(node) == "bf16[64,16]"]
        end = next(reversed(module.graph.nodes))
        end.args = ((*end.args[0], summed.args[0]),)
        run = without_code(module, inputs)

        def call(*given: Any) -> Any:
            *gradients, rounded = run(*given)
            terms.append(rounded)
            return gradients

        return call

    wrap(model, Backend(read_settings({}), watch), fullgraph=True)(x).square().sum().backward()
    (rounded,) = terms
    assert model.up.bias.grad is not None
    assert torch.equal(model.up.bias.grad, rounded.sum(0, dtype=torch.float32))


@pytest.mark.parametrize("kind", [_Block, _Kept, _Residual, _Normed])
def test_converting_apart_changes_no_number(kind: type[nn.Module], monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = kind(), torch.randn(32, 8)

    def gradients() -> list[torch.Tensor]:
        torch._dynamo.reset()
        model.zero_grad(set_to_none=True)
        wrap(model, Backend(read_settings({}), without_code), fullgraph=True)(x).square().sum().backward()
        return [one.grad for one in model.parameters() if one.grad is not None]

    apart = gradients()
    monkeypatch.setattr(passes, "convert_apart", lambda *given: 0)
    together = gradients()
    assert all(torch.equal(*pair) for pair in zip(apart, together, strict=True))


@pytest.mark.parametrize("options", [{}, {"memory": 0.9}], ids=["plain", "memory"])
@pytest.mark.slow
def test_a_step_holds_no_more_at_once_than_under_autocast(options: Mapping[str, object]) -> None:
    """Bytes that PyTorch allocates, which hang on no clock. Gradients of weights weigh as much as what is kept."""
    model, x = nn.Sequential(*(_Block(64, 256) for _ in range(3))), torch.randn(32, 64)
    beside = copy.deepcopy(model)
    by_mezzo, by_autocast = mezzo.torch.compile(model, **options), torch.compile(beside)

    def step() -> None:
        by_mezzo(x).square().sum().backward()
        model.zero_grad(set_to_none=True)

    def step_beside() -> None:
        with torch.autocast("cpu", torch.bfloat16):
            made = by_autocast(x)
        made.float().square().sum().backward()
        beside.zero_grad(set_to_none=True)

    assert 0 < _peak_bytes(step) <= _peak_bytes(step_beside)


def _peak_bytes(step: Callable[[], None]) -> int:
    """The most that live at once of what a step allocates, once it is compiled."""
    step()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    about = profile.profiler.kineto_results.events()  # type: ignore[union-attr]  # it has run
    sizes = [one.nbytes() for one in sorted(about, key=lambda one: one.start_ns()) if one.name() == "[memory]"]
    return max(itertools.accumulate(sizes), default=0)
