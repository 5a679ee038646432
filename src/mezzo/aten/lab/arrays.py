"""Conversion between torch tensors and numpy arrays, including BF16 and FP8."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[Any]

# Dtypes that only ml_dtypes provides, and the integer dtype of the same size.
_STRANGE: Mapping[torch.dtype, tuple[type[Any], torch.dtype]] = MappingProxyType(
    {
        torch.bfloat16: (ml_dtypes.bfloat16, torch.int16),
        torch.float8_e4m3fn: (ml_dtypes.float8_e4m3fn, torch.uint8),
        torch.float8_e5m2: (ml_dtypes.float8_e5m2, torch.uint8),
    }
)
_BY_NAME = {np.dtype(kind).name: (dtype, bits) for dtype, (kind, bits) in _STRANGE.items()}


def array_of(tensor: torch.Tensor) -> Array:
    """A new array with a tensor's values, in its dtype."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    extension = _STRANGE.get(plain.dtype)
    if extension is None:
        return np.array(plain.numpy(), order="C")
    kind, bits = extension
    array: Array = np.array(plain.contiguous().view(bits).numpy()).view(kind)
    return array


def tensor_from(feed: object) -> torch.Tensor:
    """A tensor from an array, a tensor, or anything that numpy converts to an array.

    Raises ValueError, TypeError: it holds no numbers that PyTorch supports.
    """
    if isinstance(feed, torch.Tensor):
        return feed.detach()
    array = np.asarray(feed)
    extension = _BY_NAME.get(array.dtype.name)
    if extension is not None:
        dtype, bits = extension
        bits_array = np.array(array, order="C").view(np.int16 if bits is torch.int16 else np.uint8)
        return torch.from_numpy(bits_array).view(dtype)
    return torch.from_numpy(np.array(array, order="C"))
