"""`mezzo.torch.gradient_ranges`: magnitudes of activation and weight gradients, in FP64."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.formats.rounding import beyond_from, limits_of
from mezzo.numerics.ranges.gradient_ranges import GradientRange, GradientRanges
from mezzo.torch.compiler.arguments import batches_of, call_with, check_module
from mezzo.torch.inspect.comparing import tensors_of, widened
from mezzo.torch.inspect.gradient_hooks import ValueOrigin, looking_at_gradients
from mezzo.torch.torch_internals import pytree

Loss = Callable[[Any], torch.Tensor]
_NO_BATCH = "data holds no batch; give one at least"
_NO_GRADIENT = "no weight of the model has a gradient; there is nothing to compare"


def gradient_ranges(
    model: torch.nn.Module,
    data: Iterable[object],
    *,
    loss: Loss | None = None,
    scale: float = 1.0,
    to: object = "fp16",
) -> GradientRanges:
    """Find the gradients of a model that a low-precision format would lose to underflow or
    overflow.

    Covers gradients of module outputs, of PyTorch functions called in modules (one entry per
    function and module), and of weights. Each batch is one forward and backward of an FP64 copy;
    the model is not modified. Operations inside functions, such as the softmax of attention, are
    not included.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one
            tensor.
        loss: a function of the model's output that returns a scalar; default a fixed linear
            function of all float outputs.
        scale: the loss scale, such as `GradScaler.get_scale()`.
        to: the format, "fp16" or "bf16".

    Raises InputError: the model is not a module, there is no batch, no weight has a gradient, or
    scale or format is invalid.
    """
    dtype = LOW_DTYPES[read_format(to, "to")]
    watch = RangeWatch(exact_copy(model), dtype, _read_scale(scale))
    for batch in batches_of(data):
        watch.gradients(batch, linear if loss is None else loss)
    return watch.result()


def exact_copy(model: torch.nn.Module) -> torch.nn.Module:
    """An FP64 copy of a module or of a compiled module's original. Raises InputError: neither."""
    exact: torch.nn.Module = copy.deepcopy(
        getattr(check_module(model), "_orig_mod", model)
    ).double()
    return exact


def _read_scale(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise InputError(
            f"scale is {value!r}; give a number above 0, such as GradScaler.get_scale() or 65536"
        )
    return float(value)


def linear(answer: object) -> torch.Tensor:
    """A fixed linear function of all float outputs: the mean of each, weighted by seeded noise."""
    total = torch.zeros((), dtype=torch.float64)
    for index, tensor in tensors_of(answer):
        if tensor.requires_grad:
            noise = torch.randn(tensor.shape, generator=torch.Generator().manual_seed(index))
            total = total + (tensor * noise.to(tensor)).mean().to(total)
    return total


class RangeWatch:
    """Runs a model in FP64 batch by batch and accumulates statistics of its gradients."""

    def __init__(self, exact: torch.nn.Module, dtype: DType, scale: float) -> None:
        self._exact, self._dtype, self._scale = exact, dtype, scale
        self._activations: dict[ValueOrigin, _Tally] = {}
        self._weights: dict[ValueOrigin, _Tally] = {}
        self._batches = 0

    def gradients(self, batch: object, loss: Loss) -> Mapping[str, torch.Tensor]:
        """The weight gradients of a batch, by name. All gradients are added to the statistics.

        Raises InputError: no weight has a gradient, or the loss is not a scalar.
        """
        self._exact.zero_grad(set_to_none=True)
        with torch.enable_grad(), looking_at_gradients(self._exact, self._look):
            loss_value = loss(call_with(self._exact, pytree.tree_map(widened, batch)))
            if loss_value.numel() != 1:
                shape = list(loss_value.shape)
                raise InputError(
                    f"loss gives a tensor of shape {shape}; give a function whose result is one"
                    " number"
                )
            if not loss_value.requires_grad:
                raise InputError(_NO_GRADIENT)
            torch.autograd.backward(loss_value)
        self._batches += 1
        gradients = {
            name: weight.grad
            for name, weight in self._exact.named_parameters()
            if weight.grad is not None
        }
        for name, gradient in gradients.items():
            self._add(self._weights, ValueOrigin(name), gradient)
        return gradients

    def result(self, notes: Iterable[str] = ()) -> GradientRanges:
        """The statistics. Raises InputError: there was no batch, or no weight had a gradient."""
        if not self._batches:
            raise InputError(_NO_BATCH)
        if not self._weights:
            raise InputError(_NO_GRADIENT)
        return GradientRanges(
            activations=tuple(
                tally.result(place, is_weight=False) for place, tally in self._activations.items()
            ),
            weights=tuple(
                tally.result(place, is_weight=True) for place, tally in self._weights.items()
            ),
            dtype=self._dtype,
            scale=self._scale,
            batches=self._batches,
            notes=tuple(notes),
        )

    def _look(self, place: ValueOrigin, gradient: torch.Tensor) -> None:
        self._add(self._activations, place, gradient)

    def _add(
        self, tallies: "dict[ValueOrigin, _Tally]", place: ValueOrigin, gradient: torch.Tensor
    ) -> None:
        tallies.setdefault(place, _Tally()).add(gradient.detach(), self._dtype, self._scale)


@dataclass(kw_only=True)
class _Tally:
    """Statistics of a gradient so far; counts are of the scaled loss, octaves of the unscaled."""

    count: int = 0
    below_normal: int = 0
    below_smallest: int = 0
    beyond: int = 0
    largest: float = 0.0
    is_finite: bool = True
    octaves: Counter[int] = field(default_factory=Counter)

    def add(self, gradient: torch.Tensor, dtype: DType, scale: float) -> None:
        numbers = gradient.coalesce().values() if gradient.is_sparse else gradient
        sizes = numbers.double().abs().flatten()
        is_number = sizes.isfinite()
        self.is_finite &= bool(is_number.all())
        sizes = sizes[is_number & (sizes > 0)]
        if not len(sizes):
            return
        exponents, counts = torch.frexp(sizes).exponent.unique(return_counts=True)
        # frexp returns mantissas in [0.5, 1).
        self.octaves.update(dict(zip((exponents - 1).tolist(), counts.tolist(), strict=True)))
        limits, scaled = limits_of(dtype), sizes * scale
        self.count += len(sizes)
        self.below_normal += int((scaled < limits.smallest_normal).sum())
        self.below_smallest += int((scaled < limits.smallest).sum())
        self.beyond += int((scaled >= beyond_from(dtype)).sum())
        self.largest = max(self.largest, float(scaled.max()))

    def result(self, place: ValueOrigin, *, is_weight: bool) -> GradientRange:
        count = max(self.count, 1)
        return GradientRange(
            name=place.module,
            op=place.op,
            is_weight=is_weight,
            count=self.count,
            largest=self.largest,
            below_normal=self.below_normal / count,
            below_smallest=self.below_smallest / count,
            beyond=self.beyond / count,
            octaves=tuple(sorted(self.octaves.items())),
            is_finite=self.is_finite,
        )
