"""Quantization in the form of PyTorch's exported quantization (PT2E): a value is quantized and
dequantized before the calls whose kernels compute in integers. Inductor fuses the pair into INT8
kernels of oneDNN, and exporters write QuantizeLinear and DequantizeLinear.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import guard_or_true
from torch.fx.passes.shape_prop import TensorMetadata

from mezzo.aten.program import FROM_DTYPE
from mezzo.aten.read.retype import CAST
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
# With scale and zero point as tensors, which are found at run time.
QUANTIZE_DYNAMIC: Any = _OPERATORS.quantize_per_tensor.tensor
DEQUANTIZE_DYNAMIC: Any = _OPERATORS.dequantize_per_tensor.tensor
QUANTIZE = frozenset({QUANTIZE_TENSOR, QUANTIZE_CHANNELS, QUANTIZE_DYNAMIC})
DEQUANTIZE = frozenset({DEQUANTIZE_TENSOR, DEQUANTIZE_CHANNELS, DEQUANTIZE_DYNAMIC})

_ATEN: Any = torch.ops.aten
_U8 = (0, 255, torch.uint8)
# Of zeros alone: the smallest normal number.
_LEAST_SCALE = torch.finfo(torch.float32).tiny
# What finds a range, in graphs.
RANGE_OPERATORS = frozenset(
    {
        _ATEN.amin.default,
        _ATEN.amax.default,
        _ATEN.clamp_max.default,
        _ATEN.clamp_min.default,
        _ATEN.sub.Tensor,
        _ATEN.div.Tensor,
        _ATEN.neg.default,
        _ATEN.round.default,
    }
)


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


def quantize_dynamically(call: Callable[..., Any], numbers: Any, value: torch.Tensor) -> Any:
    """Quantize an FP32 tensor to U8 in its own range, which includes 0, and dequantize it. `call`
    runs an operator on tensors, or inserts it into a graph, where `value` is the fake tensor.

    Operators of ATen find the range, as Inductor (PyTorch 2.13) makes of `choose_qparams` a range
    without 0: numbers from 3 to 5 all become 2. A NaN or an infinity makes the scale one. An empty
    tensor has no range, and stays as it is, also if only data tells that it is empty.
    """
    if guard_or_true(value.numel() == 0):
        return numbers
    low = call(_ATEN.clamp_max.default, call(_ATEN.amin.default, numbers), 0.0)
    high = call(_ATEN.clamp_min.default, call(_ATEN.amax.default, numbers), 0.0)
    step = call(_ATEN.div.Tensor, call(_ATEN.sub.Tensor, high, low), 255.0)
    scale = call(_ATEN.clamp_min.default, step, _LEAST_SCALE)
    steps = call(_ATEN.round.default, call(_ATEN.div.Tensor, call(_ATEN.neg.default, low), scale))
    parameters = (scale, call(CAST, steps, torch.int32), *_U8)
    integers = call(QUANTIZE_DYNAMIC, numbers, *parameters)
    return call(DEQUANTIZE_DYNAMIC, integers, *parameters)


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


def round_in_own_range(numbers: torch.Tensor) -> torch.Tensor:
    """Quantize and dequantize an FP32 tensor dynamically."""
    result: torch.Tensor = quantize_dynamically(
        lambda operator, *arguments: operator(*arguments), numbers, numbers
    )
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
