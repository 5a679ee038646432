"""Steps of optimizers: fused ones change weights without a sign that anybody could see."""

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from mezzo.torch.weights import SHADOWS


def watch_steps() -> None:
    """Let low copies be made again of what any optimizer has stepped, from now on."""
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Optimizer, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Where the step itself is compiled its writes are seen, but for those of fused kernels, which nobody traces."""
    if torch.compiler.is_dynamo_compiling() and not any(group.get("fused") for group in optimizer.param_groups):
        return
    _forget(optimizer)


@torch.compiler.disable
def _forget(optimizer: Optimizer) -> None:
    if len(SHADOWS):
        SHADOWS.refresh(weight for group in optimizer.param_groups for weight in group["params"])
