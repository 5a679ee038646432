"""Emulated matmuls and convolutions with a low-precision accumulator, rounded after each tile.

Each tile of the reduced axis is summed in FP32 and rounded once; tiles are then added in order,
with every sum rounded: a single running sum. With tiles of one term every product and every sum is
rounded. Hardware with several partial sums, or that splits the axis over threads, has shorter sums
and a smaller error.

Convolutions are matmuls of unfolded inputs, reduced in the order channel, row, column in the
forward, and image, position for weight gradients. Input gradients have tiles of channels;
overlapping windows are added in FP32.
"""

from typing import Any

from torch.nn import functional

from mezzo.torch.onednn.kernels import laid_out
from mezzo.torch.operators import define

_SIZES = "int[] stride, int[] padding, int[] dilation, int groups, bool last, int tile"


def _product(one: Any, other: Any, tile: int) -> Any:
    left, right = one.float(), other.float()
    total = one.new_zeros(*one.shape[:-1], other.shape[-1])
    for begin in range(0, one.shape[-1], tile):
        partial = left[..., begin : begin + tile] @ right[..., begin : begin + tile, :]
        total = total + partial.to(one.dtype)
    return total


def _convolution(x: Any, weight: Any, *about: Any) -> Any:
    *_, groups, last, tile = about
    columns = _columns(x, weight, *about)  # [images, groups, terms, positions]
    result = _product(weight.reshape(1, groups, weight.shape[0] // groups, -1), columns, tile)
    return laid_out(result.reshape(_made_size(x, weight, *about)), last=last)


def _convolution_input(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    stride, padding, dilation, groups, last, tile = about
    flat = weight.reshape(1, groups, weight.shape[0] // groups, -1)
    grouped = gradient.reshape(x.shape[0], groups, flat.shape[2], -1)
    terms = _product(flat.transpose(2, 3), grouped, tile).float().flatten(1, 2)
    size = {
        "kernel_size": _two(weight.shape[2:]),
        "stride": _two(stride),
        "dilation": _two(dilation),
    }
    images = (1, *x.shape[2:])[-2:]
    result = functional.fold(terms, images, padding=_two(padding, 0), **size)
    return laid_out(result.to(x.dtype).reshape(x.shape), last=last)


def _convolution_weight(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    *_, groups, last, tile = about
    columns = _columns(x, weight, *about)
    grouped = gradient.reshape(x.shape[0], groups, weight.shape[0] // groups, -1)
    # [groups, terms, images * positions].
    matrices = (terms.permute(1, 2, 0, 3).flatten(2) for terms in (grouped, columns))
    grad_matrix, columns_matrix = matrices
    return laid_out(
        _product(grad_matrix, columns_matrix.transpose(1, 2), tile).reshape(weight.shape), last=last
    )


def _columns(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: int, *_: Any
) -> Any:
    """The terms of each output position, by group; sequences are images with one row."""
    images = x if x.dim() == 4 else x.unsqueeze(2)
    size = {"stride": _two(stride), "padding": _two(padding, 0), "dilation": _two(dilation)}
    unfolded = functional.unfold(images, _two(weight.shape[2:]), **size)
    return unfolded.reshape(x.shape[0], groups, -1, unfolded.shape[-1])


def _two(sizes: Any, rest: int = 1) -> tuple[int, int]:
    """Sizes for rows and columns; sequences only have columns."""
    return (rest, *sizes)[-2:]


def _made_size(
    x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, *_: Any
) -> tuple[int, ...]:
    sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
    places = [
        (length + 2 * pad - spacing * (taps - 1) - 1) // step + 1
        for length, taps, step, pad, spacing in sizes
    ]
    return (x.shape[0], weight.shape[0], *places)


def _fake_product(one: Any, other: Any, tile: int) -> Any:
    return one.new_empty((*one.shape[:-1], other.shape[-1]))


def _fake_convolution(x: Any, weight: Any, *about: Any) -> Any:
    return laid_out(x.new_empty(_made_size(x, weight, *about)), last=about[-2])


def _fake_input(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    return laid_out(x.new_empty(x.shape), last=about[-2])


def _fake_weight(gradient: Any, x: Any, weight: Any, *about: Any) -> Any:
    return laid_out(weight.new_empty(weight.shape), last=about[-2])


PRODUCT: Any = define(
    "tiled_product(Tensor one, Tensor other, int tile) -> Tensor", _product, _fake_product
)
CONVOLUTION: Any = define(
    f"tiled_convolution(Tensor x, Tensor weight, {_SIZES}) -> Tensor",
    _convolution,
    _fake_convolution,
)
CONVOLUTION_INPUT: Any = define(
    f"tiled_convolution_input(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor",
    _convolution_input,
    _fake_input,
)
CONVOLUTION_WEIGHT: Any = define(
    f"tiled_convolution_weight(Tensor gradient, Tensor x, Tensor weight, {_SIZES}) -> Tensor",
    _convolution_weight,
    _fake_weight,
)
