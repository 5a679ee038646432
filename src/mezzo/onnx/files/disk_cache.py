"""Values that wait on the disk between segments of a model, in temporary files without names.

What one segment makes lies in one file, which goes with the last value in it that somebody still wants. Values are read
back as maps, so that they take no memory that the system could not take back.
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
    """A tensor that waits: its element type, as ONNX numbers it, its shape, and where its bytes are: in memory, or in a
    file from an offset on.
    """

    element: int
    shape: tuple[int, ...]
    held: bytes | tuple[IO[bytes], int]

    def array(self) -> Array:
        """The tensor, not to be written to. It takes no memory of its own where it lies in a file."""
        storage = storage_of(self.element)
        assert storage is not None, "only such tensors wait"
        count = math.prod(self.shape)
        if isinstance(self.held, bytes):
            # Engines sum in another order where numbers are not aligned.
            return _aligned(self.held).view(storage).reshape(self.shape)
        file, offset = self.held
        mapped = mmap.mmap(file.fileno(), count * storage.itemsize, access=mmap.ACCESS_READ, offset=offset)
        return np.frombuffer(mapped, storage, count).reshape(self.shape)


class SpillFile:
    """Takes in what one segment makes."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._end = 0
        self.written_bytes = 0

    def keep(self, value: Any) -> Waiting:
        """Let a tensor of ONNX Runtime wait, which is not needed afterwards. Raises InputError: the disk is full."""
        element, shape = value.element_type(), tuple(value.shape())
        storage = storage_of(element)
        assert storage is not None, "only such tensors wait"
        size_bytes = math.prod(shape) * storage.itemsize
        if size_bytes < _LEAST_BYTES:
            return Waiting(element, shape, ctypes.string_at(value.data_ptr(), size_bytes) if size_bytes else b"")
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
    """How numpy holds numbers of an element type a byte or more wide each; None for all others."""
    dtype = FROM_ONNX.get(element)
    return None if dtype is None else STORAGE.get(dtype)


def _aligned(held: bytes) -> Array:
    room = np.empty(len(held) + 64, np.uint8)
    start = -room.ctypes.data % 64
    room[start : start + len(held)] = np.frombuffer(held, np.uint8)
    return room[start : start + len(held)]
