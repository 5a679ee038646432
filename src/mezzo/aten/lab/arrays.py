"""Tensors as numpy arrays and back, formats that numpy does not know among them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]

# What only ml_dtypes names, and integers of the same size.
_STRANGE: Mapping[torch.dtype, tuple[type[Any], torch.dtype]] = MappingProxyType(
    {
        torch.bfloat16: (ml_dtypes.bfloat16, torch.int16),
        torch.float8_e4m3fn: (ml_dtypes.float8_e4m3fn, torch.uint8),
        torch.float8_e5m2: (ml_dtypes.float8_e5m2, torch.uint8),
    }
)
_BY_NAME = {np.dtype(kind).name: (dtype, bits) for dtype, (kind, bits) in _STRANGE.items()}


def array_of(tensor: torch.Tensor) -> Array:
    """An array of a tensor's numbers, in its type, which nobody else holds."""
    held = tensor.detach().cpu().resolve_conj().resolve_neg()
    strange = _STRANGE.get(held.dtype)
    if strange is None:
        return np.array(held.numpy(), order="C")
    kind, bits = strange
    array: Array = np.array(held.contiguous().view(bits).numpy()).view(kind)
    return array


def tensor_from(feed: object) -> torch.Tensor:
    """A tensor of what was fed: an array, a tensor, or what numpy makes an array of.

    Raises: ValueError, TypeError: it holds no numbers that PyTorch knows.
    """
    if isinstance(feed, torch.Tensor):
        return feed.detach()
    array = np.asarray(feed)
    strange = _BY_NAME.get(array.dtype.name)
    if strange is not None:
        dtype, bits = strange
        whole = np.array(array, order="C").view(np.int16 if bits is torch.int16 else np.uint8)
        return torch.from_numpy(whole).view(dtype)
    return torch.from_numpy(np.array(array, order="C"))
