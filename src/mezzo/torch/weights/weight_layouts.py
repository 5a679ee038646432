"""Layouts of cached low-precision weights: plain or packed by oneDNN."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import fx

from mezzo.aten.blocks import dequantizer, rounding_call
from mezzo.aten.read.retype import CAST
from mezzo.aten.read.scales import is_multiplication
from mezzo.formats.block_storage import BlockStorage
from mezzo.torch.onednn.kernels import (
    PACK_FILTER,
    PACK_GRIDS,
    PACK_INT4,
    PACK_INT8W,
    PACK_INT8W_SCALES,
    PACK_MATRIX,
    layout_of,
)

# Runs an operator on tensors, or inserts a call of it into a graph.
Call = Callable[..., Any]
PERMUTE: Any = torch.ops.aten.permute.default
UNSQUEEZE: Any = torch.ops.aten.unsqueeze.default
HEIGHT = 2  # the axis to insert into sequences


class WeightLayout(Protocol):
    """How a weight is converted and stored. Equal layouts make equal copies; keys of caches.
    `source`: the layout from whose copy it is made; None if from the weight.
    """

    @property
    def source(self) -> "WeightLayout | None": ...
    def make(self, weight: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LowCopy:
    """A weight in another dtype, in its own layout or in channels-last layout."""

    dtype: torch.dtype
    last: bool = False
    source: ClassVar[None] = None

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        layout = layout_of(weight.dim(), last=True) if self.last else torch.preserve_format
        return weight.detach().to(self.dtype, memory_format=layout)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A low-precision packed matrix. `is_transposed` means the weight is stored as [in, out]."""

    dtype: torch.dtype
    is_transposed: bool
    source: ClassVar[None] = None

    @property
    def channel_axis(self) -> int:
        """The axis of the output features."""
        return 1 if self.is_transposed else 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = self.spell(carry_out, weight.detach())
        return packed

    def spell(self, call: Call, weight: Any) -> Any:
        """Build the packed weight by calls."""
        low = call(CAST, weight, self.dtype)
        return call(PACK_MATRIX, call(PERMUTE, low, [1, 0]) if self.is_transposed else low)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFilter:
    """A low-precision packed convolution weight, for one input size, which determines oneDNN's
    algorithm; None if it changes between calls.
    A weight for sequences is packed as one for images with one row.
    """

    dtype: torch.dtype
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input_size: tuple[int, ...] | None
    is_of_sequences: bool = False
    source: ClassVar[None] = None

    @property
    def channel_axis(self) -> int:
        """The axis of the output channels."""
        return 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = self.spell(carry_out, weight.detach())
        return packed

    def spell(self, call: Call, weight: Any) -> Any:
        """Build the packed weight by calls."""
        assert self.input_size is not None, "it is packed for one size"
        sizes = (list(self.stride), list(self.padding), list(self.dilation))
        low = call(CAST, weight, self.dtype)
        low = call(UNSQUEEZE, low, HEIGHT) if self.is_of_sequences else low
        return call(PACK_FILTER, low, *sizes, self.groups, list(self.input_size))


@dataclass(frozen=True, slots=True)
class RoundedToBlocks:
    """A weight rounded to integers in blocks: what the other layouts of blocks are made from, so
    that it is rounded once.
    """

    storage: BlockStorage
    source: ClassVar[None] = None

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        target, arguments = rounding_call(weight.detach(), self.storage)
        rounded: torch.Tensor = target(*arguments)
        return rounded


@dataclass(frozen=True, slots=True, kw_only=True)
class OfBlocks:
    """A form of a weight of shape `sizes` that is made from its integers in blocks."""

    storage: BlockStorage
    sizes: tuple[int, int]

    @property
    def source(self) -> RoundedToBlocks:
        return RoundedToBlocks(self.storage)

    @property
    def rows(self) -> int:
        return self.sizes[1 - self.storage.axis]

    @property
    def length(self) -> int:
        """Elements of a row, which is what blocks lie along."""
        return self.sizes[self.storage.axis]

    def make(self, rounded: torch.Tensor) -> torch.Tensor:
        form: torch.Tensor = self.spell(carry_out, rounded)
        return form

    def spell(self, call: Call, rounded: Any) -> Any:
        """Build the form from the integers by calls."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockFloats(OfBlocks):
    """The dequantized weight in low precision."""

    dtype: torch.dtype
    strides: tuple[int, ...]

    def spell(self, call: Call, rounded: Any) -> Any:
        sizes, strides = list(self.sizes), list(self.strides)
        target = dequantizer(self.storage)
        return call(target, rounded, sizes, strides, self.storage.axis, self.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBlockFloats(BlockFloats):
    """The dequantized weight, packed."""

    packing: PackedMatrix

    def spell(self, call: Call, rounded: Any) -> Any:
        floats = BlockFloats.spell(self, call, rounded)
        return self.packing.spell(call, floats)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int4Matrix(OfBlocks):
    """The integers as ATen's INT4 kernel reads them."""

    def spell(self, call: Call, rounded: Any) -> Any:
        return call(PACK_INT4, rounded, self.rows, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int4Grids(OfBlocks):
    """The scales and offsets as ATen's INT4 kernel reads them."""

    def spell(self, call: Call, rounded: Any) -> Any:
        return call(PACK_GRIDS, rounded, self.rows, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8wMatrix(OfBlocks):
    """The integers as ATen's kernel for INT8 weights reads them."""

    def spell(self, call: Call, rounded: Any) -> Any:
        return call(PACK_INT8W, rounded, self.rows, self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Int8wScales(OfBlocks):
    """The scales as ATen's kernel for INT8 weights reads them."""

    def spell(self, call: Call, rounded: Any) -> Any:
        return call(PACK_INT8W_SCALES, rounded, self.rows, self.length)


Packed = PackedMatrix | PackedFilter


@dataclass(frozen=True, slots=True)
class Scaled:
    """A layout of a weight times 2^exponent, as range repair has it."""

    layout: WeightLayout
    exponent: int
    source: ClassVar[None] = None

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        return self.layout.make(weight.detach() * 2.0**self.exponent)


def scaled_layout(layout: WeightLayout, exponent: int) -> WeightLayout:
    """The layout of a weight times 2^exponent."""
    return Scaled(layout, exponent) if exponent else layout


def forms_of(weight: fx.Node) -> list[fx.Node]:
    """A weight and its products with powers of two."""
    return [weight, *(user for user in weight.users if is_multiplication(user))]


def carry_out(target: Any, *args: Any) -> Any:
    return target(*args)
