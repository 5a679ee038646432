"""`mezzo.torch.compare_gradients`: weight gradients of a compiled model against FP32 and FP64."""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from mezzo.formats.dtypes import DType
from mezzo.numerics.metrics.gradient_errors import GradientError, GradientErrors
from mezzo.torch.compiler.arguments import batches_of, call_with, check_callable
from mezzo.torch.inspect.gradient_ranges import Loss, RangeWatch, exact_copy, linear

_DROPOUTS = (
    torch.nn.Dropout,
    torch.nn.Dropout1d,
    torch.nn.Dropout2d,
    torch.nn.Dropout3d,
    torch.nn.AlphaDropout,
    torch.nn.FeatureAlphaDropout,
)
_DROPS = "dropout draws other masks in each of the three; set its p to 0 for this"


def compare_gradients(
    model: torch.nn.Module,
    compiled: Callable[..., Any],
    data: Iterable[object],
    *,
    loss: Loss | None = None,
) -> GradientErrors:
    """Measure the error of a compiled model's weight gradients against its model in FP64 and FP32.

    Each batch is one forward and backward of all three. The model's gradients and buffers are
    restored.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one
            tensor.
        loss: a function of the model's output that returns a scalar; default a fixed linear
            function of all float outputs.

    Raises InputError: the model is not a module, there is no batch, or no weight has a gradient.
    """
    check_callable(compiled, "compiled")
    loss_function = linear if loss is None else loss
    watch = RangeWatch(exact_copy(model), DType.FLOAT16, 1.0)
    sums: dict[str, _Sums] = {}
    with _as_it_was(model):
        for batch in batches_of(data):
            exact = watch.gradients(batch, loss_function)
            eager = _gradients(model, model, batch, loss_function)
            compiled_gradients = _gradients(model, compiled, batch, loss_function)
            for name, gradient in exact.items():
                sums.setdefault(name, _Sums()).add(
                    gradient, eager.get(name), compiled_gradients.get(name)
                )
    ranges = watch.result()
    size = math.hypot(*(total.size for total in sums.values()))
    return GradientErrors(
        weights=tuple(total.result(name) for name, total in sums.items()),
        error=_relative(math.hypot(*(total.far for total in sums.values())), size),
        eager=_relative(math.hypot(*(total.eager for total in sums.values())), size),
        ranges=ranges,
        notes=(_DROPS,) if _drops(model) else (),
    )


@dataclass(kw_only=True)
class _Sums:
    """Norms of a weight's gradient and its errors over batches, in FP64."""

    far: float = 0.0
    eager: float = 0.0
    beside: float = 0.0
    size: float = 0.0
    eager_size: float = 0.0

    def add(
        self, exact: torch.Tensor, eager: torch.Tensor | None, compiled: torch.Tensor | None
    ) -> None:
        zeros = torch.zeros_like(exact)
        fp32, result = (
            zeros if gradient is None else gradient.double() for gradient in (eager, compiled)
        )
        self.far = math.hypot(self.far, float((result - exact).norm()))
        self.eager = math.hypot(self.eager, float((fp32 - exact).norm()))
        self.beside = math.hypot(self.beside, float((result - fp32).norm()))
        self.size = math.hypot(self.size, float(exact.norm()))
        self.eager_size = math.hypot(self.eager_size, float(fp32.norm()))

    def result(self, name: str) -> GradientError:
        return GradientError(
            name=name,
            error=_relative(self.far, self.size),
            eager=_relative(self.eager, self.size),
            beside_fp32=_relative(self.beside, self.eager_size),
        )


def _relative(distance: float, size: float) -> float:
    return distance / size if size else distance and math.inf


def _gradients(
    model: torch.nn.Module, run: Callable[..., Any], batch: object, loss: Loss
) -> dict[str, torch.Tensor]:
    model.zero_grad(set_to_none=True)
    with torch.enable_grad():
        loss(call_with(run, batch)).backward()
    return {
        name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }


@contextmanager
def _as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Restore a model's gradients and buffers afterwards."""
    gradients = {weight: weight.grad for weight in model.parameters()}
    buffers = {buffer: buffer.clone() for buffer in model.buffers()}
    try:
        yield
    finally:
        for weight, gradient in gradients.items():
            weight.grad = gradient
        with torch.no_grad():
            for buffer, saved in buffers.items():
                buffer.copy_(saved)


def _drops(model: torch.nn.Module) -> bool:
    """Whether a dropout module is active."""
    return any(
        isinstance(module, _DROPOUTS) and module.training and module.p > 0
        for module in model.modules()
    )
