"""Quantization in the form of PyTorch's exported quantization (PT2E): a value is quantized and
dequantized before the calls whose kernels compute in integers. Inductor fuses the pair into INT8
kernels of oneDNN, and exporters write QuantizeLinear and DequantizeLinear.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

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
DEQUANTIZE = frozenset({DEQUANTIZE_TENSOR, DEQUANTIZE_CHANNELS})

_ATEN: Any = torch.ops.aten
# Scale, zero point, and span of the integers of rows whose ranges are found at run time.
_MIDDLE = 128
_OF_ROWS = (1.0, _MIDDLE, 0, 255, torch.uint8)
# Of zeros alone: the smallest normal number.
_LEAST_SCALE = torch.finfo(torch.float32).tiny
# What quantizes rows, in graphs.
ROW_OPERATORS = frozenset(
    {
        _ATEN.amin.default,
        _ATEN.amax.default,
        _ATEN.clamp_max.default,
        _ATEN.clamp_min.default,
        _ATEN.add.Tensor,
        _ATEN.sub.Tensor,
        _ATEN.mul.Tensor,
        _ATEN.div.Tensor,
        _ATEN.reciprocal.default,
        _ATEN.round.default,
    }
)


class Rows(NamedTuple):
    """An FP32 tensor [..., K] quantized to U8 at run time, each row in its own range, which
    includes 0 (per-token dynamic quantization): about (steps + shift) * scale. `steps`: the
    integers less 128, in FP32, [..., K]; `shift`: 128 less the row's zero point, [..., 1]; `scale`:
    [..., 1].
    """

    steps: Any
    shift: Any
    scale: Any


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


def quantize_rows(call: Callable[..., Any], numbers: Any) -> Rows:
    """Quantize the rows of an FP32 tensor. `call` runs an operator on tensors, or inserts it into a
    graph.

    What is quantized has scale 1 and zero point 128 for all rows, so that a matmul of the integers
    is one of static quantization: its kernels take one scale. A row with a NaN or an infinity has a
    scale that is no finite number.
    """
    low = call(_ATEN.clamp_max.default, call(_ATEN.amin.default, numbers, [-1], True), 0.0)
    high = call(_ATEN.clamp_min.default, call(_ATEN.amax.default, numbers, [-1], True), 0.0)
    step = call(_ATEN.div.Tensor, call(_ATEN.sub.Tensor, high, low), 255.0)
    scale = call(_ATEN.clamp_min.default, step, _LEAST_SCALE)
    factor = call(_ATEN.reciprocal.default, scale)
    below = call(_ATEN.round.default, call(_ATEN.mul.Tensor, low, factor))  # minus the zero point
    shift = call(_ATEN.add.Tensor, below, float(_MIDDLE))
    scaled = call(_ATEN.sub.Tensor, call(_ATEN.mul.Tensor, numbers, factor), shift)
    integers = call(QUANTIZE_TENSOR, scaled, *_OF_ROWS)
    return Rows(call(DEQUANTIZE_TENSOR, integers, *_OF_ROWS), shift, scale)


def multiply_rows(call: Callable[..., Any], product: Any, rows: Rows, sums: Any) -> tuple[Any, Any]:
    """Two addends of the product of quantized rows by a matrix. `product`: that of `rows.steps`,
    [..., N]; `sums`: the sum of each of the matrix's N columns.
    """
    scaled = call(_ATEN.mul.Tensor, product, rows.scale)
    shift = call(_ATEN.mul.Tensor, rows.shift, rows.scale)
    return scaled, call(_ATEN.mul.Tensor, shift, sums)


def described(value: torch.Tensor) -> dict[str, Any]:
    """A node's metadata, as Inductor's patterns of quantization read it."""
    about = TensorMetadata(value.shape, value.dtype, False, value.stride(), None, False, {})
    return {"val": value, "tensor_meta": about}


def tensors_of(how: Quantization, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points of channels."""
    zero_points = torch.tensor(how.zero_points, dtype=torch.int64, device=device)
    return torch.tensor(how.scales, device=device), zero_points


def round_through_integers(numbers: torch.Tensor, how: Quantization) -> torch.Tensor:
    """Quantize and dequantize an FP32 tensor."""
    quantize, dequantize = calls_of(how)
    scales, zero_points = tensors_of(how, numbers.device)
    parameters = parameters_of(how, scales, zero_points)
    numbers = turn(numbers, how) if how.turned else numbers
    result: torch.Tensor = dequantize(quantize(numbers, *parameters), *parameters)
    return result


def round_in_own_range(numbers: torch.Tensor) -> torch.Tensor:
    """Quantize and dequantize the rows of an FP32 tensor, each in its own range."""
    if not numbers.numel():
        return numbers
    rows = quantize_rows(lambda operator, *arguments: operator(*arguments), numbers)
    result: torch.Tensor = (rows.steps + rows.shift) * rows.scale
    return result


def turn(weight: torch.Tensor, how: Quantization) -> torch.Tensor:
    """The FP32 weight whose quantization rounds the elements in `how.turned` to their farther
    neighbour, as GPTQ chose: all elements are integers times a scale, so that any order of
    operations rounds them back to these integers.
    """
    along = [1] * weight.dim()
    if how.axis is not None:
        along[how.axis] = -1
    scales, zero_points = (each.view(along) for each in tensors_of(how, weight.device))
    steps, (low, high) = weight / scales, how.span
    nearest = steps.round()
    bits = np.unpackbits(np.frombuffer(how.turned, np.uint8), count=weight.numel())
    is_turned = torch.from_numpy(bits.view(bool)).view(weight.shape).to(weight.device)
    farther = torch.where(steps >= nearest, nearest + 1, nearest - 1)
    integers = torch.where(is_turned, farther, nearest)
    return integers.clamp(low - zero_points, high - zero_points) * scales
