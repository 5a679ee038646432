"""Write models atomically: payloads are streamed from their source, rounded and written."""

import io
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import onnx
from google.protobuf.message import EncodeError  # type: ignore[import-untyped]

from mezzo.common.errors import ContractError, InputError, ModelError
from mezzo.common.message_style import setting
from mezzo.common.safe_paths import check_destination
from mezzo.common.staging import Staging
from mezzo.contracts.frontend import Progress
from mezzo.onnx.files import wire
from mezzo.onnx.files.blobs import Blob, Blobs, Stored
from mezzo.onnx.files.files import MAX_MESSAGE_BYTES, ModelSource
from mezzo.onnx.files.layout import FileLayout
from mezzo.onnx.files.paths import quote
from mezzo.onnx.protos.rounding import Array

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

# Chunks in conversion while the next is read.
_AHEAD = 2
# Default suffix of the external data file, after the model file's name.
DATA_SUFFIX = ".data"

ByteProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Saved:
    """Written files, the model first, and their size."""

    paths: tuple[Path, ...]
    size_bytes: int


def save(
    model: onnx.ModelProto,
    source: ModelSource,
    dst: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    data_suffix: str = DATA_SUFFIX,
    progress: ByteProgress | None = None,
) -> Saved:
    """Write a model whose tensors may refer to payloads of `source`, atomically.

    Large tensors become external data as in the source, and where one file cannot hold them.
    `overwrite` lets the result replace the source's own files. `data_suffix` follows the file's
    name in the name of its external data. `progress` gets (bytes done, bytes in all).

    Raises:
        InputError: the place cannot be written, or is the input's.
        ModelError: a payload cannot be read.
    """
    path = Path(dst)
    data_path = path.with_name(path.name + data_suffix)
    check_destination(path)
    layout, rope = _lay_out(model, source, data_path.name)
    paths = (path, data_path) if layout.payloads.pieces else (path,)
    for written in paths[1:]:
        check_destination(written)
    if not overwrite:
        for written in paths:
            _check_not_source(written, source)
    total = rope.size_bytes + layout.payloads.size_bytes
    try:
        _check_space(path, total)
        with Staging() as staging, _start_worker() as pool:
            writer = _Writer(source.blobs, pool, total, progress)
            for written in paths[1:]:
                with staging.create(written) as sink:
                    writer.write(layout.payloads, layout.data, sink)
            with staging.create(path) as sink:
                writer.write(rope, layout.data, sink)
            staging.commit()
    except OSError as error:
        raise InputError(
            f"cannot write {quote(path)}: {error.strerror or error}; nothing was changed"
        ) from error
    return Saved(paths, total)


def file_bytes(model: onnx.ModelProto, source: ModelSource) -> int:
    """Size of a model as `save` would write it. Raises ModelError: a payload cannot be read."""
    layout, rope = _lay_out(model, source, DATA_SUFFIX)
    return rope.size_bytes + layout.payloads.size_bytes


def _lay_out(
    model: onnx.ModelProto, source: ModelSource, data_name: str
) -> tuple[FileLayout, wire.Rope]:
    data = _serialize(model)
    with _telling_damage(source.blobs):
        layout = FileLayout(source.blobs, data, data_name)
        rope = layout.inline()
    if source.is_external or rope.size_bytes > MAX_MESSAGE_BYTES:
        rope = layout.external()
    return layout, rope


class OnnxStore:
    """Writes models converted from one source. `data_suffix` ends the name of their data file."""

    def __init__(self, source: ModelSource, progress: Progress | None) -> None:
        self._source, self._progress = source, progress
        self.data_suffix = _find_data_suffix(source)

    @property
    def companions(self) -> Sequence[str]:
        return [file.path for file in self._source.files[1:]]

    def write(
        self, result: onnx.ModelProto, dst: str | os.PathLike[str], *, overwrite: bool
    ) -> int:
        progress = None if self._progress is None else partial(self._progress, "writing")
        saved = save(
            result, self._source, dst, overwrite=overwrite, data_suffix=self.data_suffix,
            progress=progress
        )  # fmt: skip
        return saved.size_bytes

    @staticmethod
    def load(path: Path) -> onnx.ModelProto:
        return onnx.load(os.fspath(path))


def _find_data_suffix(source: ModelSource) -> str:
    """Suffix of the source's data file, as Hugging Face tools expect model.onnx_data."""
    named = {os.path.basename(file.path) for file in source.files[1:]}
    return (
        "_data" if source.path is not None and f"{source.path.name}_data" in named else DATA_SUFFIX
    )


def materialize(model: onnx.ModelProto, blobs: Blobs) -> onnx.ModelProto:
    """Return a copy of a model with all payloads embedded.

    Raises:
        ContractError: it would pass protobuf's limit of 2 GB.
    """
    with _telling_damage(blobs):
        layout = FileLayout(blobs, _serialize(model), "")
        rope = layout.inline()
    if rope.size_bytes > MAX_MESSAGE_BYTES:
        raise ContractError(
            f"the result has {rope.size_bytes} bytes, a model in memory holds {MAX_MESSAGE_BYTES};"
            " write it to a file"
        )
    sink = io.BytesIO()
    with _start_worker() as pool:
        _Writer(blobs, pool, rope.size_bytes, None).write(rope, layout.data, sink)
    filled = onnx.ModelProto()
    filled.ParseFromString(sink.getbuffer())
    return filled


@contextmanager
def without_payloads(model: onnx.ModelProto, blobs: Blobs) -> Iterator[str]:
    """Yield the path of a temporary model file for the ONNX checker, without payloads of `blobs`.

    Each such tensor is external, at an empty file: the checker wants that file to exist and does
    not read it.
    """
    with TemporaryDirectory(prefix="mezzo-") as folder:
        Path(folder, blobs.token).touch()
        path = Path(folder, "model.onnx")
        path.write_bytes(_serialize(model))
        yield str(path)


@contextmanager
def _telling_damage(blobs: Blobs) -> Iterator[None]:
    """Turn a WireError into a ModelError, as protobuf accepts messages that wire.py rejects."""
    try:
        yield
    except wire.WireError as error:
        raise ModelError(f"{blobs.name} is damaged: found {error}; get the file again") from error


def _serialize(model: onnx.ModelProto) -> bytes:
    try:
        data: bytes = model.SerializeToString()
    except (EncodeError, ValueError) as error:
        if model.ByteSize() <= MAX_MESSAGE_BYTES:
            raise MemoryError("a message of protobuf finds no memory") from error
        raise InputError(
            f"the model without its large weights passes protobuf's limit of {MAX_MESSAGE_BYTES}"
            " bytes; pass a path instead of a model in memory"
        ) from error
    return data


def _start_worker() -> "Executor":
    """The thread that rounds pieces."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(1)


def _check_not_source(path: Path, source: ModelSource) -> None:
    try:
        status = os.stat(path)
    except OSError:
        return
    if (status.st_dev, status.st_ino) in {file.identity for file in source.files}:
        raise InputError(
            f"{quote(path)} belongs to the input model; name another file, or pass"
            f" {setting('overwrite', True)}"
        )


def _check_space(path: Path, wanted_bytes: int) -> None:
    free_bytes = shutil.disk_usage(path.parent).free
    if free_bytes < wanted_bytes:
        raise InputError(
            f"cannot write {quote(path)}: it needs {wanted_bytes} bytes, the disk has {free_bytes}"
            " left; make room"
        )


class _Writer:
    """Writes ropes and payloads. `pool` rounds one piece while the next is read and the last is
    written.
    """

    def __init__(
        self, blobs: Blobs, pool: "Executor", total_bytes: int, progress: ByteProgress | None
    ) -> None:
        self._blobs = blobs
        self._pool = pool
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._progress = progress

    def write(self, rope: wire.Rope, data: wire.Bytes, sink: BinaryIO) -> None:
        for piece in rope.pieces:
            match piece:
                case wire.Span(start, stop):
                    self._put(data.read(start, stop - start), sink)
                case wire.Payload(Stored() as stored, size_bytes):
                    self._put_stored(stored, size_bytes, sink)
                case bytes():
                    self._put(piece, sink)
                case _:
                    raise AssertionError(f"{piece!r} has no place in a model")

    def _put(self, data: bytes | memoryview, sink: BinaryIO) -> None:
        sink.write(data)
        self._done_bytes += len(data)
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes)

    def _put_stored(self, stored: Stored, size_bytes: int, sink: BinaryIO) -> None:
        before = self._done_bytes
        pieces = self._chunks(self._blobs.blobs[stored.blob], stored)
        for chunk in pieces if stored.blocks is None else stored.blocks.join(pieces):
            self._put(chunk.view(np.uint8).data, sink)
        assert self._done_bytes - before == size_bytes, (
            "a payload has another size than was laid out"
        )

    def _chunks(self, blob: Blob, stored: Stored) -> Iterator[Array]:
        """Yield a payload in converted chunks."""
        if stored.keeps(blob):
            yield from self._blobs.read_chunks(blob)
            return
        pending: deque[Future[Array]] = deque()
        start = 0
        for chunk in self._blobs.read_pieces(stored, buffers=_AHEAD + 1):
            pending.append(self._pool.submit(stored.convert, chunk, start))
            start += chunk.size
            if len(pending) == _AHEAD:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
