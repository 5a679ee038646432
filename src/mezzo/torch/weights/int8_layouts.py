"""Layouts of weights in INT8: integers as oneDNN packs them, and their scales."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from mezzo.torch.onednn.int8_kernels import (
    INT8_INTEGERS,
    INT8_SCALES,
    INT8_SUMS,
    PACK_INT8_FILTER,
    PACK_INT8_MATRIX,
    Steps,
)
from mezzo.torch.weights.weight_layouts import (
    HEIGHT,
    PERMUTE,
    UNSQUEEZE,
    Call,
    PackedFilter,
    carry_out,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfChannels:
    """A form of a weight whose output channels have scales. `in_pairs`: the kernel adds products
    in pairs; `is_transposed`: the channels are the second of two axes. `operator` makes the form of
    a matrix, its channels first, and their scales.
    """

    in_pairs: bool
    is_transposed: bool = False
    source: ClassVar[None] = None
    operator: ClassVar[Any] = None

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        form: torch.Tensor = self.spell(carry_out, weight.detach())
        return form

    def spell(self, call: Call, weight: Any, scales: Any = None) -> Any:
        """Build the form by calls, with these scales, or those of the weight."""
        weight = self.by_channel(call, weight)
        return call(
            self.operator, weight, self.scales_of(call, weight) if scales is None else scales
        )

    def by_channel(self, call: Call, weight: Any) -> Any:
        """The weight with its channels first."""
        return call(PERMUTE, weight, [1, 0]) if self.is_transposed else weight

    def scales_of(self, call: Call, weight: Any) -> Any:
        """The scales of the channels of a weight, which are its first axis."""
        return call(INT8_SCALES, weight, self.in_pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Scales(OfChannels):
    """The scales of the channels."""

    def spell(self, call: Call, weight: Any, scales: Any = None) -> Any:
        return self.scales_of(call, self.by_channel(call, weight)) if scales is None else scales


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Sums(OfChannels):
    """The sum of each channel's quantized weights."""

    operator: ClassVar[Any] = INT8_SUMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Matrix(OfChannels):
    """A packed matrix."""

    operator: ClassVar[Any] = PACK_INT8_MATRIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Integers(OfChannels):
    """The integers of a matrix as they are, its channels first."""

    operator: ClassVar[Any] = INT8_INTEGERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Filter(OfChannels):
    """A packed convolution weight, for one quantization `of_x` of what it is multiplied by.
    `packing`: how floats are packed for the same convolution.
    """

    of_x: Steps
    packing: PackedFilter

    def spell(self, call: Call, weight: Any, scales: Any = None) -> Any:
        packing = self.packing
        sizes = ([*packing.stride], [*packing.padding], [*packing.dilation], packing.groups)
        weight = call(UNSQUEEZE, weight, HEIGHT) if packing.is_of_sequences else weight
        input_size = None if packing.input_size is None else [*packing.input_size]
        scales = self.scales_of(call, weight) if scales is None else scales
        return call(PACK_INT8_FILTER, weight, scales, *self.of_x, *sizes, input_size)
