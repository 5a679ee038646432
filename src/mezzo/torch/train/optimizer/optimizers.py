"""Steps of optimizers: fused ones change weights without a sign that anybody could see."""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from mezzo.torch.train.hidden_gradients import has_format_of_its_own, narrow_gradients, widen_gradients
from mezzo.torch.train.optimizer.updates import COMPILED
from mezzo.torch.weights.weights import SHADOWS

_NARROWED: "WeakKeyDictionary[Optimizer, Mapping[torch.Tensor, torch.Tensor]]" = WeakKeyDictionary()


def watch_steps() -> None:
    """Let low copies be made again of what any optimizer has stepped, from now on; and let optimizers that are not
    compiled read gradients that have another format than their weights.
    """
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _before_step(
    optimizer: Optimizer, given: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
    """Widen gradients, and again behind each call of a closure: what the step is called with, if it has one."""
    if torch.compiler.is_dynamo_compiling() or optimizer in COMPILED:
        return None
    _NARROWED.pop(optimizer, None)  # of a step that raised
    if not _widen(optimizer):
        return None
    closure = given[1] if len(given) > 1 else named.get("closure")
    if not callable(closure):
        return None
    seeing = _widened_behind(optimizer, closure)
    return ((given[0], seeing, *given[2:]), named) if len(given) > 1 else (given, {**named, "closure": seeing})


def _widen(optimizer: Optimizer) -> bool:
    """Give weights their gradients in their own format, until `_narrow`. Whether there are some with another."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    others = [weight for weight in weights if has_format_of_its_own(weight)]
    low = widen_gradients(others)
    if low:
        _NARROWED[optimizer] = low
    return bool(others)


def _widened_behind(optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
    """A closure that computes gradients in the formats that they have, and leaves them as a step reads them."""

    def call() -> Any:
        narrow_gradients(_NARROWED.pop(optimizer, {}))
        loss = closure()
        _widen(optimizer)
        return loss

    return call


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
