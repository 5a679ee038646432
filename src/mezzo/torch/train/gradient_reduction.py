"""Precision of gradient reduction: over data-parallel workers and over accumulation steps."""

import sys
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from mezzo.common.errors import InputError
from mezzo.torch.train.hidden_gradients import give_format, take_format_back

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_HOOKS = {
    "fp32": default_hooks.allreduce_hook,
    "bf16": default_hooks.bf16_compress_hook,
    "fp16": default_hooks.fp16_compress_hook,
}


def reduce_in(model: object, word: str) -> torch.nn.Module | None:
    """Reduce the gradients of a module's FP32 weights in "fp32", "bf16" or "fp16".

    DistributedDataParallel gets PyTorch's communication hook, which rounds what is sent; gradients
    stay FP32. FSDP2 takes the precision from the policy passed to `fully_shard`. Otherwise
    `weight.grad` gets the dtype, and the module is returned, as weights added later need it too
    (`hold_format`).

    Raises InputError: the model is not a module, its FSDP policy differs, or it already has a hook.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r} for {type(model).__name__}, which has no"
            " weights of its own; compile the module"
        )
    if isinstance(model, DistributedDataParallel):
        _hook(model, word)
        return None
    if sharded := _sharded(model):
        for shard in sharded:
            _check_policy(shard, word)
        return None
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype is torch.float32:
            give_format(weight, _DTYPES[word])
    return model


def reduce_as_before(compiled: object, model: torch.nn.Module) -> None:
    """Reset gradients of the module to FP32 once `compiled` is garbage collected. Another compiled
    version of the module sets its own dtype at its next call.
    """
    weakref.finalize(compiled, _reduce_as_before, weakref.ref(model)).atexit = False


def _reduce_as_before(model_ref: "weakref.ref[torch.nn.Module]") -> None:
    model = model_ref()
    if isinstance(model, DistributedDataParallel):
        for hook_state in _sent_by(model):
            hook_state.word = "fp32"
    elif model is not None:
        for weight in model.parameters():
            take_format_back(weight)


def hold_format(model: torch.nn.Module, word: str) -> None:
    """Set the gradient dtype of weights that were loaded, replaced or unfrozen after compilation.
    Runs at every call; costs a fifth of a microsecond per weight and module.
    """
    if _has_weights_without(model, _DTYPES[word]):
        reduce_in(model, word)


def _has_weights_without(model: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Whether a weight lacks the gradient dtype. A loop, as `parameters()` is ten times slower."""
    pending, visited = [model], {id(model)}
    while pending:
        module = pending.pop()
        for weight in module._parameters.values():
            differs = weight is not None and weight.grad_dtype is not dtype
            if differs and weight.requires_grad and weight.dtype is torch.float32:
                return True
        for inner in module._modules.values():
            if inner is not None and id(inner) not in visited:
                visited.add(id(inner))
                pending.append(inner)
    return False


def check_wrapper(word: str) -> None:
    """Check the context of a call of a compiled module.

    Raises InputError: DistributedDataParallel was put around the module after compilation; it
    ignores gradient dtypes.
    """
    if word != "fp32" and DistributedDataParallel._active_ddp_module is not None:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and DistributedDataParallel stands around"
            " what was compiled; compile what it gives:"
            " mezzo.torch.compile(DistributedDataParallel(model), ...)"
        )


def _sharded(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules under `fully_shard`; none unless its package is loaded."""
    package = sys.modules.get("torch.distributed.fsdp")
    return (
        []
        if package is None
        else [module for module in model.modules() if isinstance(module, package.FSDPModule)]
    )


def _hook(model: DistributedDataParallel, word: str) -> None:
    if word == "fp32":
        return  # the default
    unused = [state for state in _sent_by(model) if state.word == "fp32"]
    if unused:  # reuse an earlier hook: a module takes one, which cannot be removed
        unused[0].word = word
    elif model._comm_hooks:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and the model has a communication hook;"
            " leave one of both out"
        )
    else:
        model.register_comm_hook(state=_Sent(word), hook=_send)


@dataclass
class _Sent:
    """State of a hook: the format in which it sends gradients."""

    word: str


def _sent_by(model: DistributedDataParallel) -> list[_Sent]:
    """The states of this module's hooks."""
    return [state for _, state in model._comm_hooks if isinstance(state, _Sent)]


def _send(state: _Sent, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Run PyTorch's hook. Wrapped because DDP rejects the BF16 hook by name without NCCL."""
    process_group: Any = None  # the default group of all workers
    return _HOOKS[state.word](process_group, bucket)


def _check_policy(module: Any, word: str) -> None:
    policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
    expected = _DTYPES[word]
    actual = None if policy is None else policy.reduce_dtype or policy.param_dtype
    if (actual or torch.float32) is not expected:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and fully_shard was told {actual}; give it "
            f"mp_policy=MixedPrecisionPolicy(reduce_dtype={expected})"
        )
