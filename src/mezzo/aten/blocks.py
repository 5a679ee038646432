"""Weights rounded to integers of four bits in blocks, or of eight in rows, as PyTorch operators.

An element is (integer - 8) * scale + offset, with scale and offset in BF16, as ATen's kernel
`_weight_int4pack_mm_for_cpu` has them. Integers are chosen once both are rounded. Of eight bits an
element is integer * scale with a scale for each row, as in `_weight_int8pack_mm`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import fx

from mezzo.formats.block_storage import WHOLE_ROW, BlockForm, BlockStorage
from mezzo.formats.dtypes import DType, storage_span
from mezzo.formats.rounding import Floats, round_through
from mezzo.plugins.discovery import rounding

_LIBRARY = torch.library.Library("mezzo", "FRAGMENT")
MIDDLE = 8
_HIGHEST = 15
_GRID_BYTES = 4  # a scale and an offset of a block
_BITS, _BYTE_BITS = 4, 8
_SCALE_BYTES = 2
_LARGEST = 127
_FITS = 5
_PIECE = 1 << 13  # blocks that are fitted at once, which fit into a processor's cache


def size_of(sizes: Sequence[int], storage: BlockStorage) -> int:
    """Bytes of a rounded matrix: integers, then scales, and offsets of four bits."""
    if storage.bits == _BYTE_BITS:
        return _size_in_rows(sizes, storage.axis)
    return _size_in_blocks(sizes, storage.block)


def _size_in_blocks(sizes: Sequence[int], block: int) -> int:
    elements = sizes[0] * sizes[1]
    return elements // 2 + elements // block * _GRID_BYTES


def _size_in_rows(sizes: Sequence[int], axis: int) -> int:
    return sizes[0] * sizes[1] + sizes[1 - axis] * _SCALE_BYTES


def _round(weight: torch.Tensor, block: int, axis: int, name: str) -> torch.Tensor:
    """Integers, two to a byte with the first in the lower half, of rows whose blocks lie along
    `axis` of the weight; then [blocks of a row, rows, 2] scales and offsets. A block with NaN or
    infinity becomes NaN.
    """
    matrix = weight.detach().cpu().numpy()
    matrix = np.ascontiguousarray(matrix if axis == 1 else matrix.T)
    storage = _storage(block, 1, name)
    blocks = matrix.reshape(-1, block)
    is_broken = ~np.isfinite(blocks).all(axis=1)
    blocks = np.where(is_broken[:, None], np.float32(0), blocks) if is_broken.any() else blocks
    _, scales, zeros = rounding(name).round(blocks, storage)
    low, _ = storage_span(storage.dtype)
    offsets = (MIDDLE + low - zeros).astype(np.float32) * scales
    levels = np.empty_like(blocks)
    for start in range(0, len(blocks), _PIECE):
        piece = slice(start, start + _PIECE)
        levels[piece], scales[piece], offsets[piece] = _fit(
            blocks[piece], scales[piece], round_through(offsets[piece], DType.BFLOAT16)
        )
    integers = levels.astype(np.uint8).reshape(-1, 2)
    packed = torch.from_numpy(integers[:, 0] | integers[:, 1] << _BITS)
    rows, scales = len(matrix), np.where(is_broken, np.float32(np.nan), scales)
    grids = torch.from_numpy(np.stack([scales, offsets], axis=1)).to(torch.bfloat16)
    grids = grids.view(rows, -1, 2).transpose(0, 1).contiguous()
    return torch.cat([packed, grids.view(torch.uint8).view(-1)])


def _fit(blocks: Floats, scales: Floats, offsets: Floats) -> tuple[Floats, Floats, Floats]:
    """Integers, scales and offsets of blocks. Offsets may be any BF16, zero points of roundings
    are integers: both are fitted by least squares to the integers, and these chosen anew, as long
    as a block's squared error falls.
    """
    levels, errors = _round_on(blocks, scales, offsets)
    for _ in range(_FITS):
        steps = levels - levels.mean(axis=1, keepdims=True)
        squares = np.einsum("ij,ij->i", steps, steps)
        products = np.einsum("ij,ij->i", steps, blocks)
        may_fit = (squares > 0) & (products > 0)
        slopes = np.divide(products, squares, out=scales.copy(), where=may_fit)
        slopes = round_through(slopes, DType.BFLOAT16)
        slopes = np.where(slopes > 0, slopes, scales)
        shifts = blocks.mean(axis=1) - slopes * (levels.mean(axis=1) - MIDDLE)
        shifts = round_through(shifts, DType.BFLOAT16)
        fitted, fitted_errors = _round_on(blocks, slopes, shifts)
        is_better = fitted_errors < errors
        levels = np.where(is_better[:, None], fitted, levels)
        scales = np.where(is_better, slopes, scales)
        offsets = np.where(is_better, shifts, offsets)
        errors = np.where(is_better, fitted_errors, errors)
    return levels, scales, offsets


def _round_on(blocks: Floats, scales: Floats, offsets: Floats) -> tuple[Floats, Floats]:
    """The nearest integers of blocks on their grids, and the squared error of each block."""
    levels = blocks - offsets[:, None]
    levels /= scales[:, None]
    np.rint(levels, out=levels)
    levels += MIDDLE
    np.clip(levels, 0, _HIGHEST, out=levels)
    errors = (levels - MIDDLE) * scales[:, None] + offsets[:, None]
    errors -= blocks
    return levels, np.einsum("ij,ij->i", errors, errors)


def integers_of(rounded: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """The integers of a rounded matrix, [rows, length]."""
    packed = rounded[: rows * length // 2]
    return torch.stack([packed & _HIGHEST, packed >> _BITS], dim=1).view(rows, length)


def grids_of(rounded: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """The scales and offsets of a rounded matrix, [blocks of a row, rows, 2]."""
    return rounded[rows * length // 2 :].view(torch.bfloat16).view(-1, rows, 2)


def _dequantize(
    rounded: torch.Tensor, sizes: list[int], strides: list[int], axis: int, dtype: torch.dtype
) -> torch.Tensor:
    rows, length = sizes[1 - axis], sizes[axis]
    grids = grids_of(rounded, rows, length).float().transpose(0, 1).unsqueeze(2)
    levels = integers_of(rounded, rows, length).float().sub_(MIDDLE)
    levels = levels.view(rows, grids.shape[1], -1)
    matrix = levels.mul_(grids[..., 0]).add_(grids[..., 1]).view(rows, length)
    result = torch.empty_strided(sizes, strides, dtype=dtype)
    return result.copy_(matrix if axis == 1 else matrix.t())


def _round_rows(weight: torch.Tensor, axis: int) -> torch.Tensor:
    """Integers [rows, length], a byte each, then the scale of each row. A row with NaN or infinity
    becomes NaN.
    """
    matrix = weight.detach().float()
    matrix = (matrix if axis == 1 else matrix.t()).contiguous()
    scales = (matrix.abs().amax(1) / _LARGEST).bfloat16()
    is_broken = ~scales.isfinite()
    divisors = torch.where(is_broken | (scales == 0), 1, scales.float())
    levels = (matrix / divisors[:, None]).round_().clamp_(-_LARGEST, _LARGEST).nan_to_num_(0)
    scales = torch.where(is_broken, torch.nan, scales)
    return torch.cat([levels.to(torch.int8).view(torch.uint8).view(-1), scales.view(torch.uint8)])


def rows_of(rounded: torch.Tensor, rows: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The integers [rows, length] of a matrix rounded in rows, and the scales of the rows."""
    integers, scales = rounded[: rows * length], rounded[rows * length :]
    return integers.view(torch.int8).view(rows, length), scales.clone().view(torch.bfloat16)


def _dequantize_rows(
    rounded: torch.Tensor, sizes: list[int], strides: list[int], axis: int, dtype: torch.dtype
) -> torch.Tensor:
    integers, scales = rows_of(rounded, sizes[1 - axis], sizes[axis])
    matrix = integers.float().mul_(scales.float()[:, None])
    result = torch.empty_strided(sizes, strides, dtype=dtype)
    return result.copy_(matrix if axis == 1 else matrix.t())


def _define(schema: str, compute: Any, fake: Any) -> Any:
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    _LIBRARY.impl(name, compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"mezzo::{name}", fake, lib=_LIBRARY)
    return getattr(torch.ops.mezzo, name).default


ROUND: Any = _define(
    "round_to_blocks(Tensor weight, int block, int axis, str name) -> Tensor",
    _round,
    lambda weight, block, axis, name: weight.new_empty(
        _size_in_blocks(weight.shape, block), dtype=torch.uint8
    ),
)
ROUND_ROWS: Any = _define(
    "round_to_rows(Tensor weight, int axis) -> Tensor",
    _round_rows,
    lambda weight, axis: weight.new_empty(_size_in_rows(weight.shape, axis), dtype=torch.uint8),
)


def _fake_floats(
    rounded: torch.Tensor, sizes: list[int], strides: list[int], axis: int, dtype: torch.dtype
) -> torch.Tensor:
    return torch.empty_strided(sizes, strides, dtype=dtype, device=rounded.device)


_DEQUANTIZING = "(Tensor rounded, int[] sizes, int[] strides, int axis, ScalarType dtype) -> Tensor"
DEQUANTIZE: Any = _define("dequantize_blocks" + _DEQUANTIZING, _dequantize, _fake_floats)
DEQUANTIZE_ROWS: Any = _define("dequantize_rows" + _DEQUANTIZING, _dequantize_rows, _fake_floats)
ROUNDINGS = (ROUND, ROUND_ROWS)


def storage_of(call: fx.Node) -> BlockStorage:
    """The storage of a weight that a call of one of `ROUNDINGS` rounds."""
    if call.target is ROUND_ROWS:
        _, axis = call.args
        assert isinstance(axis, int), "as `rounding_call` writes it"
        return _storage_in_rows(axis)
    _, block, axis, name = call.args
    assert isinstance(block, int) and isinstance(axis, int), "as `rounding_call` writes them"
    return _storage(block, axis, str(name))


def _storage_in_rows(axis: int) -> BlockStorage:
    return BlockStorage(
        bits=_BYTE_BITS,
        block=WHOLE_ROW,
        axis=axis,
        is_symmetric=True,
        scale_dtype=DType.BFLOAT16,
        form=BlockForm.FUSED,
    )


def _storage(block: int, axis: int, name: str) -> BlockStorage:
    return BlockStorage(
        bits=_BITS,
        block=block,
        axis=axis,
        scale_dtype=DType.BFLOAT16,
        rounding=name,
        form=BlockForm.FUSED,
    )


def rounding_call(weight: Any, storage: BlockStorage) -> tuple[Any, tuple[Any, ...]]:
    """The operator that rounds a weight, and its arguments."""
    if storage.bits == _BYTE_BITS:
        return ROUND_ROWS, (weight, storage.axis)
    return ROUND, (weight, storage.block, storage.axis, storage.rounding)


def dequantizer(storage: BlockStorage) -> Any:
    """The operator that dequantizes a rounded weight."""
    return DEQUANTIZE_ROWS if storage.bits == _BYTE_BITS else DEQUANTIZE


def dequantizing_call(
    rounded: fx.Node, weight: torch.Tensor, storage: BlockStorage
) -> tuple[Any, tuple[Any, ...]]:
    """The operator that dequantizes a rounded weight, and its arguments."""
    sizes, strides = list(weight.shape), list(weight.stride())
    return dequantizer(storage), (rounded, sizes, strides, storage.axis, torch.bfloat16)
