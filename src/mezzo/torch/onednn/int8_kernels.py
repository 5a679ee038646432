"""Custom operators for oneDNN's INT8 matmuls and convolutions with weights that are inputs.

Inductor's own calls of these kernels demand constant weights. As for packed floats, graphs contain
empty tensors in place of packed weights and their scales. Activations are U8 or S8 with one scale,
weights S8 with a scale for each output channel, which is the first axis. `in_pairs`: kernels add
the products of two neighbours in INT16.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from mezzo.aten.edit.quantizing import QUANTIZE_CHANNELS
from mezzo.formats.neighbouring_pairs import largest_pairs
from mezzo.torch.onednn.kernels import NOTHING, fake_packed, laid_out
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import without_modes

ONEDNN: Any = torch.ops.onednn
# Integers of weights are symmetric; their scales are normal numbers, and finite.
_LARGEST, _LEAST, _WIDEST = 127, torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max / 2


class Steps(NamedTuple):
    """Scale and zero point of a tensor with one of each."""

    scale: float
    zero_point: int


PLAIN = Steps(1.0, 0)  # of floats


def _scales(weight: Any, in_pairs: bool) -> Any:
    """Scales of output channels, as calibration finds them; NaN stays NaN."""
    if in_pairs:
        ends = torch.from_numpy(largest_pairs(weight.detach().contiguous().numpy()))
    else:
        ends = weight.abs().flatten(1).amax(1).double()
    largest = ends.clamp(max=_WIDEST) / _LARGEST
    return torch.where(largest == 0, 1.0, largest.clamp(min=_LEAST)).float()


def _integers(weight: Any, scales: Any) -> Any:
    zeros = torch.zeros(len(weight), dtype=torch.int64, device=weight.device)
    about = (0, -_LARGEST, _LARGEST, torch.int8)
    return QUANTIZE_CHANNELS(weight, scales, zeros, *about)


def _fake_of_channels(weight: Any, _: Any) -> Any:
    return weight.new_empty(len(weight))


def _sums(weight: Any, scales: Any) -> Any:
    """The sum of each output channel's quantized weights."""
    return _integers(weight, scales).flatten(1).sum(1) * scales


def _pack_matrix(weight: Any, scales: Any) -> Any:
    integers = _integers(weight, scales).contiguous()
    return ONEDNN.qlinear_prepack(integers, None)  # the same for any number of rows


def _pack_filter(weight: Any, scales: Any, *about: Any) -> Any:
    return ONEDNN.qconv_prepack(_integers(weight, scales), scales, *about)


def _linear(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, features: int, *about: Any
) -> Any:
    x_scale, x_zero, scale, zero, dtype, after, how = about
    operands = (x.contiguous(), x_scale, x_zero, packed, scales, torch.zeros(1, dtype=torch.int32))
    if other is None:
        return ONEDNN.qlinear_pointwise(*operands, bias, scale, zero, dtype, after, [], how)
    addition: Any = (*PLAIN, "add", 1.0, after, [], how)
    return ONEDNN.qlinear_pointwise.binary(*operands, other, bias, scale, zero, dtype, *addition)


def _fake_linear(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, features: int, *about: Any
) -> Any:
    return x.new_empty((*x.shape[:-1], features), dtype=about[4])


def _convolution(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, weight: Any, *about: Any
) -> Any:
    stride, padding, dilation, groups, x_scale, x_zero, other_scale, other_zero, *rest = about
    scale, zero, dtype, last, *after = rest
    sizes = stride, padding, dilation, groups
    x = laid_out(x, last=True)
    operands = (x, x_scale, x_zero, packed, scales, torch.zeros(1, dtype=torch.int32))
    if other is None:
        result = ONEDNN.qconv_pointwise(*operands, bias, *sizes, scale, zero, dtype, *after)
        return laid_out(result, last=last)
    addend = laid_out(other.clone(), last=True)  # the kernel adds in place
    addition = (other_scale, other_zero, "sum", 1.0, *after)
    result = ONEDNN.qconv2d_pointwise.binary(
        *operands, addend, bias, *sizes, scale, zero, dtype, *addition
    )
    return laid_out(result, last=last)


def _fake_convolution(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, weight: Any, *about: Any
) -> Any:
    stride, padding, dilation, groups, *_, dtype, last, _, _, _ = about
    result = torch.ops.aten.convolution(
        x.new_empty(x.shape, dtype=torch.float32),
        x.new_empty(weight, dtype=torch.float32),
        None,
        stride,
        padding,
        dilation,
        False,
        [0] * len(stride),
        groups,
    )
    return laid_out(result.to(dtype), last=last)


INT8_SCALES: Any = define(
    "int8_scales(Tensor weight, bool in_pairs) -> Tensor", _scales, _fake_of_channels
)
INT8_SUMS: Any = define(
    "int8_sums(Tensor weight, Tensor scales) -> Tensor", _sums, _fake_of_channels
)
INT8_INTEGERS: Any = define(
    "int8_integers(Tensor weight, Tensor scales) -> Tensor",
    lambda weight, scales: _integers(weight, scales).contiguous(),
    lambda weight, _: weight.new_empty(weight.shape, dtype=torch.int8),
)
# Tells a compiler what an input of a graph will hold.
HELD: Any = define(
    "held(Tensor held, int[] sizes, ScalarType dtype) -> Tensor",
    lambda held, sizes, dtype: held.clone(),
    lambda held, sizes, dtype: held.new_empty(sizes, dtype=dtype),
)
PACK_INT8_MATRIX: Any = define(
    "pack_int8_matrix(Tensor weight, Tensor scales) -> Tensor", _pack_matrix, fake_packed
)
PACK_INT8_FILTER: Any = define(
    "pack_int8_filter(Tensor weight, Tensor scales, float x_scale, int x_zero, int[] stride,"
    " int[] padding, int[] dilation, int groups, int[]? input_size) -> Tensor",
    _pack_filter,
    fake_packed,
)
INT8_LINEAR: Any = define(
    "int8_linear(Tensor x, Tensor packed, Tensor scales, Tensor? bias, Tensor? other,"
    " int features, float x_scale, int x_zero, float scale, int zero, ScalarType dtype, str after,"
    " str how) -> Tensor",
    _linear,
    _fake_linear,
)
INT8_CONVOLUTION: Any = define(
    "int8_convolution(Tensor x, Tensor packed, Tensor scales, Tensor? bias, Tensor? other,"
    " int[] weight, int[] stride, int[] padding, int[] dilation, int groups, float x_scale,"
    " int x_zero, float other_scale, int other_zero, float scale, int zero, ScalarType dtype,"
    " bool last, str after, float[] numbers, str how) -> Tensor",
    _convolution,
    _fake_convolution,
)
INT8_PRODUCTS = frozenset({INT8_LINEAR, INT8_CONVOLUTION})


@functools.cache
def multiplies_int8(in_pairs: bool) -> bool:
    """Whether oneDNN's INT8 matmuls are right here, by self-test."""
    return _passes(_linear_holds, in_pairs)


@functools.cache
def convolves_int8(in_pairs: bool) -> bool:
    """Whether oneDNN's INT8 convolutions are right here, by self-test."""
    return _passes(_convolution_holds, in_pairs)


@functools.cache
def adds_to_int8(dtype: torch.dtype) -> bool:
    """Whether oneDNN's INT8 matmuls add a float of this type here, by self-test."""

    def holds(in_pairs: bool) -> bool:
        linear, exact = _linear_of(in_pairs)
        sums = [
            linear(exact.to(dtype), PLAIN, result, *NOTHING) for result in (dtype, torch.float32)
        ]
        return all(_is_near(each, 2 * exact, torch.finfo(dtype).eps) for each in sums)

    return _passes(holds, True)


def _passes(test: Callable[[bool], bool], in_pairs: bool) -> bool:
    if not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
        return False
    try:
        with without_modes(), torch.no_grad():  # asked while a graph is compiled
            return test(in_pairs)
    except RuntimeError:  # no such kernel on this machine
        return False


class _Example(NamedTuple):
    """Operands of a self-test, and the numbers that an exact kernel computes with."""

    x: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor
    numbers: torch.Tensor
    weights: torch.Tensor


_OF_X = Steps(0.02, 120)


def _example(size: tuple[int, ...], weight_size: tuple[int, ...], in_pairs: bool) -> _Example:
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, size, dtype=torch.uint8, generator=generator)
    weight = torch.randn(weight_size, generator=generator)
    # The largest sums: without VNNI pairs of products saturate.
    x[..., : size[-2] // 2, :], weight[0], weight[1] = 255, 3.0, -3.0
    bias = torch.randn(weight_size[0], generator=generator)
    scales = INT8_SCALES(weight, in_pairs)
    weights = _integers(weight, scales).double() * scales.view(-1, *[1] * (weight.dim() - 1))
    return _Example(x, weight, bias, _floats(x, _OF_X), weights)


def _floats(integers: torch.Tensor, steps: Steps) -> torch.Tensor:
    return (integers.double() - steps.zero_point) * steps.scale


def _linear_of(in_pairs: bool) -> tuple[Callable[..., Any], torch.Tensor]:
    """An INT8 matmul of an addend and what follows, and its exact result."""
    about = _example((6, 64), (16, 64), in_pairs)
    scales = INT8_SCALES(about.weight, in_pairs)
    packed = PACK_INT8_MATRIX(about.weight, scales)
    exact = torch.nn.functional.linear(about.numbers, about.weights, about.bias.double()).float()

    def linear(other: Any, steps: Steps, *after: object) -> Any:
        operands = (about.x, packed, scales, about.bias, other, 16)
        return INT8_LINEAR(*operands, *_OF_X, *steps, *after)

    return linear, exact


def _linear_holds(in_pairs: bool) -> bool:
    return _agree(*_linear_of(in_pairs))


def _convolution_holds(in_pairs: bool) -> bool:
    about = _example((1, 8, 6, 6), (16, 8, 3, 3), in_pairs)
    sizes = ([1, 1], [1, 1], [1, 1], 1)
    scales, bias = INT8_SCALES(about.weight, in_pairs), about.bias.double()
    packed = PACK_INT8_FILTER(about.weight, scales, *_OF_X, *sizes, [1, 8, 6, 6])
    exact = torch.nn.functional.conv2d(about.numbers, about.weights, bias, padding=1).float()

    def convolution(other: Any, steps: Steps, dtype: torch.dtype, after: str, how: str) -> Any:
        operands = (about.x, packed, scales, about.bias, other, [16, 8, 3, 3])
        numbers = (*_OF_X, *PLAIN, *steps, dtype)
        return INT8_CONVOLUTION(*operands, *sizes, *numbers, False, after, [], how)

    return _agree(convolution, exact)


def _agree(kernel: Callable[..., Any], exact: torch.Tensor) -> bool:
    """Whether a kernel's outputs in FP32, in BF16, after an addition and as integers are right."""
    step = Steps(float(exact.abs().max()) / 127, 128)
    fp32, low, added, integers = (
        kernel(None, PLAIN, torch.float32, *NOTHING),
        kernel(None, PLAIN, torch.bfloat16, *NOTHING),
        kernel(exact, PLAIN, torch.float32, "relu", ""),
        kernel(None, step, torch.uint8, *NOTHING),
    )
    pairs = ((fp32, exact), (low, exact), (added, 2 * exact.relu()))
    is_near = all(_is_near(result, right, torch.finfo(result.dtype).eps) for result, right in pairs)
    off = (_floats(integers, step) - exact).abs().max()
    return is_near and bool(off <= 0.51 * step.scale)  # half a step, and FP32's rounding


def _is_near(result: torch.Tensor, right: torch.Tensor, eps: float) -> bool:
    return bool((result - right).norm() <= 4 * eps * right.norm())
