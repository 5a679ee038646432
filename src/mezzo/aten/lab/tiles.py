"""Tiled accumulation of matmuls and convolutions, as on devices that accumulate in a low format.

The contracted axis is cut into tiles; the last may be shorter. Products within a tile are summed in
FP32, and after each tile the running sum is rounded: acc = round(acc + partial). Bias, alpha and
beta are applied after the sum, in FP32. A convolution contracts input channels and kernel
positions; a tile holds as many whole channels as fit, and at least one. Transposed convolutions and
attention accumulate in FP32.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from mezzo.aten.lab.rounding import round_through
from mezzo.contracts.plans import Accumulation

_aten: Any = torch.ops.aten
# The partial sum over a range of the contracted axis: (start, end) to tensor.
_Partial = Callable[[int, int], torch.Tensor]


def tiled(
    target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], accumulation: Accumulation
) -> torch.Tensor | None:
    """The result of a matmul or convolution with tiled accumulation; None for other operators."""
    compute = _TILED.get(target)
    return None if compute is None else compute(accumulation, *args, **kwargs)


def _sum(length: int, step: int, dtype: Any, partial: _Partial) -> torch.Tensor:
    total = round_through(partial(0, min(step, length)), dtype)
    for start in range(step, length, step):
        total = round_through(total + partial(start, min(start + step, length)), dtype)
    return total


def _product(accumulation: Accumulation, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    axis = max(-2, -second.dim())
    length = first.shape[-1]

    def partial(start: int, end: int) -> torch.Tensor:
        return torch.matmul(
            first.narrow(-1, start, end - start), second.narrow(axis, start, end - start)
        )

    return _sum(length, accumulation.tile, accumulation.dtype, partial)


def _linear(
    accumulation: Accumulation,
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    product = _product(accumulation, data, weight.t())
    return product if bias is None else product + bias


def _added(
    accumulation: Accumulation,
    addend: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    product = _product(accumulation, first, second)
    scaled = product if alpha == 1 else product * alpha
    return scaled if beta == 0 else scaled + (addend if beta == 1 else addend * beta)


def _convolution(
    accumulation: Accumulation,
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> torch.Tensor | None:
    if transposed:
        return None
    channels = weight.shape[1]
    step = max(1, accumulation.tile // math.prod(weight.shape[2:]))
    is_batched = data.dim() == weight.dim()
    batched = data if is_batched else data.unsqueeze(0)
    grouped = batched.reshape(batched.shape[0], groups, channels, *batched.shape[2:])

    def partial(start: int, end: int) -> torch.Tensor:
        data_channels = grouped.narrow(2, start, end - start).flatten(1, 2)
        weight_channels = weight.narrow(1, start, end - start)
        sizes = (stride, padding, dilation, False, output_padding, groups)
        return _aten.convolution.default(data_channels, weight_channels, None, *sizes)

    total = _sum(channels, step, accumulation.dtype, partial)
    unbatched = total if is_batched else total.squeeze(0)
    return unbatched if bias is None else unbatched + bias.reshape(-1, *[1] * (weight.dim() - 2))


def _spatial(
    accumulation: Accumulation,
    data: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor | None:
    """conv1d, conv2d or conv3d, which exported programs contain."""
    if isinstance(padding, str):
        return None
    rank = weight.dim() - 2
    strides, paddings, dilations = (
        _spread(argument, rank) for argument in (stride, padding, dilation)
    )
    sizes = (strides, paddings, dilations, False, [0] * rank, groups)
    return _convolution(accumulation, data, weight, bias, *sizes)


def _spread(argument: Any, rank: int) -> list[int]:
    """One number per axis, repeating a single number."""
    if isinstance(argument, tuple | list):
        return list(argument) * (rank // len(argument))
    return [argument] * rank


_TILED: Mapping[object, Callable[..., torch.Tensor | None]] = MappingProxyType(
    {
        _aten.mm.default: _product,
        _aten.bmm.default: _product,
        _aten.matmul.default: _product,
        _aten.mv.default: _product,
        _aten.linear.default: _linear,
        _aten.addmm.default: _added,
        _aten.baddbmm.default: _added,
        _aten.addmv.default: _added,
        _aten.convolution.default: _convolution,
        _aten.conv1d.default: _spatial,
        _aten.conv2d.default: _spatial,
        _aten.conv3d.default: _spatial,
    }
)
