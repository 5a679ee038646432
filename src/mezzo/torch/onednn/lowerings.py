"""Inductor lowerings of the packed operators to oneDNN calls in channels-last layout."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from mezzo.torch.onednn.kernels import (
    CONVOLUTION,
    CONVOLUTION_ADD,
    INT4_LINEAR,
    INT8W_LINEAR,
    LINEAR,
    after_sum,
)
from mezzo.torch.operators import STORED
from mezzo.torch.torch_internals import (
    BaseView,
    ExternKernel,
    ExternKernelAlloc,
    FixedLayout,
    FlexibleLayout,
    NoneLayout,
    TensorBox,
    V,
    create_onednn_output,
    make_channels_last_strides_for,
    mkldnn_ir,
    register_lowering,
)

# Their outputs are not views and have no views.
_OWN = frozenset({LINEAR, CONVOLUTION, CONVOLUTION_ADD})
_PLACE_OF_OTHER = 3
_SLOPES = [-1]  # for activations without parameters


@register_lowering(STORED, type_promotion_kind=None)
def _stored(x: Any) -> Any:
    x.realize()
    return x


@register_lowering(LINEAR, type_promotion_kind=None)
def _linear(x: Any, packed: Any, bias: Any, features: int, after: str, how: str) -> Any:
    x = ExternKernel.require_contiguous(ExternKernel.realize_input(x))
    layout = FixedLayout(x.get_device(), x.get_dtype(), [*x.get_size()[:-1], features])
    return _answer(
        mkldnn_ir.LinearUnary(layout, *_arguments((x, packed), bias, (after, _SLOPES, how)))
    )


class _Int4Linear(ExternKernelAlloc):
    """A call of ATen's kernel, whose third of four arguments is a number."""

    def codegen_args(self) -> list[str]:
        x, packed, grids, block = super().codegen_args()
        return [x, packed, block, grids]


@register_lowering(INT4_LINEAR, type_promotion_kind=None)
def _int4_linear(x: Any, packed: Any, grids: Any, features: int, block: int) -> Any:
    x = ExternKernel.require_contiguous(ExternKernel.realize_input(x))
    layout = FixedLayout(x.get_device(), x.get_dtype(), [x.get_size()[0], features])
    inputs = [x, ExternKernel.realize_input(packed), ExternKernel.realize_input(grids)]
    kernel = torch.ops.aten._weight_int4pack_mm_for_cpu.default
    return TensorBox.create(_Int4Linear(layout, inputs, [block], op_overload=kernel))


@register_lowering(INT8W_LINEAR, type_promotion_kind=None)
def _int8w_linear(x: Any, packed: Any, scales: Any, features: int) -> Any:
    x = ExternKernel.require_contiguous(ExternKernel.realize_input(x))
    layout = FixedLayout(x.get_device(), x.get_dtype(), [x.get_size()[0], features])
    inputs = [x, ExternKernel.realize_input(packed), ExternKernel.realize_input(scales)]
    kernel = torch.ops.aten._weight_int8pack_mm.default
    return TensorBox.create(ExternKernelAlloc(layout, inputs, op_overload=kernel))


@register_lowering(CONVOLUTION, type_promotion_kind=None)
def _convolution(x: Any, packed: Any, bias: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, _, after, how = about
    x = channels_last(x, len(weight))
    attributes = (padding, stride, dilation, groups, after, _SLOPES, how)
    return _answer(
        mkldnn_ir.ConvolutionUnary(
            _channels_last_layout(x), *_arguments((x, packed), bias, attributes)
        )
    )


@register_lowering(CONVOLUTION_ADD, type_promotion_kind=None)
def _convolution_add(x: Any, packed: Any, bias: Any, other: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, _, after, how = about
    x, addend = (channels_last(tensor, len(weight)) for tensor in (x, other))
    attributes = (padding, stride, dilation, groups, "add", None, after_sum(after), _SLOPES, how)
    inputs, constants = _arguments((x, addend, packed), bias, attributes)
    if _is_last_use(V.graph.current_node) and not isinstance(other.data, BaseView):
        nothing: Any = NoneLayout(device=x.get_device())
        return TensorBox.create(
            mkldnn_ir.ConvolutionBinaryInplace(nothing, inputs, constants).inputs[0]
        )
    return _answer(mkldnn_ir.ConvolutionBinary(_channels_last_layout(x), inputs, constants))


def _is_last_use(call: Any) -> bool:
    """Whether a convolution's addend has no later use, so that the output may overwrite it."""
    x, other = call.args[0], call.args[_PLACE_OF_OTHER]
    if x is other or x.op != "call_function" or other.target not in _OWN:
        return False
    users = set(other.users)
    return all(user.target in _OWN for user in users) and users.isdisjoint(later(call))


def later(call: Any) -> Iterator[Any]:
    """The nodes after a call in its graph."""
    node = call.next
    while node.op != "root":
        yield node
        node = node.next


def channels_last(held: Any, rank: int) -> Any:
    return ExternKernel.require_stride_order(
        ExternKernel.realize_input(held), [rank - 1, 0, *range(rank - 2, 0, -1)]
    )


def _channels_last_layout(x: Any) -> FixedLayout:
    """The channels-last layout of the output of the convolution being lowered."""
    size = list(V.graph.current_node.meta["val"].shape)
    return FixedLayout(x.get_device(), x.get_dtype(), size, make_channels_last_strides_for(size))


def _arguments(
    tensors: Sequence[Any], bias: Any, about: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Inputs and constants of a oneDNN call."""
    *operands, packed = tensors
    return with_bias([*operands, ExternKernel.realize_input(packed)], bias, about)


def with_bias(
    inputs: Sequence[Any], bias: Any, about: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """Inputs and constants of a oneDNN call; an absent bias is a constant."""
    if bias is None:
        return [*inputs], [None, *about]
    bias = ExternKernel.realize_input(bias)
    contiguous = FlexibleLayout.contiguous_strides(bias.get_size())
    return [*inputs, ExternKernel.require_exact_strides(bias, contiguous)], list(about)


def _answer(call: Any) -> Any:
    return TensorBox.create(create_onednn_output(call))
