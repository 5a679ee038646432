"""Layouts of cached low-precision weights: plain or packed by oneDNN."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mezzo.aten.read.retype import CAST
from mezzo.torch.onednn.kernels import PACK_FILTER, PACK_MATRIX, layout_of

# Runs an operator on tensors, or inserts a call of it into a graph.
Call = Callable[..., Any]
_PERMUTE: Any = torch.ops.aten.permute.default
UNSQUEEZE: Any = torch.ops.aten.unsqueeze.default
HEIGHT = 2  # the axis to insert into sequences


class WeightLayout(Protocol):
    """How a weight is converted and stored. Equal layouts make equal copies; keys of caches."""

    def make(self, weight: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LowCopy:
    """A weight in another dtype, in its own layout or in channels-last layout."""

    dtype: torch.dtype
    last: bool = False

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        layout = layout_of(weight.dim(), last=True) if self.last else torch.preserve_format
        return weight.detach().to(self.dtype, memory_format=layout)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A low-precision packed matrix. `is_transposed` means the weight is stored as [in, out]."""

    dtype: torch.dtype
    is_transposed: bool

    @property
    def channel_axis(self) -> int:
        """The axis of the output features."""
        return 1 if self.is_transposed else 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = self.spell(_carry_out, weight.detach())
        return packed

    def spell(self, call: Call, weight: Any) -> Any:
        """Build the packed weight by calls."""
        low = call(CAST, weight, self.dtype)
        return call(PACK_MATRIX, call(_PERMUTE, low, [1, 0]) if self.is_transposed else low)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFilter:
    """A low-precision packed convolution weight, for one input size, which determines oneDNN's
    algorithm.
    A weight for sequences is packed as one for images with one row.
    """

    dtype: torch.dtype
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input_size: tuple[int, ...]
    is_of_sequences: bool = False

    @property
    def channel_axis(self) -> int:
        """The axis of the output channels."""
        return 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        packed: torch.Tensor = self.spell(_carry_out, weight.detach())
        return packed

    def spell(self, call: Call, weight: Any) -> Any:
        """Build the packed weight by calls."""
        sizes = (list(self.stride), list(self.padding), list(self.dilation))
        low = call(CAST, weight, self.dtype)
        low = call(UNSQUEEZE, low, HEIGHT) if self.is_of_sequences else low
        return call(PACK_FILTER, low, *sizes, self.groups, list(self.input_size))


Packed = PackedMatrix | PackedFilter


def _carry_out(target: Any, *args: Any) -> Any:
    return target(*args)
