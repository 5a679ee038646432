"""Models of the driver's tests, and a way through it that generates no code."""

from collections.abc import Callable
from operator import getitem
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch._inductor.compile_fx import compile_fx

from mezzo.common.machine import find_machine
from mezzo.plugins.discovery import target
from mezzo.torch.compiler.backend import Backend
from mezzo.torch.compiler.compiled import wrap
from mezzo.torch.compiler.settings import read_settings
from mezzo.torch.train.gradient_reduction import reduce_in

BF16_EPS = 2.0**-8
_PAIR_SUM = target("torch-cpu").pair_sum
# Whether oneDNN's INT8 kernels add products in pairs in INT16 on this machine.
IN_PAIRS = _PAIR_SUM is not None and _PAIR_SUM.saturates_on(find_machine())

EMULATES_BF16 = not any(map(find_machine().has, ("amx_bf16", "avx512_bf16")))


def without_code(module: fx.GraphModule, inputs: object, **ignored: object) -> Callable[..., Any]:
    """Runs the graph as it is after the pass, where Inductor would generate code. As there, views become reshapes: its
    own passes drop conversions and copies that change nothing but strides.
    """
    for view in module.graph.find_nodes(op="call_function", target=torch.ops.aten.view.default):
        view.target = torch.ops.aten.reshape.default
    module.recompile()
    forward: Callable[..., Any] = module.forward

    def call(*given: Any) -> Any:
        is_list = len(given) == 1 and isinstance(given[0], list)  # what is frozen is called with one
        return forward(*(given[0] if is_list else given))

    return call


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.down = nn.Linear(32, 64), nn.LayerNorm(64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        down: torch.Tensor = self.down(nn.functional.gelu(self.norm(self.up(x))))
        return down


class Tied(nn.Module):
    """The embedding is the head too, as in T5 and GPT-2; what it is asked is cached in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(50, 32), nn.Linear(32, 50, bias=False)
        self.head.weight = self.table.weight
        self.cache: torch.Tensor
        self.register_buffer("cache", torch.zeros(4, 8, 32))
        self.key = nn.Linear(32, 32)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        held = self.table(ids)
        self.cache.copy_(self.key(held))
        scores = nn.functional.scaled_dot_product_attention(held, self.cache, self.cache)
        answer: torch.Tensor = self.head(scores)
        return answer


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = self.head(torch.relu(self.norm(self.conv(x))).mean((2, 3)))
        return answer


class Gated(nn.Module):
    """RMSNorm and a gate, as in Llama."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(32))
        self.gate, self.up, self.down = (nn.Linear(32, 32, bias=False) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.scale
        answer: torch.Tensor = x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed))
        return answer


class Strides(nn.Module):
    """Convolutions whose results are given back, and read by what depends on their strides."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 8, 3), nn.Conv2d(8, 6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.first(x)
        z = self.second(torch.relu(y))
        corner = y.as_strided((2, 4), (y.stride(0), 1))
        seen = z.view(2, -1) if z.is_contiguous() else z.permute(0, 2, 3, 1).view(2, -1)
        return y, z, corner, seen, torch.relu(z).permute(0, 2, 3, 1)


def compiled(
    model: Callable[..., Any], *, dynamic: bool | None = None, fullgraph: bool = True, **options: object
) -> Any:
    """A model compiled through the whole driver, but for code generation."""
    settings = read_settings(options)
    word = settings.controls.weight_grad_reduce
    backend = Backend(settings, without_code, None if word is None else reduce_in(model, word))
    return wrap(model, backend, dynamic=dynamic, fullgraph=fullgraph)


def generate_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is compiled by mezzo's own functions, or by its name, run as the graphs behind the pass, too."""
    made = Backend.__init__

    def without(self: Backend, settings: Any, inner: Any = without_code, *more: Any, **named: Any) -> None:
        made(self, settings, inner, *more, **named)

    monkeypatch.setattr(Backend, "__init__", without)


def plain(model: Callable[..., Any]) -> Any:
    """A model compiled by PyTorch alone, but for code generation."""
    return torch.compile(model, backend=lambda module, given: compile_fx(module, given, inner_compile=without_code))


def error_of(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error, in units of the largest exact number."""
    return float((found.double() - exact.double()).abs().max() / exact.double().abs().max())


def dump(graph: fx.Graph) -> str:
    """The calls that are no views and pick nothing, with the types of what they read and make."""
    lines = []
    for node in graph.nodes:
        if node.op == "call_function" and node.target is not getitem and not getattr(node.target, "is_view", False):
            read = ", ".join(spell_type(one.meta["val"]) for one in node.all_input_nodes)
            lines.append(f"{spell_type(node.meta['val'])} = {getattr(node.target, '__name__', node.target)}({read})")
    return "\n".join(lines)


def spell_type(held: Any) -> str:
    """A tensor's type; of several each, "-" where there is none."""
    if isinstance(held, tuple | list):
        return ", ".join(map(spell_type, held))
    if held is None:
        return "-"
    word = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.bool: "b8"}[held.dtype]
    return f"{word}[{','.join(map(str, held.shape))}]"
