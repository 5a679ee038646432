"""Sums of products in tiles, as devices that accumulate in a low format make them.

The contracted axis is cut into tiles; the last may be shorter. Products within a tile are summed in FP32, and after
each tile the running sum is rounded: acc = r(acc + partial). What an operator adds besides comes after the sum, in
FP32: a bias, alpha and beta. A convolution contracts input channels and kernel positions; a tile holds as many whole
channels as fit, and at least one. Transposed convolutions and attention sum in FP32.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from mezzo.aten.lab.rounding import round_through
from mezzo.contracts.plans import Accumulation

_aten = torch.ops.aten
# A sum over part of the contracted axis, from one place to another.
_Partial = Callable[[int, int], torch.Tensor]


def tiled(
    target: object, args: tuple[Any, ...], kwargs: Mapping[str, Any], accumulation: Accumulation
) -> torch.Tensor | None:
    """What a product gives whose sums are rounded; None where it is no product that sums in tiles."""
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
        return torch.matmul(first.narrow(-1, start, end - start), second.narrow(axis, start, end - start))

    return _sum(length, accumulation.tile, accumulation.dtype, partial)


def _linear(
    accumulation: Accumulation, data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    made = _product(accumulation, data, weight.t())
    return made if bias is None else made + bias


def _added(
    accumulation: Accumulation,
    addend: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    made = _product(accumulation, first, second)
    scaled = made if alpha == 1 else made * alpha
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
        cut = grouped.narrow(2, start, end - start).flatten(1, 2)
        taken = weight.narrow(1, start, end - start)
        made: torch.Tensor = _aten.convolution.default(
            cut, taken, None, stride, padding, dilation, False, output_padding, groups
        )
        return made

    total = _sum(channels, step, accumulation.dtype, partial)
    whole = total if is_batched else total.squeeze(0)
    return whole if bias is None else whole + bias.reshape(-1, *[1] * (weight.dim() - 2))


def _spatial(rank: int) -> Callable[..., torch.Tensor | None]:
    """A convolution as exported programs have it."""

    def compute(
        accumulation: Accumulation,
        data: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> torch.Tensor | None:
        if isinstance(padding, str):
            return None
        strides, paddings, dilations = (_spread(one, rank) for one in (stride, padding, dilation))
        return _convolution(accumulation, data, weight, bias, strides, paddings, dilations, False, [0] * rank, groups)

    return compute


def _spread(given: Any, rank: int) -> list[int]:
    """One number per axis, as a program may give one for all."""
    return list(given) * (rank // len(given)) if isinstance(given, tuple | list) else [given] * rank


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
        _aten.conv1d.default: _spatial(1),
        _aten.conv2d.default: _spatial(2),
        _aten.conv3d.default: _spatial(3),
    }
)
