"""Steps of optimizers: fused ones change weights without a sign that anybody could see."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from mezzo.torch.hidden_gradients import has_format_of_its_own, narrow_gradients, widen_gradients
from mezzo.torch.updating import COMPILED
from mezzo.torch.weights import SHADOWS

_NARROWED: "WeakKeyDictionary[Optimizer, Mapping[torch.Tensor, torch.Tensor]]" = WeakKeyDictionary()


def watch_steps() -> None:
    """Let low copies be made again of what any optimizer has stepped, from now on; and let optimizers that are not
    compiled read gradients that have another format than their weights.
    """
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _before_step(optimizer: Optimizer, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    if torch.compiler.is_dynamo_compiling() or optimizer in COMPILED:
        return
    weights = (weight for group in optimizer.param_groups for weight in group["params"])
    low = widen_gradients([weight for weight in weights if has_format_of_its_own(weight)])
    if low:
        _NARROWED[optimizer] = low


def _after_step(optimizer: Optimizer, given: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Where the step itself is compiled its writes are seen, but for those of fused kernels, which nobody traces."""
    is_traced = torch.compiler.is_dynamo_compiling()
    if is_traced and not any(group.get("fused") for group in optimizer.param_groups):
        return
    if not is_traced and optimizer in COMPILED:  # it writes them itself
        return
    if not is_traced:
        narrow_gradients(_NARROWED.pop(optimizer, {}))
    _forget(optimizer)


@torch.compiler.disable
def _forget(optimizer: Optimizer) -> None:
    if len(SHADOWS):
        SHADOWS.refresh(weight for group in optimizer.param_groups for weight in group["params"])
