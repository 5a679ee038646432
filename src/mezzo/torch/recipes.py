"""What is made of a weight once, and kept: its low copy, as it is or as oneDNN packs it."""

from dataclasses import dataclass
from typing import Protocol

import torch

from mezzo.torch.kernels import PACK_FILTER, PACK_MATRIX


class Recipe(Protocol):
    """How a copy of a weight is made. Equal recipes make equal copies; they are keys of tables."""

    def make(self, weight: torch.Tensor) -> torch.Tensor: ...


@dataclass(frozen=True, slots=True)
class LowCopy:
    """A weight in another format, in the layout that it has."""

    dtype: torch.dtype

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.detach().to(self.dtype)


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A weight of products, low and packed. `is_transposed` where its first axis is that of the input's features."""

    dtype: torch.dtype
    is_transposed: bool

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        low = weight.detach().to(self.dtype)
        made: torch.Tensor = PACK_MATRIX(low.t() if self.is_transposed else low)
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedFilter:
    """A weight of convolutions, low and packed for inputs of one size, after which oneDNN chooses its algorithm."""

    dtype: torch.dtype
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    input_size: tuple[int, ...]

    def make(self, weight: torch.Tensor) -> torch.Tensor:
        about = (list(self.stride), list(self.padding), list(self.dilation), self.groups, list(self.input_size))
        made: torch.Tensor = PACK_FILTER(weight.detach().to(self.dtype), *about)
        return made
