"""What is made of a weight once, and kept: its low copy, as it is or as oneDNN packs it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from mezzo.aten.read.retype import CAST
from mezzo.torch.onednn.kernels import PACK_FILTER, PACK_MATRIX, layout_of

# Carries an operator out on tensors, or writes a call of it into a graph.
Call = Callable[..., Any]
_PERMUTE: Any = torch.ops.aten.permute.default
UNSQUEEZE: Any = torch.ops.aten.unsqueeze.default
HEIGHT = 2  # the axis that sequences lack


class WeightLayout(Protocol):
    """How a copy of a weight is made. Equal recipes make equal copies; they are keys of tables."""

    def make(self, weight: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LowCopy:
    """A weight in another format, in the layout that it has or, of images, with its channels last."""

    dtype: torch.dtype
    last: bool = False

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        layout = layout_of(weight.dim(), last=True) if self.last else torch.preserve_format
        return weight.detach().to(self.dtype, memory_format=layout)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight of products, low and packed. `is_transposed` where its first axis is that of the input's features."""

    dtype: torch.dtype
    is_transposed: bool

    @property
    def channel_axis(self) -> int:
        """The axis of the answer's features."""
        return 1 if self.is_transposed else 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.spell(_carry_out, weight.detach())
        return made

    def spell(self, call: Call, weight: Any) -> Any:
        """Make it by calls."""
        low = call(CAST, weight, self.dtype)
        return call(PACK_MATRIX, call(_PERMUTE, low, [1, 0]) if self.is_transposed else low)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFilter:
    """A weight of convolutions, low and packed for inputs of one size, after which oneDNN chooses its algorithm. One of
    sequences becomes that of images of one row.
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
        """The axis of the answer's channels."""
        return 0

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.spell(_carry_out, weight.detach())
        return made

    def spell(self, call: Call, weight: Any) -> Any:
        """Make it by calls."""
        sizes = (list(self.stride), list(self.padding), list(self.dilation))
        low = call(CAST, weight, self.dtype)
        low = call(UNSQUEEZE, low, HEIGHT) if self.is_of_sequences else low
        return call(PACK_FILTER, low, *sizes, self.groups, list(self.input_size))


Packed = PackedMatrix | PackedFilter


def _carry_out(target: Any, *args: Any) -> Any:
    return target(*args)
