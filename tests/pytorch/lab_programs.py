"""Programs that tests of the lab run: random ones of core ATen operators, and small networks."""

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f

from mezzo.aten.model import TorchModel
from mezzo.aten.opening import open_model

WIDTH, LENGTH, HEADS = 16, 6, 2


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.inner(x)


class Attention(nn.Module):
    """With a softmax of its own, or as one operator; with a mask or without."""

    def __init__(self, *, is_fused: bool, has_mask: bool) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.is_fused = is_fused
        hidden = torch.full((LENGTH, LENGTH), torch.finfo(torch.float32).min).triu(1)
        self.register_buffer("mask", hidden if has_mask else torch.zeros(LENGTH, LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (HEADS, -1)).transpose(1, 2) for one in self.qkv(x).chunk(3, dim=-1))
        if self.is_fused:
            made = f.scaled_dot_product_attention(q, k, v, attn_mask=self.mask)
        else:
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5 + self.mask
            made = torch.softmax(scores, -1) @ v
        return self.out(made.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    """A squared norm, a gate, a comparison and a choice."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.gate = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH, bias=False)
        self.scale = nn.Parameter(torch.rand(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
        made = self.up(normed) * f.silu(self.gate(normed))
        return torch.where(made > 0, made, made * 0.5).clamp(-4, 4)


class Convolved(nn.Module):
    """A convolution, grouped or not, with a batch norm."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=groups, bias=groups == 1)
        self.norm = nn.BatchNorm1d(WIDTH)
        with torch.no_grad():
            self.norm.running_mean.uniform_(-1, 1)
            self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return f.relu(self.norm(self.conv(x.transpose(1, 2)))).transpose(1, 2)


class Pooled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mean(1, keepdim=True), x.amax(1, keepdim=True), x[:, 2:]], 1)


class Returning(nn.Module):
    """Several outputs: the result, its sum, and where it is largest."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        made = self.inner(x)
        return made, torch.softmax(made.sum(1), -1), made.argmax(-1)


def random_network(seed: int) -> nn.Module:
    """A network of a few blocks, for [2, LENGTH, WIDTH]."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    makers = [
        lambda: nn.Linear(WIDTH, WIDTH),
        lambda: nn.LayerNorm(WIDTH),
        lambda: nn.GELU(),
        lambda: nn.Softmax(-1),
        lambda: Attention(is_fused=True, has_mask=rng.random() < 0.5),
        lambda: Attention(is_fused=False, has_mask=rng.random() < 0.5),
        lambda: Gated(),
        lambda: Convolved(rng.choice([1, 4])),
        lambda: Pooled(),
    ]
    blocks = [rng.choice(makers)() for _ in range(rng.randint(2, 5))]
    whole = [Residual(one) if rng.random() < 0.4 else one for one in blocks]
    return Returning(nn.Sequential(*whole)).eval()


def random_feeds(seed: int, length: int = 2) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    return {"x": torch.randn(length, LENGTH, WIDTH, generator=generator).numpy()}


def exported(network: nn.Module, *args: torch.Tensor, **options: Any) -> torch.export.ExportedProgram:
    return torch.export.export(network, args or (torch.zeros(2, LENGTH, WIDTH),), **options)


def opened(network: nn.Module, *args: torch.Tensor, **options: Any) -> TorchModel:
    return open_model(exported(network, *args, **options), progress=None)


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.first, self.second, self.third = nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))


def perceptron_data(count: int = 3) -> list[Mapping[str, Any]]:
    generator = torch.Generator().manual_seed(3)
    return [{"x": torch.randn(16, 32, generator=generator).numpy()} for _ in range(count)]
