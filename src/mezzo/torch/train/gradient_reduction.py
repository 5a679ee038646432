"""The precision in which gradients of weights are summed, over workers and over steps of accumulation."""

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
    """Let the gradients of a module's FP32 weights be summed in a format, "fp32", "bf16" or "fp16".

    DistributedDataParallel gets PyTorch's hook, which rounds what is sent and leaves gradients FP32. FSDP2 has it from
    the policy that `fully_shard` was given. Elsewhere `weight.grad` itself has the format, and the module is returned:
    weights that it is given later need it too (`hold_format`).

    Raises InputError: the model is no module; its policy says otherwise, or it has a hook already.
    """
    if not isinstance(model, torch.nn.Module):
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r} for {type(model).__name__}, which has no weights of its own; "
            "compile the module"
        )
    if isinstance(model, DistributedDataParallel):
        _hook(model, word)
        return None
    if sharded := _sharded(model):
        for one in sharded:
            _check_policy(one, word)
        return None
    for weight in model.parameters():
        if weight.requires_grad and weight.dtype is torch.float32:
            give_format(weight, _DTYPES[word])
    return model


def reduce_as_before(compiled: object, model: torch.nn.Module) -> None:
    """Once what was compiled is gone, let the gradients of the module be summed in FP32 again, those that are there
    too. What else is compiled of the module gives them its format at its next call.
    """
    weakref.finalize(compiled, _reduce_as_before, weakref.ref(model)).atexit = False


def _reduce_as_before(held: "weakref.ref[torch.nn.Module]") -> None:
    model = held()
    if isinstance(model, DistributedDataParallel):
        for sent in _sent_by(model):
            sent.word = "fp32"
    elif model is not None:
        for weight in model.parameters():
            take_format_back(weight)


def hold_format(model: torch.nn.Module, word: str) -> None:
    """Give the format to weights of a module that have come since: loaded in place of others (`assign=True`), replaced,
    added, no longer frozen. Stands around every call, and takes a fifth of a microsecond for each weight and module.
    """
    if _has_weights_without(model, _DTYPES[word]):
        reduce_in(model, word)


def _has_weights_without(model: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Whether some gradient would not have the format. Written out: a walk by `parameters()` takes ten times as
    long.
    """
    left, seen = [model], {id(model)}
    while left:
        module = left.pop()
        for weight in module._parameters.values():
            is_other = weight is not None and weight.grad_dtype is not dtype
            if is_other and weight.requires_grad and weight.dtype is torch.float32:
                return True
        for inner in module._modules.values():
            if inner is not None and id(inner) not in seen:
                seen.add(id(inner))
                left.append(inner)
    return False


def check_wrapper(word: str) -> None:
    """Hold a call of a compiled module to where it stands. Its weights' gradients have a format of their own, of which
    a DistributedDataParallel around it knows nothing.

    Raises InputError: one was put around it after it was compiled.
    """
    if word != "fp32" and DistributedDataParallel._active_ddp_module is not None:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and DistributedDataParallel stands around what was compiled; "
            "compile what it gives: mezzo.torch.compile(DistributedDataParallel(model), ...)"
        )


def _sharded(model: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules that `fully_shard` was called on: if it was, its package is loaded."""
    package = sys.modules.get("torch.distributed.fsdp")
    return [] if package is None else [one for one in model.modules() if isinstance(one, package.FSDPModule)]


def _hook(model: DistributedDataParallel, word: str) -> None:
    if word == "fp32":
        return  # the format of the weights
    free = [sent for sent in _sent_by(model) if sent.word == "fp32"]
    if free:  # of what was compiled before: a module takes one hook, and none can be taken off
        free[0].word = word
    elif model._comm_hooks:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and the model has a communication hook; leave one of both out"
        )
    else:
        model.register_comm_hook(state=_Sent(word), hook=_send)


@dataclass
class _Sent:
    """The format in which a hook sends gradients."""

    word: str


def _sent_by(model: DistributedDataParallel) -> list[_Sent]:
    """What hooks of this module send."""
    return [state for _, state in model._comm_hooks if isinstance(state, _Sent)]


def _send(sent: _Sent, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """One of PyTorch's hooks. That for BF16 is refused by its name where NCCL does not send, as with gloo."""
    process_group: Any = None  # that of all workers
    return _HOOKS[sent.word](process_group, bucket)


def _check_policy(module: Any, word: str) -> None:
    policy = getattr(module._get_fsdp_state(), "_mp_policy", None)
    wanted = _DTYPES[word]
    found = None if policy is None else policy.reduce_dtype or policy.param_dtype
    if (found or torch.float32) is not wanted:
        raise InputError(
            f"option 'weight_grad_reduce' is {word!r}, and fully_shard was told {found}; give it "
            f"mp_policy=MixedPrecisionPolicy(reduce_dtype={wanted})"
        )
