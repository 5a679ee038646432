"""Weights whose gradients have another dtype than the weight, which Dynamo does not trace.

These gradients are removed while Dynamo traces a compiled call, and restored afterwards.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from mezzo.torch.torch_internals import CallbackArgs, CallbackTrigger, callback_handler

_WEIGHTS = WeakTensorKeyDictionary()
_HELD = threading.local()


def give_format(weight: torch.Tensor, dtype: torch.dtype) -> None:
    """Set the dtype of a weight's gradient, and convert an existing gradient."""
    gradient, weight.grad = weight.grad, None
    weight.grad_dtype = dtype
    weight.grad = None if gradient is None else gradient.to(dtype)
    _WEIGHTS[weight] = None


def take_format_back(weight: torch.Tensor) -> None:
    """Reset a weight's gradient to the weight's dtype."""
    if weight in _WEIGHTS:
        give_format(weight, weight.dtype)
        del _WEIGHTS[weight]


def gradient_format(weight: object) -> torch.dtype | None:
    """The dtype of a weight's gradient; None if it is the weight's own."""
    if not isinstance(weight, torch.nn.Parameter) or not weight.is_leaf:
        return None
    dtype: torch.dtype | None = getattr(weight, "grad_dtype", None)
    return None if dtype is weight.dtype else dtype


@contextmanager
def in_weights_format(weights: Iterable[torch.Tensor]) -> Iterator[None]:
    """Temporarily give gradients the weight's dtype, which PyTorch's optimizers require."""
    low = widen_gradients(weights)
    try:
        yield
    finally:
        narrow_gradients(low)


def widen_gradients(weights: Iterable[torch.Tensor]) -> Mapping[torch.Tensor, torch.Tensor]:
    """Convert gradients to the weight's dtype; returns the originals that differed."""
    low = {
        weight: weight.grad
        for weight in weights
        if weight.grad is not None and weight.grad.dtype is not weight.dtype
    }
    for weight, gradient in low.items():
        _set_gradient(weight, gradient.to(weight.dtype))
    return low


def narrow_gradients(low: Mapping[torch.Tensor, torch.Tensor]) -> None:
    """Restore the gradients that `widen_gradients` returned, unless cleared since."""
    for weight, gradient in low.items():
        if weight.grad is None:
            weight.grad_dtype = gradient.dtype
        else:
            _set_gradient(weight, gradient)


def has_format_of_its_own(weight: torch.Tensor) -> bool:
    """Whether `give_format` was called for a weight."""
    return weight in _WEIGHTS


def _set_gradient(weight: torch.Tensor, gradient: torch.Tensor) -> None:
    weight.grad = None
    weight.grad_dtype = gradient.dtype
    weight.grad = gradient


class HidingGradients(AbstractContextManager[None]):
    """Context for a call that Dynamo may trace."""

    def __enter__(self) -> None:
        self._before = getattr(_HELD, "is_inside", False)
        _HELD.is_inside = True
        # Torch._dynamo.reset() clears callbacks.
        if _take_off not in callback_handler.start_callbacks:
            callback_handler.register_start_callback(_take_off)
            callback_handler.register_end_callback(_give_back)

    def __exit__(self, *raised: object) -> None:
        _HELD.is_inside = self._before


def _take_off(args: CallbackArgs) -> None:
    if args.callback_trigger is not CallbackTrigger.DYNAMO or not getattr(
        _HELD, "is_inside", False
    ):
        return
    _HELD.gradients = [
        (weight, weight.grad)
        for weight in list(_WEIGHTS)
        if weight.grad is not None and weight.grad.dtype is not weight.dtype
    ]
    for weight, _ in _HELD.gradients:
        weight.grad = None


def _give_back(about: CallbackArgs) -> None:
    for weight, gradient in _HELD.__dict__.pop("gradients", ()):
        weight.grad = gradient
