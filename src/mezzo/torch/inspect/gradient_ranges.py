"""Looks at the gradients of a model in FP64: those of values as they come by, and those of weights."""

import copy
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import LOW_DTYPES, DType
from mezzo.formats.format_words import read_format
from mezzo.formats.rounding import beyond_from, limits_of
from mezzo.numerics.ranges.gradient_ranges import GradientRange, GradientRanges
from mezzo.torch.compiler.arguments import batches_of, check_module
from mezzo.torch.inspect.comparing import call_with, tensors_of, widened
from mezzo.torch.inspect.gradient_hooks import Place, looking_at_gradients

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
    """Say which gradients of a model a low format would lose: of what its modules hand on, of what functions of PyTorch
    make in them, one for all that a function makes in a module, and of its weights.

    Each batch is one forward and backward of a copy in FP64; the model stays as it is. What functions call inside, as
    those of attention with its softmax, is not looked at.

    Args:
        data: batches; each the arguments of one call: a tuple, a mapping of keywords, or one tensor.
        loss: of what the model gives, a number; without it a fixed linear function of all results of floats.
        scale: what the loss is multiplied by, such as `GradScaler.get_scale()`.
        to: the format, "fp16" or "bf16".

    Raises InputError: the model is no module; there is no batch, no weight has a gradient, or there is no such scale or
    format.
    """
    dtype = LOW_DTYPES[read_format(to, "to")]
    watch = RangeWatch(exact_copy(model), dtype, _read_scale(scale))
    for batch in batches_of(data):
        watch.gradients(batch, linear if loss is None else loss)
    return watch.result()


def exact_copy(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of a module in FP64; of one that is compiled, of what was compiled. Raises InputError: it is none."""
    made: torch.nn.Module = copy.deepcopy(getattr(check_module(model), "_orig_mod", model)).double()
    return made


def _read_scale(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < math.inf:
        raise InputError(f"scale is {given!r}; give a number above 0, such as GradScaler.get_scale() or 65536")
    return float(given)


def linear(answer: object) -> torch.Tensor:
    """A fixed linear function of all results of floats: each times its own noise, in the mean."""
    total = torch.zeros((), dtype=torch.float64)
    for number, one in tensors_of(answer):
        if one.requires_grad:
            noise = torch.randn(one.shape, generator=torch.Generator().manual_seed(number))
            total = total + (one * noise.to(one)).mean().to(total)
    return total


class RangeWatch:
    """Runs a model in FP64 batch by batch and counts what its gradients hold."""

    def __init__(self, exact: torch.nn.Module, dtype: DType, scale: float) -> None:
        self._exact, self._dtype, self._scale = exact, dtype, scale
        self._activations: dict[Place, _Tally] = {}
        self._weights: dict[Place, _Tally] = {}
        self._batches = 0

    def gradients(self, batch: object, loss: Loss) -> Mapping[str, torch.Tensor]:
        """The gradients of weights for a batch, by name, which are counted like those of activations.

        Raises InputError: no weight has one, or the loss is no number.
        """
        self._exact.zero_grad(set_to_none=True)
        with torch.enable_grad(), looking_at_gradients(self._exact, self._look):
            made = loss(call_with(self._exact, pytree.tree_map(widened, batch)))
            if made.numel() != 1:
                shape = list(made.shape)
                raise InputError(f"loss gives a tensor of shape {shape}; give a function whose result is one number")
            if not made.requires_grad:
                raise InputError(_NO_GRADIENT)
            torch.autograd.backward(made)
        self._batches += 1
        found = {name: one.grad for name, one in self._exact.named_parameters() if one.grad is not None}
        for name, gradient in found.items():
            self._add(self._weights, Place(name), gradient)
        return found

    def result(self, notes: Iterable[str] = ()) -> GradientRanges:
        """What was counted. Raises InputError: there was no batch, or no weight had a gradient."""
        if not self._batches:
            raise InputError(_NO_BATCH)
        if not self._weights:
            raise InputError(_NO_GRADIENT)
        return GradientRanges(
            activations=tuple(one.result(of, is_weight=False) for of, one in self._activations.items()),
            weights=tuple(one.result(of, is_weight=True) for of, one in self._weights.items()),
            dtype=self._dtype,
            scale=self._scale,
            batches=self._batches,
            notes=tuple(notes),
        )

    def _look(self, place: Place, gradient: torch.Tensor) -> None:
        self._add(self._activations, place, gradient)

    def _add(self, into: "dict[Place, _Tally]", place: Place, gradient: torch.Tensor) -> None:
        into.setdefault(place, _Tally()).add(gradient.detach(), self._dtype, self._scale)


@dataclass(kw_only=True)
class _Tally:
    """What a gradient held so far; numbers are counted with the loss scaled, octaves without."""

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
        # frexp has mantissas from a half on.
        self.octaves.update(dict(zip((exponents - 1).tolist(), counts.tolist(), strict=True)))
        limits, scaled = limits_of(dtype), sizes * scale
        self.count += len(sizes)
        self.below_normal += int((scaled < limits.smallest_normal).sum())
        self.below_smallest += int((scaled < limits.smallest).sum())
        self.beyond += int((scaled >= beyond_from(dtype)).sum())
        self.largest = max(self.largest, float(scaled.max()))

    def result(self, of: Place, *, is_weight: bool) -> GradientRange:
        count = max(self.count, 1)
        return GradientRange(
            name=of.module,
            op=of.op,
            is_weight=is_weight,
            count=self.count,
            largest=self.largest,
            below_normal=self.below_normal / count,
            below_smallest=self.below_smallest / count,
            beyond=self.beyond / count,
            octaves=tuple(sorted(self.octaves.items())),
            is_finite=self.is_finite,
        )
