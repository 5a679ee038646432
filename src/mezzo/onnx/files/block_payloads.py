"""Weights as low-bit integers in blocks: integers, scales and zero points computed from a flat
payload in pieces.
"""

import enum
import hashlib
import json
import math
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mezzo.common.errors import ContractError
from mezzo.contracts.rounding import RoundedBlocks, Rounding
from mezzo.formats.block_storage import BlockForm, BlockStorage
from mezzo.formats.dtypes import DType, size_bits, storage_span
from mezzo.onnx.protos.rounding import STORAGE, Array, round_to
from mezzo.plugins.discovery import rounding

# Blocks whose grids are kept for the other parts of their weight, five bytes each.
_MOST_KEPT = 1 << 24


class BlockPart(enum.Enum):
    """What of a weight in blocks a tensor has. TABLE: the integers as GatherBlockQuantized reads
    them, of the fused form alone. FLOATS: the dequantized elements, FP32;
    products on integers do not round them to the type of the scales.
    """

    INTEGERS = "integers"
    SCALES = "scales"
    ZERO_POINTS = "zero_points"
    TABLE = "table"
    FLOATS = "floats"


@dataclass(frozen=True, slots=True)
class BlockPayload:
    """One part of a weight of shape `shape` that is stored in blocks."""

    storage: BlockStorage
    shape: tuple[int, ...]
    part: BlockPart

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of the part."""
        has_all = self.part in (BlockPart.INTEGERS, BlockPart.FLOATS)
        return self.shape if has_all else self.storage.blocks_shape(self.shape)

    @property
    def dtype(self) -> DType:
        """Element type of the part."""
        match self.part:
            case BlockPart.SCALES:
                return self.storage.scale_dtype
            case BlockPart.FLOATS:
                return DType.FLOAT32
        return self.storage.dtype

    @property
    def _inner(self) -> int:
        """Number of consecutive elements at one position of the axis."""
        return math.prod(self.shape[self.storage.axis + 1 :])

    @property
    def _length(self) -> int:
        """Positions of the axis that hold whole blocks: one block, or the axis if its last block is
        shorter.
        """
        length, block = self.shape[self.storage.axis], self.storage.block
        return block if length % block == 0 else length

    @property
    def unit(self) -> int:
        """Pieces of the payload have a multiple of this many elements, so that each holds whole
        blocks, and whole bytes of every part.
        """
        blocks = -(-self._length // self.storage.block) * self._inner
        elements = self._length * self._inner
        return elements if blocks % 2 == 0 and elements % 2 == 0 else 2 * elements

    def convert(self, numbers: Array) -> Array:
        """This part of a flat piece, flat; types of less than a byte are packed."""
        length, inner, block = self._length, self._inner, self.storage.block
        count = -(-length // block)
        whole = np.zeros((numbers.size // (length * inner), count * block, inner), np.float32)
        whole[:, :length] = numbers.reshape(-1, length, inner)
        blocks = whole.reshape(-1, count, block, inner).transpose(0, 1, 3, 2).reshape(-1, block)
        match self.part:
            case BlockPart.SCALES:
                return round_to(_recent.grids(blocks, self.storage)[0], self.storage.scale_dtype)
            case BlockPart.ZERO_POINTS:
                return _pack(_recent.grids(blocks, self.storage)[1], self.dtype)
        rounded = _recent.round(blocks, self.storage)
        values: Array = rounded.integers
        if self.part is BlockPart.FLOATS:
            steps = (rounded.integers - rounded.zero_points[:, None]).astype(np.float32)
            values = steps * rounded.scales[:, None]
            if self.storage.form is BlockForm.DEQUANTIZE:
                values = round_to(round_to(values, self.storage.scale_dtype), DType.FLOAT32)
        laid = values.reshape(-1, count, inner, block).transpose(0, 1, 3, 2)
        flat = laid.reshape(-1, count * block, inner)[:, :length].reshape(-1)
        return flat if self.part is BlockPart.FLOATS else _pack(flat, self.dtype)

    def join(self, pieces: Iterable[Array]) -> Iterator[Array]:
        """The part in order, from its converted pieces."""
        yield from pieces

    def to_text(self) -> str:
        """Serialize it for a marker; `read_block_payload` parses it."""
        storage = self.storage
        return json.dumps(
            [
                storage.bits,
                storage.block,
                storage.axis,
                storage.is_symmetric,
                storage.scale_dtype.value,
                storage.rounding,
                storage.form.value,
                storage.accuracy_level,
                self.shape,
                self.part.value,
            ]
        )


class RowPayload(BlockPayload):
    """One part of a matrix that is stored in blocks as MatMulNBits and GatherBlockQuantized read
    it: by rows of whole bytes, in which the blocks along the axis follow each other. Integers and
    zero points are unsigned. Integers have the shape [rows, blocks, bytes], where the last block is
    filled up with zero points; scales [rows, blocks]; zero points [rows, bytes]; a table, with
    rows of whole bytes without filling, [rows, bytes].
    """

    __slots__ = ()

    @property
    def part_shape(self) -> tuple[int, ...]:
        bits, (rows, blocks) = self.storage.bits, self._counts
        match self.part:
            case BlockPart.INTEGERS:
                return rows, blocks, self.storage.block * bits // 8
            case BlockPart.SCALES:
                return rows, blocks
            case BlockPart.ZERO_POINTS:
                return rows, -(-blocks * bits // 8)
        return rows, self.shape[self.storage.axis] * bits // 8

    @property
    def dtype(self) -> DType:
        return self.storage.scale_dtype if self.part is BlockPart.SCALES else DType.UINT8

    @property
    def _counts(self) -> tuple[int, int]:
        """Rows, and blocks of a row."""
        length, block = self.shape[self.storage.axis], self.storage.block
        return self.shape[1 - self.storage.axis], -(-length // block)

    @property
    def unit(self) -> int:
        """A row; of columns two blocks of each, whose zero points fill bytes."""
        return self.shape[1] * (1 if self.storage.axis else 2 * self.storage.block)

    def convert(self, numbers: Array) -> Array:
        block, matrix = self.storage.block, numbers.reshape(-1, self.shape[1])
        matrix = matrix if self.storage.axis else matrix.T
        rows, length = matrix.shape
        whole = np.zeros((rows, -(-length // block) * block), np.float32)
        whole[:, :length] = matrix
        blocks, offset = whole.reshape(-1, block), -storage_span(self.storage.dtype)[0]
        match self.part:
            case BlockPart.SCALES:
                return round_to(_recent.grids(blocks, self.storage)[0], self.storage.scale_dtype)
            case BlockPart.ZERO_POINTS:
                zeros = _recent.grids(blocks, self.storage)[1].reshape(rows, -1)
                return _pack_rows(zeros + offset, self.storage.bits)
        rounded = _recent.round(blocks, self.storage)
        integers = rounded.integers.reshape(rows, -1) + offset
        if self.part is BlockPart.TABLE:
            integers = integers[:, :length]
        return _pack_rows(integers, self.storage.bits)

    def join(self, pieces: Iterable[Array]) -> Iterator[Array]:
        """Rows in order. Pieces of a matrix whose blocks are along columns hold a part of each row,
        so the whole part is put together in memory.
        """
        if self.storage.axis:
            yield from pieces
            return
        rows, *lengths = self.part_shape
        result, start = np.empty((rows, math.prod(lengths)), STORAGE[self.dtype]), 0
        for piece in pieces:
            columns = piece.reshape(rows, -1)
            result[:, start : start + columns.shape[1]] = columns
            start += columns.shape[1]
        yield result.reshape(-1)


def block_payload_of(
    storage: BlockStorage, shape: Sequence[int], part: BlockPart, name: str
) -> BlockPayload:
    """One part of a weight in blocks. Raises ContractError: the weight has no such axis, or no
    element.
    """
    if not storage.axis < len(shape) or not math.prod(shape):
        raise ContractError(
            f"weight {name!r} cannot be stored in blocks along axis {storage.axis}: its shape is"
            f" {list(shape)}; name an axis of it"
        )
    return _new_payload(storage, tuple(shape), part)


def _new_payload(storage: BlockStorage, shape: tuple[int, ...], part: BlockPart) -> BlockPayload:
    has_rows = storage.form.is_fused and part is not BlockPart.FLOATS
    return (RowPayload if has_rows else BlockPayload)(storage, shape, part)


def read_block_payload(text: str) -> BlockPayload:
    """Parse the output of `to_text`."""
    bits, block, axis, is_symmetric, scale_dtype, name, form, level, shape, part = json.loads(text)
    storage = BlockStorage(
        bits=bits,
        block=block,
        axis=axis,
        is_symmetric=is_symmetric,
        scale_dtype=DType(scale_dtype),
        rounding=name,
        form=BlockForm(form),
        accuracy_level=level,
    )
    return _new_payload(storage, tuple(shape), BlockPart(part))


def in_units(pieces: Iterable[Array], unit: int) -> Iterator[Array]:
    """Flat pieces cut anew, into copies of a multiple of `unit` elements; the last has the rest."""
    waiting: list[Array] = []
    size = 0
    for piece in pieces:
        size += piece.size
        if size < unit:
            waiting.append(piece.copy())
            continue
        joined = np.concatenate([*waiting, piece])
        end = size - size % unit
        yield joined[:end]
        waiting, size = [joined[end:]], size - end
    if size:
        yield np.concatenate(waiting)


class _KeptGrids(NamedTuple):
    """Scales and zero points of blocks, [blocks], and the plug-in that chose them."""

    rounding: Rounding
    scales: Array
    zero_points: Array


class _RecentGrids:
    """Grids of blocks that were rounded last, by the blocks' content: the parts of a weight are
    written one after the other, each from the weight, and a search for grids takes far longer than
    a digest.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[object, _KeptGrids] = OrderedDict()
        self._count = 0

    def grids(self, blocks: Array, storage: BlockStorage) -> tuple[Array, Array]:
        """Scales and zero points, [blocks]."""
        key = _key_of(blocks, storage)
        kept = self._kept.get(key)
        if kept is None:
            rounded = self._search(key, blocks, storage)
            return rounded.scales, rounded.zero_points
        return kept.scales, kept.zero_points.astype(np.int32)

    def round(self, blocks: Array, storage: BlockStorage) -> RoundedBlocks:
        """Round blocks, and keep their grids."""
        key = _key_of(blocks, storage)
        kept = self._kept.get(key)
        if kept is None:
            return self._search(key, blocks, storage)
        zeros = kept.zero_points.astype(np.int32)
        integers = kept.rounding.round_on(blocks, storage, kept.scales, zeros)
        return RoundedBlocks(integers, kept.scales, zeros)

    def _search(self, key: object, blocks: Array, storage: BlockStorage) -> RoundedBlocks:
        rounded = _round(blocks, storage)
        smallest = np.int8 if storage_span(storage.dtype)[1] < 128 else np.uint8
        zeros = rounded.zero_points.astype(smallest)
        self._kept[key] = _KeptGrids(rounding(storage.rounding), rounded.scales, zeros)
        self._count += len(blocks)
        while self._count > _MOST_KEPT:
            self._count -= len(self._kept.popitem(last=False)[1].scales)
        return rounded


_recent = _RecentGrids()


def _key_of(blocks: Array, storage: BlockStorage) -> tuple[object, ...]:
    digest = hashlib.blake2b(np.ascontiguousarray(blocks).data, digest_size=16).digest()
    plug_in = rounding(storage.rounding)
    return digest, storage.dtype, storage.scale_dtype, id(plug_in), blocks.shape


def _round(blocks: Array, storage: BlockStorage) -> RoundedBlocks:
    """Round blocks with the plug-in of the storage. Raises ContractError: its result is not as
    `contracts.rounding` says.
    """
    rounded = rounding(storage.rounding).round(blocks, storage)
    integers, scales, zeros = map(np.asarray, rounded)
    low, high = storage_span(storage.dtype)
    fault = None
    if integers.shape != blocks.shape or {scales.shape, zeros.shape} != {blocks.shape[:1]}:
        fault = "arrays of other shapes than the blocks'"
    elif not (np.isfinite(scales) & (scales > 0)).all():
        fault = "scales that are not finite and above 0"
    elif min(integers.min(), zeros.min()) < low or max(integers.max(), zeros.max()) > high:
        fault = f"integers outside {low} to {high}"
    elif storage.is_symmetric and zeros.any():
        fault = "zero points other than 0 for symmetric storage"
    if fault is not None:
        raise ContractError(f"rounding {storage.rounding!r} returned {fault}; mend it")
    return rounded


def _pack(numbers: Array, dtype: DType) -> Array:
    """Integers as ONNX stores them: two of four bits to a byte, the first in its lower half."""
    if size_bits(dtype) == 8:
        return numbers.astype(STORAGE[dtype])
    halves = (numbers & 0xF).astype(np.uint8)
    if halves.size % 2:
        halves = np.append(halves, np.uint8(0))
    return halves[::2] | halves[1::2] << 4


def _pack_rows(numbers: Array, bits: int) -> Array:
    """Unsigned integers of shape [rows, elements], each row in whole bytes; flat."""
    if bits == 4 and numbers.shape[1] % 2:
        numbers = np.pad(numbers, ((0, 0), (0, 1)))
    return _pack(numbers.reshape(-1), DType.UINT4 if bits == 4 else DType.UINT8)
