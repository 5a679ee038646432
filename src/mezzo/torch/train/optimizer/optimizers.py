"""Hooks on optimizer steps: fused optimizers change weights without changing their version."""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from mezzo.torch.train.hidden_gradients import (
    has_format_of_its_own,
    narrow_gradients,
    widen_gradients,
)
from mezzo.torch.train.optimizer.updates import COMPILED
from mezzo.torch.weights.weights import SHADOWS

_NARROWED: "WeakKeyDictionary[Optimizer, Mapping[torch.Tensor, torch.Tensor]]" = WeakKeyDictionary()


def watch_steps() -> None:
    """Hook all optimizer steps: invalidate low-precision copies, convert gradients."""
    register_optimizer_step_pre_hook(_before_step)
    register_optimizer_step_post_hook(_after_step)


def _before_step(
    optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Mapping[str, Any]] | None:
    """Convert gradients to their weight's dtype, and again after each call of a closure.
    Returns new arguments for the step if it has a closure.
    """
    if torch.compiler.is_dynamo_compiling() or optimizer in COMPILED:
        return None
    _NARROWED.pop(optimizer, None)  # left over from a step that raised
    if not _widen(optimizer):
        return None
    closure = args[1] if len(args) > 1 else kwargs.get("closure")
    if not callable(closure):
        return None
    wrapped = _widened_behind(optimizer, closure)
    return (
        ((args[0], wrapped, *args[2:]), kwargs)
        if len(args) > 1
        else (args, {**kwargs, "closure": wrapped})
    )


def _widen(optimizer: Optimizer) -> bool:
    """Convert gradients to the weight's dtype until the step ends; whether any needs that."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    own_dtype = [weight for weight in weights if has_format_of_its_own(weight)]
    originals = widen_gradients(own_dtype)
    if originals:
        _NARROWED[optimizer] = originals
    return bool(own_dtype)


def _widened_behind(optimizer: Optimizer, closure: Callable[[], Any]) -> Callable[[], Any]:
    """A closure that computes gradients in their own dtypes, then converts them for the step."""

    def call() -> Any:
        narrow_gradients(_NARROWED.pop(optimizer, {}))
        loss = closure()
        _widen(optimizer)
        return loss

    return call


def _after_step(optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Invalidate copies of the stepped weights. A compiled step changes versions by itself, except
    in fused kernels, which are not traced.
    """
    is_traced = torch.compiler.is_dynamo_compiling()
    if is_traced and not any(group.get("fused") for group in optimizer.param_groups):
        return
    if not is_traced and optimizer in COMPILED:  # it updates the copies itself
        return
    if not is_traced:
        narrow_gradients(_NARROWED.pop(optimizer, {}))
    _forget(optimizer)


@torch.compiler.disable
def _forget(optimizer: Optimizer) -> None:
    if len(SHADOWS):
        SHADOWS.refresh(weight for group in optimizer.param_groups for weight in group["params"])
