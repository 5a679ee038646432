"""Holds the gradients of a compiled model against those of its model in FP32 and in FP64."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.gradient_errors import GradientError, GradientErrors
from mezzo.torch.compiler.arguments import batches_of, check_callable
from mezzo.torch.inspect.comparing import call_with
from mezzo.torch.inspect.gradient_ranges import Loss, RangeWatch, exact_copy, linear

_DROPS = "dropout draws other masks in each of the three; set its p to 0 for this"


def compare_gradients(
    model: torch.nn.Module, compiled: Callable[..., Any], data: Iterable[object], *, loss: Loss | None = None
) -> GradientErrors:
    """Say how far the gradients of a compiled model are from its model's in FP64 and in FP32, weight by weight.

    Each batch is one forward and backward of all three. The model's gradients and buffers stay as they are.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one tensor.
        loss: of what the model gives, a number; without it a fixed linear function of all results of floats.

    Raises InputError: the model is no module, there is no batch, or no weight has a gradient.
    """
    check_callable(compiled, "compiled")
    toward = linear if loss is None else loss
    watch = RangeWatch(exact_copy(model), DType.FLOAT16, 1.0)
    sums: dict[str, _Sums] = {}
    with _as_it_was(model):
        for batch in batches_of(data):
            right = watch.gradients(batch, toward)
            eager = _gradients(model, model, batch, toward)
            got = _gradients(model, compiled, batch, toward)
            for name, one in right.items():
                sums.setdefault(name, _Sums()).add(one, eager.get(name), got.get(name))
    ranges = watch.result()
    size = math.hypot(*(one.size for one in sums.values()))
    return GradientErrors(
        weights=tuple(one.result(name) for name, one in sums.items()),
        error=_relative(math.hypot(*(one.far for one in sums.values())), size),
        eager=_relative(math.hypot(*(one.eager for one in sums.values())), size),
        ranges=ranges,
        notes=(_DROPS,) if _drops(model) else (),
    )


@dataclass(kw_only=True)
class _Sums:
    """Of one weight over batches: distances in FP64."""

    far: float = 0.0
    eager: float = 0.0
    beside: float = 0.0
    size: float = 0.0
    eager_size: float = 0.0

    def add(self, right: torch.Tensor, eager: torch.Tensor | None, got: torch.Tensor | None) -> None:
        nothing = torch.zeros_like(right)
        fp32, found = (nothing if one is None else one.double() for one in (eager, got))
        self.far = math.hypot(self.far, float((found - right).norm()))
        self.eager = math.hypot(self.eager, float((fp32 - right).norm()))
        self.beside = math.hypot(self.beside, float((found - fp32).norm()))
        self.size = math.hypot(self.size, float(right.norm()))
        self.eager_size = math.hypot(self.eager_size, float(fp32.norm()))

    def result(self, name: str) -> GradientError:
        return GradientError(
            name=name,
            error=_relative(self.far, self.size),
            eager=_relative(self.eager, self.size),
            beside_fp32=_relative(self.beside, self.eager_size),
        )


def _relative(far: float, size: float) -> float:
    return far / size if size else far and math.inf


def _gradients(model: torch.nn.Module, run: Callable[..., Any], batch: object, loss: Loss) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    with torch.enable_grad():
        loss(call_with(run, batch)).backward()
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@contextmanager
def _as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Leave a model with the gradients and buffers that it has."""
    gradients = {one: one.grad for one in model.parameters()}
    buffers = {one: one.clone() for one in model.buffers()}
    try:
        yield
    finally:
        for weight, gradient in gradients.items():
            weight.grad = gradient
        with torch.no_grad():
            for buffer, held in buffers.items():
                buffer.copy_(held)


def _drops(model: torch.nn.Module) -> bool:
    """Whether a module of PyTorch's draws masks as the model is."""
    kinds = torch.nn.modules.dropout._DropoutNd
    return any(isinstance(one, kinds) and one.training and one.p > 0 for one in model.modules())
