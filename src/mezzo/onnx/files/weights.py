"""The numbers of large weights as arrays that lie in files, so that all who run a model share one
copy.

A payload that a file of the model holds as it is wanted is mapped where it lies. Any other is
written once, piece by piece, into a temporary file that has no name, so that nothing is left behind
however the process ends. Maps are read-only. What cannot be helped: a file of the model that is cut
short while it is mapped ends the process.
"""

import copy
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import IO

import numpy as np
import onnx

from mezzo.common.errors import InputError, ModelError
from mezzo.common.machine import find_temporary_folder
from mezzo.onnx.files.blobs import CHUNK_BYTES, Blob, Blobs, FileRange, Stored
from mezzo.onnx.files.paths import DataFile, quote
from mezzo.onnx.protos.rounding import STORAGE, Array

# Runtimes sum unaligned data in another order, so results would differ.
_ALIGNMENT_BYTES = 64
# Temporary files are this large and mapped whole, so that many weights share few files.
_EXTENT_BYTES = 1 << 30
# Every map uses a file descriptor, of which a process has some hundreds.
_MOST_MAPS = 64


class Weights:
    """Memory-mapped weights of a model and of models converted from it. Not thread-safe."""

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs
        self.moved: Mapping[str, Array] = {}
        self._maps: dict[DataFile, mmap.mmap] = {}
        self._kept: dict[Stored, Array] = {}
        # Trial weights of corrections and calibration: freed with the last reference.
        self._passing: weakref.WeakValueDictionary[Stored, Array] = weakref.WeakValueDictionary()
        self._spill, self._passing_spill = _Spill(), _Spill()

    def array(self, tensor: onnx.TensorProto) -> Array:
        """Values of a marked tensor, in its shape, read-only.

        Raises:
            InputError: a file changed, or the disk is full.
            ModelError: the payload does not fit its tensor, or cannot be read.
        """
        stored = self.blobs.marker(tensor)
        flat = self._kept.get(stored)
        if flat is None:
            flat = self._passing.get(stored)
        if flat is None:
            blob = self.blobs.blob(tensor, stored)
            is_quantized = stored.quantized is not None or stored.blocks is not None
            is_passing = blob.factors is not None or is_quantized
            if is_passing:
                flat = self._passing[stored] = self._write(tensor, stored, self._passing_spill)
            else:
                flat = self._mapped(blob, stored)
                if flat is None:
                    flat = self._write(tensor, stored, self._spill)
                self._kept[stored] = flat
        return flat.reshape(tuple(tensor.dims))

    def with_moved(self, moved: Mapping[str, Array]) -> "Weights":
        """A copy in which these arrays replace initializers of the main graph, by name."""
        result = copy.copy(self)
        result.moved = moved
        return result

    def move(self, tensor: onnx.TensorProto, move: Callable[[Array], Array]) -> Array:
        """Apply `move` to flat chunks of a marked tensor; return the result as a new mapped array.

        Releases the original's pages, as both are never run together.
        """
        array = self.array(tensor)
        flat, step = array.reshape(-1), CHUNK_BYTES // array.itemsize
        pieces = (
            np.ascontiguousarray(move(flat[start : start + step]))
            for start in range(0, flat.size, step)
        )
        moved = self._passing_spill.write(pieces, array.dtype, array.size).reshape(array.shape)
        let_go(array)
        return moved

    def keep(self, array: Array) -> Array:
        """Write a computed array to disk; return it flat and memory-mapped."""
        return self._spill.write([array], array.dtype, array.size)

    def _write(self, tensor: onnx.TensorProto, stored: Stored, spill: "_Spill") -> Array:
        elements = stored.elements(self.blobs.blobs[stored.blob])
        return spill.write(self.blobs.chunks(tensor), STORAGE[stored.dtype], elements)

    def _mapped(self, blob: Blob, stored: Stored) -> Array | None:
        """Map the payload in its source file; None if it needs conversion or is not aligned."""
        if stored.keeps(blob) and isinstance(blob.origin, np.ndarray):
            return blob.origin
        if (
            not stored.keeps(blob)
            or not isinstance(blob.origin, FileRange)
            or blob.origin.offset % _ALIGNMENT_BYTES
        ):
            return None
        mapped = self._map(blob.origin.file)
        return (
            None
            if mapped is None
            else np.frombuffer(mapped, STORAGE[blob.dtype], blob.elements, blob.origin.offset)
        )

    def _map(self, file: DataFile) -> mmap.mmap | None:
        """Map a checked file by its open handle; None at the limit of maps or if mapping fails."""
        mapped_file = self._maps.get(file)
        if mapped_file is None and len(self._maps) < _MOST_MAPS:
            handle = self.blobs.files.handle(file)
            try:
                mapped_file = mmap.mmap(handle.fileno(), file.size_bytes, access=mmap.ACCESS_READ)
            except (
                OSError,
                ValueError,
            ) as error:  # the file is shorter now, or its disk cannot be mapped
                if os.fstat(handle.fileno()).st_size < file.size_bytes:
                    raise ModelError(
                        f"{quote(file.path)} became shorter while it was read; get it again"
                    ) from error
                return None
            self._maps[file] = mapped_file
        return mapped_file


class _Spill:
    """Writes arrays to anonymous temporary files. A file is freed with its last array."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None
        self._extent: mmap.mmap | None = None
        self._end = 0

    def write(
        self, pieces: Iterable[Array], storage: "np.dtype[np.generic]", elements: int
    ) -> Array:
        """Write chunks; return a flat mapped array. Raises InputError if the disk is full."""
        size_bytes = elements * storage.itemsize
        with telling_room(size_bytes, "weights"):
            file, extent, start = self._room(size_bytes)
            file.seek(start)
        for piece in pieces:
            data = piece.reshape(-1).view(np.uint8).data
            with telling_room(size_bytes, "weights"):
                write_all(file, data)
        assert file.tell() - start == size_bytes, "a payload has another size than its tensor"
        return np.frombuffer(extent, storage, elements, start)

    def _room(self, size_bytes: int) -> tuple[IO[bytes], mmap.mmap, int]:
        """A file with space for `size_bytes`, its map, and the offset."""
        if self._file is None or self._extent is None or self._end + size_bytes > len(self._extent):
            length = max(_EXTENT_BYTES, size_bytes)
            self._file = nameless_file()
            os.ftruncate(self._file.fileno(), length)  # sparse: uses disk space only when written
            self._extent, self._end = (
                mmap.mmap(self._file.fileno(), length, access=mmap.ACCESS_READ),
                0,
            )
        start = self._end
        self._end += math.ceil(size_bytes / _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        return self._file, self._extent, start


def let_go(array: Array) -> None:
    """Release the pages of a memory-mapped array; the system rereads them on access."""
    whole: object = array
    while isinstance(whole, np.ndarray):
        whole = whole.base
    if isinstance(whole, memoryview):
        whole = whole.obj
    if not isinstance(whole, mmap.mmap) or not hasattr(whole, "madvise") or not array.size:
        return
    begin = array.ctypes.data - np.frombuffer(whole, np.uint8).ctypes.data
    start = begin - begin % mmap.PAGESIZE  # neighbours on the same page are reread too
    whole.madvise(mmap.MADV_DONTNEED, start, begin + array.nbytes - start)


def let_all_go(arrays: Iterable[Array]) -> None:
    """Release the pages of several arrays."""
    for array in arrays:
        let_go(array)


def nameless_file() -> IO[bytes]:
    """An anonymous temporary file, removed with its last reference or with the process."""
    return tempfile.TemporaryFile(prefix="mezzo-", buffering=0, dir=find_temporary_folder())


def write_all(file: IO[bytes], data: memoryview) -> None:
    """Write all bytes to an unbuffered file, whose writes may be partial."""
    while data:
        data = data[file.write(data) :]


@contextmanager
def telling_room(size_bytes: int, what: str) -> Iterator[None]:
    """Turn an OSError of a write inside the context into an InputError about disk space."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {size_bytes} bytes of {what} to the temporary folder"
            f" {quote(find_temporary_folder())}: {error.strerror}; make room there, or name another"
            " folder in the environment variable TMPDIR"
        ) from error
