"""Inductor lowerings of the INT8 operators to oneDNN calls."""

from typing import Any

import torch

from mezzo.torch.onednn.int8_kernels import (
    HELD,
    INT8_CONVOLUTION,
    INT8_LINEAR,
    PLAIN,
)
from mezzo.torch.onednn.lowerings import channels_last, later, with_bias
from mezzo.torch.torch_internals import (
    BaseView,
    ExternKernel,
    FixedLayout,
    NoneLayout,
    ReinterpretView,
    TensorBox,
    V,
    make_channels_last_strides_for,
    mkldnn_ir,
    register_lowering,
    spell_sizes,
)

_PLACE_OF_OTHER = 4


@register_lowering(INT8_LINEAR, type_promotion_kind=None)
def _linear(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, features: int, *about: Any
) -> Any:
    x_scale, x_zero, scale, zero, dtype, after, how = about
    x = ExternKernel.require_contiguous(ExternKernel.realize_input(x))
    layout = FixedLayout(x.get_device(), dtype, [*x.get_size()[:-1], features])
    operands = _operands(x, x_scale, x_zero, packed, scales)
    if other is None:
        inputs, constants = with_bias(operands, bias, (scale, zero, dtype, after, [], how))
        return TensorBox.create(
            mkldnn_ir.QLinearPointwisePT2E(layout, inputs, constants, bias is not None)
        )
    other = ExternKernel.require_contiguous(ExternKernel.realize_input(other))
    addition: Any = (scale, zero, dtype, *PLAIN, "add", 1.0, after, [], how)
    inputs, constants = with_bias([*operands, other], bias, addition)
    return TensorBox.create(
        mkldnn_ir.QLinearPointwiseBinaryPT2E(layout, inputs, constants, bias is not None)
    )


@register_lowering(HELD, type_promotion_kind=None)
def _held(held: Any, sizes: Any, dtype: torch.dtype) -> Any:
    layout = FixedLayout(held.get_device(), dtype, sizes)
    return TensorBox(ReinterpretView(data=held.data, layout=layout))


@register_lowering(INT8_CONVOLUTION, type_promotion_kind=None)
def _convolution(
    x: Any, packed: Any, scales: Any, bias: Any, other: Any, weight: Any, *about: Any
) -> Any:
    stride, padding, dilation, groups, x_scale, x_zero, other_scale, other_zero, *rest = about
    scale, zero, dtype, _, *after = rest
    sizes = stride, padding, dilation, groups
    x = channels_last(x, len(weight))
    operands = _operands(x, x_scale, x_zero, packed, scales)
    if other is None:
        size = spell_sizes(V.graph.current_node.meta["val"].shape)
        layout = FixedLayout(x.get_device(), dtype, size, make_channels_last_strides_for(size))
        call_about = (*sizes, scale, zero, dtype, *after)
        return TensorBox.create(
            mkldnn_ir.QConvPointWisePT2E(layout, *with_bias(operands, bias, call_about))
        )
    is_free = _is_last_use(V.graph.current_node) and not isinstance(other.data, BaseView)
    # The kernel adds in place.
    addend = channels_last(other if is_free else ExternKernel.copy_input(other), len(weight))
    addition = (other_scale, other_zero, "sum", 1.0, *after)
    inputs, constants = with_bias(
        [*operands, addend], bias, (*sizes, scale, zero, dtype, *addition)
    )
    V.graph.mark_buffer_mutated(addend.get_name())
    nothing: Any = NoneLayout(device=x.get_device())
    call = mkldnn_ir.QConvPointWiseBinaryPT2E(nothing, inputs, constants)
    return TensorBox.create(call.inputs[call.idx_for_inplace_sum])


def _is_last_use(call: Any) -> bool:
    """Whether a convolution's addend is another's output and has no later use."""
    other = call.args[_PLACE_OF_OTHER]
    is_own = other.target is INT8_CONVOLUTION and other is not call.args[0]
    return is_own and set(other.users).isdisjoint(later(call))


def _operands(x: Any, x_scale: Any, x_zero: Any, packed: Any, scales: Any) -> list[Any]:
    """What every call begins with. Zero points of weights are 0."""
    return [
        x,
        _constant(x_scale, torch.float32, "x_scale"),
        _constant(x_zero, torch.int32, "x_zp"),
        ExternKernel.realize_input(packed),
        ExternKernel.realize_input(scales),
        _constant(0, torch.int32, "w_zp"),
    ]


def _constant(number: Any, dtype: torch.dtype, name: str) -> Any:
    constant = V.graph.add_tensor_constant(torch.tensor(number, dtype=dtype), name=name)
    constant.realize()
    return ExternKernel.realize_input(constant)
