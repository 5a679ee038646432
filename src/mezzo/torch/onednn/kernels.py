"""Operators that multiply by a weight as oneDNN packs it; `mezzo.torch.onednn.lowerings` is how Inductor writes them.

A packed weight has no strides that anybody may ask for, so a graph sees an empty tensor in its place, and its operators
are told what they cannot see. Sums are FP32, and biases may be. Convolutions keep the strides of those that they stand
for, channels last or first, as views, outputs and users rely on them; between kernels of its own Inductor has channels
last.
"""

import functools
from typing import Any, NamedTuple

import torch

_LIBRARY = torch.library.Library("mezzo", "DEF")
_LIBRARY.define("linear(Tensor x, Tensor packed, Tensor? bias, int features, str after, str how) -> Tensor")
_LIBRARY.define(
    "convolution(Tensor x, Tensor packed, Tensor? bias, int[] weight, int[] stride, int[] padding, int[] dilation, "
    "int groups, bool last, str after, str how) -> Tensor"
)
_LIBRARY.define(
    "convolution_add(Tensor x, Tensor packed, Tensor? bias, Tensor other, int[] weight, int[] stride, int[] padding, "
    "int[] dilation, int groups, bool last, str after, str how) -> Tensor"
)
_LIBRARY.define("pack_matrix(Tensor weight) -> Tensor")
_LIBRARY.define(
    "pack_filter(Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, int[] input_size) -> Tensor"
)
PACK_MATRIX: Any = torch.ops.mezzo.pack_matrix.default
PACK_FILTER: Any = torch.ops.mezzo.pack_filter.default
LINEAR: Any = torch.ops.mezzo.linear.default
CONVOLUTION: Any = torch.ops.mezzo.convolution.default
CONVOLUTION_ADD: Any = torch.ops.mezzo.convolution_add.default
_ONEDNN: Any = torch.ops.mkldnn
# An answer, what is added to it and the bias are rounded by half the low format's eps each: twice eps holds all three.
_ROUNDINGS = 2


class After(NamedTuple):
    """What oneDNN does to sums before it rounds them: an activation, and which of its formulas."""

    name: str
    formula: str


NOTHING = After("none", "")


@torch.library.impl(_LIBRARY, "pack_matrix", "CompositeExplicitAutograd")
def _pack_matrix(weight: Any) -> Any:
    return _ONEDNN._reorder_linear_weight(weight)


@torch.library.impl(_LIBRARY, "pack_filter", "CompositeExplicitAutograd")
def _pack_filter(weight: Any, stride: Any, padding: Any, dilation: Any, groups: int, input_size: Any) -> Any:
    return _ONEDNN._reorder_convolution_weight(weight, padding, stride, dilation, groups, input_size)


@torch.library.register_fake("mezzo::pack_matrix", lib=_LIBRARY)
@torch.library.register_fake("mezzo::pack_filter", lib=_LIBRARY)
def _fake_packed(weight: Any, *about: Any) -> Any:
    return weight.new_empty(0)


@torch.library.impl(_LIBRARY, "linear", "CompositeExplicitAutograd")
def _linear(x: Any, packed: Any, bias: Any, features: int, after: str, how: str) -> Any:
    return _ONEDNN._linear_pointwise(x.contiguous(), packed, bias, after, [], how)


@torch.library.register_fake("mezzo::linear", lib=_LIBRARY)
def _fake_linear(x: Any, packed: Any, bias: Any, features: int, *after: str) -> Any:
    return x.new_empty((*x.shape[:-1], features))


@torch.library.impl(_LIBRARY, "convolution", "CompositeExplicitAutograd")
def _convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, after, how = about
    x = laid_out(x, last=True)
    made = _ONEDNN._convolution_pointwise(x, packed, bias, padding, stride, dilation, groups, after, [], how)
    return laid_out(made, last=last)


@torch.library.register_fake("mezzo::convolution", lib=_LIBRARY)
def _fake_convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, *_ = about
    none = [0] * len(stride)
    made = torch.ops.aten.convolution(x, x.new_empty(weight), None, stride, padding, dilation, False, none, groups)
    return laid_out(made, last=last)


@torch.library.impl(_LIBRARY, "convolution_add", "CompositeExplicitAutograd")
def _convolution_add(x: Any, packed: Any, bias: Any, other: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, after, how = about
    x, other = (laid_out(one, last=True) for one in (x, other))
    given: Any = (padding, stride, dilation, groups, "add", None, after_sum(after), [], how)
    made = _ONEDNN._convolution_pointwise.binary(x, other, packed, bias, *given)
    return laid_out(made, last=last)


@torch.library.register_fake("mezzo::convolution_add", lib=_LIBRARY)
def _fake_convolution_add(x: Any, packed: Any, bias: Any, other: Any, weight: Any, *about: Any) -> Any:
    return _fake_convolution(x, packed, bias, weight, *about)


def after_sum(name: str) -> str | None:
    """What oneDNN calls an activation behind a sum."""
    return None if name == NOTHING.name else name


def layout_of(rank: int, *, last: bool) -> torch.memory_format:
    """The layout of images or volumes with their channels last or first."""
    if not last:
        return torch.contiguous_format
    return torch.channels_last if rank == 4 else torch.channels_last_3d


def laid_out(held: Any, *, last: bool) -> Any:
    """Images or volumes with their channels last or first, copied where they have them otherwise."""
    return held.contiguous(memory_format=layout_of(held.dim(), last=last))


def is_laid_out_last(held: torch.Tensor) -> bool:
    """Whether images or volumes have their channels last, and not first as well."""
    is_image = held.dim() in (4, 5)
    return is_image and not held.is_contiguous() and held.is_contiguous(memory_format=layout_of(held.dim(), last=True))


@functools.cache
def packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies by packed weights of a format here, FP32 biases added: tried on small products."""
    if not torch.backends.mkldnn.is_available():
        return False
    try:
        return _holds(dtype)
    except RuntimeError:  # it has no such kernel on this machine
        return False


def _holds(dtype: torch.dtype) -> bool:
    made = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, generator=made).to(dtype) for size in ((4, 64), (16, 64)))
    bias = torch.randn(16, generator=made)
    image, kernel = x.view(1, 4, 8, 8), weight.view(16, 4, 4, 4)
    flat = LINEAR(x, PACK_MATRIX(weight), bias, 16, *NOTHING)
    packed = PACK_FILTER(kernel, [1, 1], [0, 0], [1, 1], 1, [1, 4, 8, 8])
    about = ([16, 4, 4, 4], [1, 1], [0, 0], [1, 1], 1, False, *NOTHING)
    deep = CONVOLUTION(image, packed, bias, *about)
    added = CONVOLUTION_ADD(image, packed, bias.to(dtype), deep, *about)
    flat_wanted = torch.nn.functional.linear(x.float(), weight.float(), bias)
    image_wanted = torch.nn.functional.conv2d(image.float(), kernel.float(), bias)
    bound = _ROUNDINGS * torch.finfo(dtype).eps
    pairs = ((flat, flat_wanted), (deep, image_wanted), (added, 2 * image_wanted))
    return all(found.dtype is dtype and bool((found - exact).norm() <= bound * exact.norm()) for found, exact in pairs)
