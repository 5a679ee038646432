"""Optimizers and weights that compiled updates are held to PyTorch's own steps on."""

from typing import Any

import torch
from torch import nn

_EPS = torch.finfo(torch.float32).eps
# Of ten steps, each of a dozen roundings of numbers that are at most some times as large as the step.
TOLERANCE = 200 * _EPS
MAKERS: dict[str, Any] = {
    "SGD": lambda of: torch.optim.SGD(of, lr=0.01),
    "momentum": lambda of: torch.optim.SGD(of, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda of: torch.optim.Adam(of, lr=0.01, amsgrad=True),
    "AdamW": lambda of: torch.optim.AdamW(of, lr=0.01, weight_decay=0.1),
    "fused": lambda of: torch.optim.AdamW(of, lr=0.01, fused=True),
    "foreach": lambda of: torch.optim.AdamW(of, lr=0.01, foreach=True, maximize=True),
    "NAdam": lambda of: torch.optim.NAdam(of, lr=0.01),
    "RAdam": lambda of: torch.optim.RAdam(of, lr=0.01),
    "RMSprop": lambda of: torch.optim.RMSprop(of, lr=0.01, momentum=0.5, centered=True),
    "Adagrad": lambda of: torch.optim.Adagrad(of, lr=0.01, lr_decay=0.1),
    "Adadelta": lambda of: torch.optim.Adadelta(of, lr=0.1),
    "Adamax": lambda of: torch.optim.Adamax(of, lr=0.01),
    "ASGD": lambda of: torch.optim.ASGD(of, lr=0.01),
    "Rprop": lambda of: torch.optim.Rprop(of, lr=0.01),
}


def make_weights() -> list[nn.Parameter]:
    return [
        nn.Parameter(torch.randn(shape, generator=torch.Generator().manual_seed(n))) for n, shape in enumerate(SHAPES)
    ]


SHAPES = ((17, 5), (33,), (2, 3, 3, 3), ())


def give_gradients(weights: list[nn.Parameter], number: int, dtype: torch.dtype = torch.float32) -> None:
    made = torch.Generator().manual_seed(number)
    for weight in weights:
        weight.grad_dtype = dtype
        weight.grad = torch.randn(weight.shape, generator=made).to(dtype)


def far(found: Any, wanted: Any) -> float:
    pairs = zip(found, wanted, strict=True)
    return max(float((one - other).abs().max()) / max(1.0, float(other.abs().max())) for one, other in pairs)


def make_steps(weights: list[nn.Parameter], optimizer: Any, schedule: Any = None, count: int = 10) -> None:
    for number in range(count):
        give_gradients(weights, number)
        optimizer.step()
        if schedule is not None:
            schedule.step()
