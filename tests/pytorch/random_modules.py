"""Random PyTorch modules of core operators, for laws: products, norms, attention, moves, reductions, branches."""

import random
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional

WIDTH = 16
Step = Callable[[nn.Module, Sequence[torch.Tensor]], torch.Tensor]


class RandomModule(nn.Module):
    """Steps over a growing pool of tensors of [2, 8, 16]; the same seed gives the same module."""

    def __init__(self, seed: int, length: int = 12) -> None:
        super().__init__()
        draw = random.Random(seed)
        torch.manual_seed(seed)
        self.linears = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=draw.random() < 0.7) for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.group = nn.GroupNorm(4, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.register_buffer("shift", torch.randn(8, 1))
        if draw.random() < 0.3:
            self.linears[1].weight = self.linears[0].weight
        self.plan = [(draw.choice(STEPS), draw.randrange(1 << 30), draw.randrange(1 << 30)) for _ in range(length)]

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        pool = [x]
        for step, first, second in self.plan:
            pool.append(step(self, (pool[first % len(pool)], pool[second % len(pool)])))
        return pool[-1], pool[-2].mean()


def _attend(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    heads = [one.reshape(2, 8, 4, 4).transpose(1, 2) for one in (a, b)]
    mask = torch.ones(8, 8, dtype=torch.bool).tril()
    bias = torch.where(mask, 0.0, torch.finfo(torch.float32).min)
    answer = functional.scaled_dot_product_attention(heads[0], heads[1], heads[1], attn_mask=bias)
    return answer.transpose(1, 2).reshape(2, 8, WIDTH)


STEPS: tuple[Step, ...] = (
    lambda own, t: own.linears[0](t[0]),
    lambda own, t: own.linears[1](t[0]) + t[1],
    lambda own, t: functional.gelu(own.linears[2](t[0])),
    lambda own, t: own.norm(t[0]),
    lambda own, t: own.group(t[0]),
    lambda own, t: own.conv(t[0]),
    lambda own, t: t[0] + t[1],
    lambda own, t: t[0] * own.scale + own.shift,
    lambda own, t: torch.softmax(t[0] @ t[1].transpose(1, 2) * 0.25, -1) @ t[1],
    lambda own, t: _attend(t[0], t[1]),
    lambda own, t: torch.cat([t[0][:, :4], t[1][:, 4:]], 1),
    lambda own, t: t[0].permute(0, 2, 1).contiguous().view(2, 8, WIDTH),
    lambda own, t: torch.stack(t[0].chunk(2, dim=2)[::-1], 2).flatten(2),
    lambda own, t: t[0] * torch.rsqrt(t[0].pow(2).mean(-1, keepdim=True) + 1e-6),
    lambda own, t: t[0].clamp(-2.0, 2.0).tanh(),
    lambda own, t: torch.where(t[0] > t[1], t[0], t[1] * 0.5),
    lambda own, t: t[0] - t[0].amax(-1, keepdim=True),
    lambda own, t: torch.einsum("btd,bsd->bts", t[0], t[1]) @ t[0] * 0.05,
    lambda own, t: t[0].cumsum(1) * 0.2,
    lambda own, t: functional.silu(t[0]).sigmoid(),
    lambda own, t: t[0][:, torch.arange(7, -1, -1)],
)
