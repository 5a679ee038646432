"""Layouts of weights in INT8: integers as oneDNN packs them, and their scales."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from mezzo.torch.onednn.int8_kernels import (
    INT8_SCALES,
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
    """A form of a weight whose output channels have scales. `is_transposed`: they are the second of
    two axes.
    """

    is_transposed: bool = False
    source: ClassVar[None] = None

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        form: torch.Tensor = self.spell(carry_out, weight.detach())
        return form

    def spell(self, call: Call, weight: Any) -> Any:
        """Build the form by calls."""
        raise NotImplementedError

    def by_channel(self, call: Call, weight: Any) -> Any:
        """The weight with its channels first."""
        return call(PERMUTE, weight, [1, 0]) if self.is_transposed else weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Scales(OfChannels):
    """The scales of the channels."""

    def spell(self, call: Call, weight: Any) -> Any:
        return call(INT8_SCALES, self.by_channel(call, weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Matrix(OfChannels):
    """A packed matrix."""

    def spell(self, call: Call, weight: Any) -> Any:
        return call(PACK_INT8_MATRIX, self.by_channel(call, weight))


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8Filter(OfChannels):
    """A packed convolution weight, for one quantization `of_x`. `input_size`: None if it changes
    between calls. A weight for sequences is packed as one for images with one row.
    """

    of_x: Steps
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input_size: tuple[int, ...] | None
    is_of_sequences: bool

    @classmethod
    def of(cls, packing: PackedFilter, of_x: Steps) -> "Int8Filter":
        """The form that is for the same convolution as one in floats."""
        return cls(
            of_x=of_x,
            stride=packing.stride,
            padding=packing.padding,
            dilation=packing.dilation,
            groups=packing.groups,
            input_size=packing.input_size,
            is_of_sequences=packing.is_of_sequences,
        )

    def spell(self, call: Call, weight: Any) -> Any:
        sizes = ([*self.stride], [*self.padding], [*self.dilation], self.groups)
        weight = call(UNSQUEEZE, weight, HEIGHT) if self.is_of_sequences else weight
        input_size = None if self.input_size is None else [*self.input_size]
        return call(PACK_INT8_FILTER, weight, *self.of_x, *sizes, input_size)
