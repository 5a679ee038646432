"""Custom operators for matmuls and convolutions with oneDNN's packed weights.

A packed weight has no readable strides, so graphs contain an empty tensor in its place, and
operators take its shape as arguments. Accumulation is FP32, and biases may be FP32. Convolutions
keep the channel order of the convolution that they replace (channels last or first), which views,
outputs and users depend on; between its own kernels Inductor uses channels last. `lowerings.py` has
the lowerings.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from mezzo.aten.blocks import (
    DEQUANTIZE,
    DEQUANTIZE_ROWS,
    MIDDLE,
    ROUND,
    ROUND_ROWS,
    grids_of,
    integers_of,
    rows_of,
)
from mezzo.torch.operators import define
from mezzo.torch.torch_internals import without_modes

_ONEDNN: Any = torch.ops.mkldnn
# The output, the addend and the bias each have a rounding error of eps / 2; 2 eps bounds their sum.
_ROUNDINGS = 2
_INT4_ROWS = 16
# Rows of operands that ATen's INT4 kernel computes together: with more it is slower than BF16.
FEW_ROWS = 4


class After(NamedTuple):
    """oneDNN's epilogue before rounding: an activation and its formula."""

    name: str
    formula: str


NOTHING = After("none", "")


def _pack_matrix(weight: Any) -> Any:
    return _ONEDNN._reorder_linear_weight(weight)


def _pack_filter(
    weight: Any, stride: Any, padding: Any, dilation: Any, groups: int, input_size: Any
) -> Any:
    return _ONEDNN._reorder_convolution_weight(
        weight, padding, stride, dilation, groups, input_size
    )


def fake_packed(weight: Any, *about: Any) -> Any:
    return weight.new_empty(0)


def _linear(x: Any, packed: Any, bias: Any, features: int, after: str, how: str) -> Any:
    return _ONEDNN._linear_pointwise(x.contiguous(), packed, bias, after, [], how)


def _fake_linear(x: Any, packed: Any, bias: Any, features: int, *after: str) -> Any:
    return x.new_empty((*x.shape[:-1], features))


def _fake_linear_of_rows(x: Any, packed: Any, grids: Any, features: int, *block: int) -> Any:
    return x.new_empty((x.shape[0], features))


def _convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, after, how = about
    x = laid_out(x, last=True)
    result = _ONEDNN._convolution_pointwise(
        x, packed, bias, padding, stride, dilation, groups, after, [], how
    )
    return laid_out(result, last=last)


def _fake_convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, *_ = about
    output_padding = [0] * len(stride)
    result = torch.ops.aten.convolution(
        x, x.new_empty(weight), None, stride, padding, dilation, False, output_padding, groups
    )
    return laid_out(result, last=last)


def _convolution_add(x: Any, packed: Any, bias: Any, other: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, after, how = about
    x, other = (laid_out(tensor, last=True) for tensor in (x, other))
    options: Any = (padding, stride, dilation, groups, "add", None, after_sum(after), [], how)
    result = _ONEDNN._convolution_pointwise.binary(x, other, packed, bias, *options)
    return laid_out(result, last=last)


def _fake_convolution_add(
    x: Any, packed: Any, bias: Any, other: Any, weight: Any, *about: Any
) -> Any:
    return _fake_convolution(x, packed, bias, weight, *about)


def _pack_int4(rounded: Any, rows: int, length: int) -> Any:
    integers = integers_of(rounded, rows, length).to(torch.int32)
    filled = torch.nn.functional.pad(integers, (0, 0, 0, whole_rows(rows) - rows), value=MIDDLE)
    return torch.ops.aten._convert_weight_to_int4pack_for_cpu(filled, 1)


def _pack_grids(rounded: Any, rows: int, length: int) -> Any:
    grids = grids_of(rounded, rows, length)
    return torch.nn.functional.pad(grids, (0, 0, 0, whole_rows(rows) - rows)).contiguous()


def _int4_linear(x: Any, packed: Any, grids: Any, features: int, block: int) -> Any:
    return torch.ops.aten._weight_int4pack_mm_for_cpu(x.contiguous(), packed, block, grids)


def _pack_int8w(rounded: Any, rows: int, length: int) -> Any:
    return rows_of(rounded, rows, length)[0].clone()


def _pack_scales(rounded: Any, rows: int, length: int) -> Any:
    return rows_of(rounded, rows, length)[1]


def _int8w_linear(x: Any, packed: Any, scales: Any, features: int) -> Any:
    return torch.ops.aten._weight_int8pack_mm(x.contiguous(), packed, scales)


def whole_rows(rows: int) -> int:
    """Rows of a weight, filled up to what ATen's INT4 kernel takes."""
    return -(-rows // _INT4_ROWS) * _INT4_ROWS


PACK_INT4: Any = define(
    "pack_int4(Tensor rounded, int rows, int length) -> Tensor", _pack_int4, fake_packed
)
PACK_GRIDS: Any = define(
    "pack_grids(Tensor rounded, int rows, int length) -> Tensor", _pack_grids, fake_packed
)
INT4_LINEAR: Any = define(
    "int4_linear(Tensor x, Tensor packed, Tensor grids, int features, int block) -> Tensor",
    _int4_linear,
    _fake_linear_of_rows,
)
PACK_INT8W: Any = define(
    "pack_int8w(Tensor rounded, int rows, int length) -> Tensor", _pack_int8w, fake_packed
)
PACK_INT8W_SCALES: Any = define(
    "pack_scales(Tensor rounded, int rows, int length) -> Tensor", _pack_scales, fake_packed
)
INT8W_LINEAR: Any = define(
    "int8w_linear(Tensor x, Tensor packed, Tensor scales, int features) -> Tensor",
    _int8w_linear,
    _fake_linear_of_rows,
)
PACK_MATRIX: Any = define("pack_matrix(Tensor weight) -> Tensor", _pack_matrix, fake_packed)
PACK_FILTER: Any = define(
    "pack_filter(Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, int[]"
    " input_size) -> Tensor",
    _pack_filter,
    fake_packed,
)
LINEAR: Any = define(
    "linear(Tensor x, Tensor packed, Tensor? bias, int features, str after, str how) -> Tensor",
    _linear,
    _fake_linear,
)
CONVOLUTION: Any = define(
    "convolution(Tensor x, Tensor packed, Tensor? bias, int[] weight, int[] stride, int[] padding,"
    " int[] dilation, int groups, bool last, str after, str how) -> Tensor",
    _convolution,
    _fake_convolution,
)
CONVOLUTION_ADD: Any = define(
    "convolution_add(Tensor x, Tensor packed, Tensor? bias, Tensor other, int[] weight, int[]"
    " stride, int[] padding, int[] dilation, int groups, bool last, str after, str how) -> Tensor",
    _convolution_add,
    _fake_convolution_add,
)


def after_sum(name: str) -> str | None:
    """oneDNN's name for an activation after an addition."""
    return None if name == NOTHING.name else name


def layout_of(rank: int, *, last: bool) -> torch.memory_format:
    """The memory format of images or volumes with channels last or first."""
    if not last:
        return torch.contiguous_format
    return torch.channels_last if rank == 4 else torch.channels_last_3d


def laid_out(held: Any, *, last: bool) -> Any:
    """Images or volumes in channels-last or channels-first layout, copied if necessary."""
    return held.contiguous(memory_format=layout_of(held.dim(), last=last))


def is_laid_out_last(held: torch.Tensor) -> bool:
    """Whether images or volumes are channels-last and not contiguous as well."""
    has_channels = held.dim() in (4, 5)
    return (
        has_channels
        and not held.is_contiguous()
        and held.is_contiguous(memory_format=layout_of(held.dim(), last=True))
    )


@functools.cache
def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN supports packed weights of a format with FP32 biases here, by self-test."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        return _holds(dtype)
    except RuntimeError:  # no such kernel on this machine
        return False


@functools.cache
def reads_int4() -> bool:
    """Whether ATen's INT4 kernel is fast and right here, by self-test. With AVX2 it is slower than
    BF16 in oneDNN; elsewhere it was not measured.
    """
    return _passes(_int4_result)


@functools.cache
def reads_int8w() -> bool:
    """Whether ATen's kernel for INT8 weights is right here, by self-test. It was measured with
    AVX512 alone.
    """
    return _passes(_int8_result)


_Result = tuple[torch.Tensor, torch.Tensor]


def _passes(compute: Callable[[torch.Tensor, torch.Tensor], _Result]) -> bool:
    """Whether a kernel is right. `compute`: its result, and the dequantized weight."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return False
    generator = torch.Generator().manual_seed(0)
    try:
        with without_modes(), torch.no_grad():  # asked while a graph is compiled
            x, weight = (torch.randn(size, generator=generator) for size in ((3, 64), (24, 64)))
            x = x.bfloat16()
            result, floats = compute(x, weight)
            return _is_rounded_once(result, x.float() @ floats.t())
    except RuntimeError:  # no such kernel in this version
        return False


def _int4_result(x: torch.Tensor, weight: torch.Tensor) -> _Result:
    rounded = ROUND(weight, 32, 1, "nearest")
    packed, grids = PACK_INT4(rounded, 24, 64), PACK_GRIDS(rounded, 24, 64)
    result = INT4_LINEAR(x, packed, grids, whole_rows(24), 32)[:, :24]
    return result, DEQUANTIZE(rounded, [24, 64], [64, 1], 1, torch.float32)


def _int8_result(x: torch.Tensor, weight: torch.Tensor) -> _Result:
    rounded = ROUND_ROWS(weight, 1)
    packed, scales = PACK_INT8W(rounded, 24, 64), PACK_INT8W_SCALES(rounded, 24, 64)
    floats = DEQUANTIZE_ROWS(rounded, [24, 64], [64, 1], 1, torch.float32)
    return INT8W_LINEAR(x, packed, scales, 24), floats


def _is_rounded_once(result: torch.Tensor, exact: torch.Tensor) -> bool:
    bound = torch.finfo(torch.bfloat16).eps  # the output alone is rounded, by half an eps
    return bool((result.float() - exact).norm() <= bound * exact.norm())


def _holds(dtype: torch.dtype) -> bool:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=generator).to(dtype) for size in ((4, 64), (16, 64)))
    bias = torch.randn(16, generator=generator)
    image, kernel = x.view(1, 4, 8, 8), weight.view(16, 4, 4, 4)
    matrix_result = LINEAR(x, PACK_MATRIX(weight), bias, 16, *NOTHING)
    packed = PACK_FILTER(kernel, [1, 1], [0, 0], [1, 1], 1, [1, 4, 8, 8])
    convolution_args = ([16, 4, 4, 4], [1, 1], [0, 0], [1, 1], 1, False, *NOTHING)
    image_result = CONVOLUTION(image, packed, bias, *convolution_args)
    sum_result = CONVOLUTION_ADD(image, packed, bias.to(dtype), image_result, *convolution_args)
    exact_matrix = torch.nn.functional.linear(x.float(), weight.float(), bias)
    exact_image = torch.nn.functional.conv2d(image.float(), kernel.float(), bias)
    bound = _ROUNDINGS * torch.finfo(dtype).eps
    pairs = (
        (matrix_result, exact_matrix),
        (image_result, exact_image),
        (sum_result, 2 * exact_image),
    )
    return all(
        actual.dtype is dtype and bool((actual - exact).norm() <= bound * exact.norm())
        for actual, exact in pairs
    )
