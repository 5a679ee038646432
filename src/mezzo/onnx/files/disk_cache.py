"""Disk cache of tensors between segments of a model, in anonymous temporary files.

Each segment writes its outputs to one file, which is freed with the last reference to a value in
it. Values are read back memory-mapped, so the system can reclaim their pages.
"""

import ctypes
import math
import mmap
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from mezzo.onnx.files.weights import nameless_file, telling_room, write_all
from mezzo.onnx.protos.rounding import STORAGE, Array
from mezzo.onnx.schema.types import FROM_ONNX

# Less than this stays in memory.
_LEAST_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Waiting:
    """A cached tensor: ONNX element type, shape, and its bytes or a file and offset."""

    element: int
    shape: tuple[int, ...]
    held: bytes | tuple[IO[bytes], int]

    def array(self) -> Array:
        """The tensor, read-only; memory-mapped if it is in a file."""
        storage = storage_of(self.element)
        assert storage is not None, "only such tensors wait"
        count = math.prod(self.shape)
        if isinstance(self.held, bytes):
            # Runtimes sum unaligned data in another order, so results would differ.
            return _aligned(self.held).view(storage).reshape(self.shape)
        file, offset = self.held
        mapped = mmap.mmap(
            file.fileno(), count * storage.itemsize, access=mmap.ACCESS_READ, offset=offset
        )
        return np.frombuffer(mapped, storage, count).reshape(self.shape)


class SpillFile:
    """Cache file for the outputs of one segment."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0
        self.written_bytes = 0

    def keep(self, value: Any) -> Waiting:
        """Cache a tensor of ONNX Runtime. Raises InputError if the disk is full."""
        element, shape = value.element_type(), tuple(value.shape())
        storage = storage_of(element)
        assert storage is not None, "only such tensors wait"
        size_bytes = math.prod(shape) * storage.itemsize
        if size_bytes < _LEAST_BYTES:
            return Waiting(
                element,
                shape,
                ctypes.string_at(value.data_ptr(), size_bytes) if size_bytes else b"",
            )
        data = memoryview((ctypes.c_char * size_bytes).from_address(value.data_ptr())).cast("B")
        start = self._end
        with telling_room(size_bytes, "values"):
            if self._file is None:
                self._file = nameless_file()
            self._file.seek(start)
            write_all(self._file, data)
        self.written_bytes += size_bytes
        self._end += math.ceil(size_bytes / mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        return Waiting(element, shape, (self._file, start))


def storage_of(element: int) -> "np.dtype[Any] | None":
    """NumPy dtype of an ONNX element type; None for sub-byte and non-numeric types."""
    dtype = FROM_ONNX.get(element)
    return None if dtype is None else STORAGE.get(dtype)


def _aligned(data: bytes) -> Array:
    buffer = np.empty(len(data) + 64, np.uint8)
    start = -buffer.ctypes.data % 64
    buffer[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return buffer[start : start + len(data)]
