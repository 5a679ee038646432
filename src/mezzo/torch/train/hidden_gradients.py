"""Weights whose gradients have another format than they: Dynamo compiles no call that reads one, and runs it as it is.

So their gradients are taken off while Dynamo traces a call of what mezzo compiles, and given back behind it.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch._dynamo.callback import CallbackArgs, CallbackTrigger, callback_handler
from torch.utils.weak import WeakTensorKeyDictionary

_WEIGHTS = WeakTensorKeyDictionary()
_HELD = threading.local()


def give_format(weight: torch.Tensor, dtype: torch.dtype) -> None:
    """Let the gradient of a weight have a format, the one that it has already too."""
    gradient, weight.grad = weight.grad, None
    weight.grad_dtype = dtype
    weight.grad = None if gradient is None else gradient.to(dtype)
    _WEIGHTS[weight] = None


def take_format_back(weight: torch.Tensor) -> None:
    """Let the gradient of a weight have the weight's own format again, the one that is there too."""
    if weight in _WEIGHTS:
        give_format(weight, weight.dtype)
        del _WEIGHTS[weight]


def gradient_format(weight: object) -> torch.dtype | None:
    """The format of a weight's gradient; None where it is the weight's own."""
    if not isinstance(weight, torch.nn.Parameter) or not weight.is_leaf:
        return None
    found: torch.dtype | None = getattr(weight, "grad_dtype", None)
    return None if found is weight.dtype else found


@contextmanager
def in_weights_format(weights: Iterable[torch.Tensor]) -> Iterator[None]:
    """Give weights their gradients in their own format, which is all that PyTorch's optimizers take."""
    low = widen_gradients(weights)
    try:
        yield
    finally:
        narrow_gradients(low)


def widen_gradients(weights: Iterable[torch.Tensor]) -> Mapping[torch.Tensor, torch.Tensor]:
    """Give weights their gradients in their own format; returned are those that they had, where that was another."""
    low = {one: one.grad for one in weights if one.grad is not None and one.grad.dtype is not one.dtype}
    for weight, gradient in low.items():
        _set_gradient(weight, gradient.to(weight.dtype))
    return low


def narrow_gradients(low: Mapping[torch.Tensor, torch.Tensor]) -> None:
    """Give back what `widen_gradients` returned, but where there is no gradient any more."""
    for weight, gradient in low.items():
        if weight.grad is None:
            weight.grad_dtype = gradient.dtype
        else:
            _set_gradient(weight, gradient)


def has_format_of_its_own(weight: torch.Tensor) -> bool:
    """Whether `give_format` was called for a weight's gradient."""
    return weight in _WEIGHTS


def _set_gradient(weight: torch.Tensor, gradient: torch.Tensor) -> None:
    weight.grad = None
    weight.grad_dtype = gradient.dtype
    weight.grad = gradient


class HidingGradients(AbstractContextManager[None]):
    """Around a call that Dynamo may trace."""

    def __enter__(self) -> None:
        self._before = getattr(_HELD, "is_inside", False)
        _HELD.is_inside = True
        if _take_off not in callback_handler.start_callbacks:  # a reset of Dynamo's forgets them
            callback_handler.register_start_callback(_take_off)
            callback_handler.register_end_callback(_give_back)

    def __exit__(self, *raised: object) -> None:
        _HELD.is_inside = self._before


def _take_off(about: CallbackArgs) -> None:
    if about.callback_trigger is not CallbackTrigger.DYNAMO or not getattr(_HELD, "is_inside", False):
        return
    _HELD.gradients = [
        (one, one.grad) for one in list(_WEIGHTS) if one.grad is not None and one.grad.dtype is not one.dtype
    ]
    for weight, _ in _HELD.gradients:
        weight.grad = None


def _give_back(about: CallbackArgs) -> None:
    for weight, gradient in _HELD.__dict__.pop("gradients", ()):
        weight.grad = gradient
