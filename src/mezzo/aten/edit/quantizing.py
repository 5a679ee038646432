"""Quantization in the form of PyTorch's exported quantization (PT2E): a value is quantized and
dequantized before the calls whose kernels compute in integers. Inductor fuses the pair into INT8
kernels of oneDNN, and exporters write QuantizeLinear and DequantizeLinear.
"""

from typing import Any

import numpy as np
import torch
from torch.fx.passes.shape_prop import TensorMetadata

from mezzo.aten.program import FROM_DTYPE
from mezzo.aten.torch_internals import QUANTIZED_DECOMPOSED
from mezzo.formats.quantization import Quantization

_OPERATORS: Any = QUANTIZED_DECOMPOSED
_OF_TENSORS = (
    _OPERATORS.quantize_per_tensor.default,
    _OPERATORS.dequantize_per_tensor.default,
)
_OF_CHANNELS = (
    _OPERATORS.quantize_per_channel.default,
    _OPERATORS.dequantize_per_channel.default,
)
QUANTIZE_TENSOR, DEQUANTIZE_TENSOR = _OF_TENSORS
QUANTIZE_CHANNELS, DEQUANTIZE_CHANNELS = _OF_CHANNELS
QUANTIZE = frozenset({QUANTIZE_TENSOR, QUANTIZE_CHANNELS})


def calls_of(how: Quantization) -> tuple[Any, Any]:
    """The operators that quantize and dequantize."""
    return _OF_TENSORS if how.axis is None else _OF_CHANNELS


def parameters_of(how: Quantization, scales: Any, zero_points: Any) -> tuple[Any, ...]:
    """The arguments of both operators behind the tensor. `scales` and `zero_points`: tensors or FX
    nodes, for channels.
    """
    low, high = how.span
    if how.axis is None:
        return how.scales[0], how.zero_points[0], low, high, FROM_DTYPE[how.dtype]
    return scales, zero_points, how.axis, low, high, FROM_DTYPE[how.dtype]


def described(value: torch.Tensor) -> dict[str, Any]:
    """A node's metadata, as Inductor's patterns of quantization read it."""
    about = TensorMetadata(value.shape, value.dtype, False, value.stride(), None, False, {})
    return {"val": value, "tensor_meta": about}


def tensors_of(how: Quantization) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points of channels."""
    return torch.tensor(how.scales), torch.tensor(how.zero_points, dtype=torch.int64)


def round_through_integers(numbers: torch.Tensor, how: Quantization) -> torch.Tensor:
    """Quantize and dequantize an FP32 tensor."""
    quantize, dequantize = calls_of(how)
    scales, zero_points = (parameter.to(numbers.device) for parameter in tensors_of(how))
    parameters = parameters_of(how, scales, zero_points)
    numbers = turn(numbers, how) if how.turned else numbers
    result: torch.Tensor = dequantize(quantize(numbers, *parameters), *parameters)
    return result


def turn(weight: torch.Tensor, how: Quantization) -> torch.Tensor:
    """The FP32 weight whose quantization rounds the elements in `how.turned` to their farther
    neighbour, as GPTQ chose: all elements are integers times a scale, so that any order of
    operations rounds them back to these integers.
    """
    along = [1] * weight.dim()
    if how.axis is not None:
        along[how.axis] = -1
    scales, zero_points = (each.to(weight.device).view(along) for each in tensors_of(how))
    steps, (low, high) = weight / scales, how.span
    nearest = steps.round()
    bits = np.unpackbits(np.frombuffer(how.turned, np.uint8), count=weight.numel())
    is_turned = torch.from_numpy(bits.view(bool)).view(weight.shape).to(weight.device)
    farther = torch.where(steps >= nearest, nearest + 1, nearest - 1)
    integers = torch.where(is_turned, farther, nearest)
    return integers.clamp(low - zero_points, high - zero_points) * scales
