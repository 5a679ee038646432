"""Operators that multiply by a weight as oneDNN packs it, and how Inductor writes them.

A packed weight has no strides that anybody may ask for, so a graph sees an empty tensor in its place, and its operators
are told what they cannot see. Sums are FP32, and biases may be. Convolutions keep the strides of those that they stand
for, channels last or first, as views, outputs and users rely on them; between kernels of its own Inductor has channels
last.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch._inductor import mkldnn_ir
from torch._inductor.ir import ExternKernel, FixedLayout, FlexibleLayout, TensorBox
from torch._inductor.lowering import register_lowering
from torch._inductor.virtualized import V
from torch._prims_common import make_channels_last_strides_for

_LIBRARY = torch.library.Library("mezzo", "DEF")
_LIBRARY.define("linear(Tensor x, Tensor packed, Tensor? bias, int features, str after, str how) -> Tensor")
_LIBRARY.define(
    "convolution(Tensor x, Tensor packed, Tensor? bias, int[] weight, int[] stride, int[] padding, int[] dilation, "
    "int groups, bool last, str after, str how) -> Tensor"
)
_LIBRARY.define("pack_matrix(Tensor weight) -> Tensor")
_LIBRARY.define(
    "pack_filter(Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, int[] input_size) -> Tensor"
)
PACK_MATRIX: Any = torch.ops.mezzo.pack_matrix.default
PACK_FILTER: Any = torch.ops.mezzo.pack_filter.default
LINEAR: Any = torch.ops.mezzo.linear.default
CONVOLUTION: Any = torch.ops.mezzo.convolution.default
_ONEDNN: Any = torch.ops.mkldnn
# One of sums, and one of rounding the answer: twice the low format's eps holds both.
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
    x = x.contiguous(memory_format=layout_of(x.dim(), last=True))
    made = _ONEDNN._convolution_pointwise(x, packed, bias, padding, stride, dilation, groups, after, [], how)
    return made.contiguous(memory_format=layout_of(x.dim(), last=last))


@torch.library.register_fake("mezzo::convolution", lib=_LIBRARY)
def _fake_convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, *_ = about
    none = [0] * len(stride)
    made = torch.ops.aten.convolution(x, x.new_empty(weight), None, stride, padding, dilation, False, none, groups)
    return made.contiguous(memory_format=layout_of(x.dim(), last=last))


def layout_of(rank: int, *, last: bool) -> torch.memory_format:
    """The layout of images or volumes with their channels last or first."""
    if not last:
        return torch.contiguous_format
    return torch.channels_last if rank == 4 else torch.channels_last_3d


@register_lowering(LINEAR, type_promotion_kind=None)
def _lower_linear(x: Any, packed: Any, bias: Any, features: int, *after: str) -> Any:
    x = ExternKernel.require_contiguous(ExternKernel.realize_input(x))
    layout = FixedLayout(x.get_device(), x.get_dtype(), [*x.get_size()[:-1], features])
    return _kernel(mkldnn_ir.LinearUnary, layout, (x, packed, bias), (), After(*after))


@register_lowering(CONVOLUTION, type_promotion_kind=None)
def _lower_convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, _, *after = about
    rank = len(weight)
    x = ExternKernel.require_stride_order(ExternKernel.realize_input(x), [rank - 1, 0, *range(rank - 2, 0, -1)])
    size = list(V.graph.current_node.meta["val"].shape)
    layout = FixedLayout(x.get_device(), x.get_dtype(), size, make_channels_last_strides_for(size))
    given = (padding, stride, dilation, groups)
    return _kernel(mkldnn_ir.ConvolutionUnary, layout, (x, packed, bias), given, After(*after))


def _kernel(kind: Any, layout: FixedLayout, given: tuple[Any, Any, Any], about: Sequence[Any], after: After) -> Any:
    """A call of oneDNN: tensors come first, a bias that is none among what is constant."""
    x, packed, bias = given
    inputs = [x, ExternKernel.realize_input(packed)]
    constants = [*about, after.name, [-1], after.formula]
    if bias is None:
        constants.insert(0, None)
    else:
        bias = ExternKernel.realize_input(bias)
        inputs.append(ExternKernel.require_exact_strides(bias, FlexibleLayout.contiguous_strides(bias.get_size())))
    return TensorBox.create(mkldnn_ir._create_output_node(kind(layout, inputs, constants)))


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
    deep = CONVOLUTION(image, packed, bias, [16, 4, 4, 4], [1, 1], [0, 0], [1, 1], 1, False, *NOTHING)
    wanted = (
        torch.nn.functional.linear(x.float(), weight.float(), bias),
        torch.nn.functional.conv2d(image.float(), kernel.float(), bias),
    )
    bound = _ROUNDINGS * torch.finfo(dtype).eps
    pairs = zip((flat, deep), wanted, strict=True)
    return all(found.dtype is dtype and bool((found - exact).norm() <= bound * exact.norm()) for found, exact in pairs)
