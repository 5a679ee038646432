"""Safe reader of untrusted .npz and .npy files: no pickle, and no allocation before a header is
verified. Writer of .npz files.

Member names are array names, never paths: nothing is extracted to disk.
"""

import io
import itertools
import json
import math
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError, MezzoError
from mezzo.common.file_kinds import ZIP_ARCHIVE, detect_kind
from mezzo.common.name_matching import aside, did_you_mean
from mezzo.common.safe_paths import open_regular

Array = npt.NDArray[Any]

SIZE_CAP_BYTES = 4 * 2**30
# A byte of deflate expands to at most 1032 (zlib's technical details); a member that claims more is
# forged.
_DEFLATE_RATIO = 1032
# Limit on an archive's directory, some 50,000 arrays: Python uses a kilobyte per 50-byte entry.
_MOST_DIRECTORY_BYTES = 4 << 20
_SUFFIX = ".npy"
_MOST_NEIGHBOURS = 1000
_KINDS = "biufcSU"
_PIECE_BYTES = 1 << 20
_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True, slots=True)
class Header:
    """Shape, memory order and dtype that a member's header declares."""

    shape: tuple[int, ...]
    is_fortran: bool
    dtype: np.dtype[Any]


class _Archive(io.BufferedReader):
    """A file that refuses zipfile's read of an oversized directory."""

    is_open = False

    def read(self, size: int | None = -1, /) -> bytes:
        if not self.is_open and size is not None and size > _MOST_DIRECTORY_BYTES:
            raise ValueError(
                f"its directory has {size} bytes, and at most {_MOST_DIRECTORY_BYTES} are read"
            )
        return super().read(size)


class NpzFile:
    """An .npz file open for reading. `names`: its arrays in file order."""

    def __init__(self, path: Path) -> None:
        """Open the file and read its directory. Raises InputError: it is not a valid .npz file."""
        self.path = path
        with _saying(str(path)), ExitStack() as failing:
            self._file = failing.enter_context(_Archive(open_regular(path)[0]))
            try:
                self._zip = zipfile.ZipFile(self._file)
                self._file.is_open = True
            except zipfile.BadZipFile as error:
                _refuse_stranger(path, error)
                raise
            failing.pop_all()
        members = self._zip.infolist()
        strangers = [member.filename for member in members if not member.filename.endswith(_SUFFIX)]
        names = [member.filename.removesuffix(_SUFFIX) for member in members]
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if strangers or twice:
            self.close()
        if strangers:
            _refuse_stranger(path, None)
            raise InputError(
                f"{path}: member {strangers[0]!r} is no .npy array; write the file with numpy.savez"
            )
        if twice:
            raise InputError(f"{path}: array {twice[0]!r} is there more than once; keep one")
        self._members = dict(zip(names, members, strict=True))
        self.names: tuple[str, ...] = tuple(self._members)

    @property
    def checksums(self) -> tuple[tuple[str, int, int], ...]:
        """Name, CRC and size of each array, from the directory; reading verifies them."""
        return tuple((name, member.CRC, member.file_size) for name, member in self._members.items())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def read(self, name: str) -> Array:
        """Read one array. Raises InputError: damaged, of an unsupported type, or too large."""
        with _saying(f"{self.path}: array {name!r}"), self._open(name) as (stream, header):
            return _read_values(stream, header, header.shape)

    def header(self, name: str) -> Header:
        """Read a member's header. Errors are those of `read`, except for the size cap."""
        with _saying(f"{self.path}: array {name!r}"), self._open(name) as (_, header):
            return header

    def read_rows(self, name: str, lengths: Sequence[int]) -> Iterator[Array]:
        """Read one array in runs of rows, one run in memory at a time if it is in C order."""
        with _saying(f"{self.path}: array {name!r}"), self._open(name) as (stream, header):
            yield from _read_runs(stream, header, lengths)

    @contextmanager
    def _open(self, name: str) -> Iterator[tuple[IO[bytes], Header]]:
        member = self._members[name]
        with self._zip.open(member) as stream:
            header = _read_header(stream)
            found_bytes = member.file_size - stream.tell()
            wanted_bytes = math.prod(header.shape) * header.dtype.itemsize
            if found_bytes != wanted_bytes or member.file_size > _DEFLATE_RATIO * (
                member.compress_size + 64
            ):
                raise InputError(
                    f"{self.path}: array {name!r}: the header says {_spell(header)}, {wanted_bytes}"
                    f" bytes, and the file holds {found_bytes} in {member.compress_size}; it is"
                    " damaged, write it again"
                )
            yield stream, header


class NpyFile:
    """An .npy file open for reading: one array, whose name is the file's without its suffix."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises InputError: it is not a valid .npy file."""
        self.path = path
        self.names: tuple[str, ...] = (path.stem,)
        with _saying(str(path)):
            file, status = open_regular(path)
            self._file, self._size_bytes = io.BufferedReader(file), status.st_size

    @property
    def checksums(self) -> tuple[tuple[str, int, int], ...]:
        """No name, the CRC and the size of the file, which is read."""
        with _saying(str(self.path)):
            self._file.seek(0)
            crc = 0
            while piece := self._file.read(_PIECE_BYTES):
                crc = zlib.crc32(piece, crc)
        return (("", crc, self._size_bytes),)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def header(self, name: str) -> Header:
        """Read the header. Errors are those of `read`, except for the size cap."""
        with _saying(str(self.path)):
            self._file.seek(0)
            head = self._file.peek(len(_MAGIC))
            if head and not head.startswith(_MAGIC):
                _refuse_stranger(self.path, None)
            header = _read_header(self._file)
            found_bytes = self._size_bytes - self._file.tell()
            wanted_bytes = math.prod(header.shape) * header.dtype.itemsize
            if found_bytes != wanted_bytes:
                raise InputError(
                    f"{self.path}: the header says {_spell(header)}, {wanted_bytes} bytes, and the"
                    f" file holds {found_bytes}; it is damaged, write it again"
                )
            return header

    def read(self, name: str) -> Array:
        """Read the array. Raises InputError: damaged, of an unsupported type, or too large."""
        header = self.header(name)
        with _saying(str(self.path)):
            return _read_values(self._file, header, header.shape)

    def read_rows(self, name: str, lengths: Sequence[int]) -> Iterator[Array]:
        """Read the array in runs of rows, one run in memory at a time if it is in C order."""
        header = self.header(name)
        with _saying(str(self.path)):
            yield from _read_runs(self._file, header, lengths)


def pack(name: str, document: Mapping[str, object], arrays: Mapping[str, Array]) -> bytes:
    """The content of an .npz file with these arrays, and a JSON document as array `name`."""
    text = np.frombuffer(json.dumps(document).encode(), np.uint8)
    content = io.BytesIO()
    # The type stub knows no keyword arrays, only numpy's own options.
    np.savez_compressed(content, **{name: text}, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def pack_arrays(arrays: Mapping[str, Array]) -> bytes:
    """The content of an .npz file with these arrays, whatever their names."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}{_SUFFIX}", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return content.getvalue()


def _refuse_stranger(path: Path, cause: Exception | None) -> None:
    """Raises InputError: the file is recognized as another kind."""
    kind = detect_kind(path)
    description = (
        kind.what
        if kind is not None
        else "an ONNX model"
        if path.suffix.lower() == ".onnx"
        else None
    )
    is_npz = path.suffix.lower() == ".npz" and (cause is not None or kind is ZIP_ARCHIVE)
    if description is None or is_npz:
        return
    raise InputError(
        f"{path}: is {description}, not an .npz file; data is an array for each input by its name: "
        "numpy.savez('FILE.npz', NAME=array)"
    ) from cause


@contextmanager
def _saying(where: str) -> Iterator[None]:
    """Turn any error into a one-line InputError: damaged files make zipfile raise many kinds."""
    try:
        yield
    except (MezzoError, GeneratorExit):
        raise
    except FileNotFoundError as error:
        name = Path(where).name
        near = [
            file.name
            for file in itertools.islice(Path(where).parent.glob("*.npz"), _MOST_NEIGHBOURS)
        ]
        suggestion = aside(did_you_mean(name, sorted(near), 1))
        raise InputError(
            f"{where}: no such file{suggestion}; give an .npz file or a folder of them"
        ) from error
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise InputError(
            f"{where}: cannot be read ({reason}); write it with numpy.savez"
        ) from error


def _read_header(stream: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(stream)
    if version == (1, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    elif version == (2, 0):
        shape, is_fortran, dtype = np.lib.format.read_array_header_2_0(stream)
    else:
        raise ValueError(f"version {version} of the .npy format is only for structured types")
    if dtype.hasobject:
        raise ValueError(
            "it holds pickled Python objects, which are never loaded; store numbers or text"
        )
    if dtype.kind not in _KINDS or dtype.itemsize == 0:
        raise ValueError(
            f"numbers of type {dtype} cannot be fed; store bfloat16 as float32, others as plain"
            " numbers"
        )
    if any(length < 0 for length in shape):
        raise ValueError(f"its shape {shape} is negative")
    return Header(shape, is_fortran, dtype)


def _read_values(stream: IO[bytes], header: Header, shape: tuple[int, ...]) -> Array:
    size_bytes = math.prod(shape) * header.dtype.itemsize
    if size_bytes > SIZE_CAP_BYTES:
        raise ValueError(
            f"{size_bytes} bytes at once are more than {SIZE_CAP_BYTES}; split it into batches or"
            " several files"
        )
    array = np.empty(shape, header.dtype, order="F" if header.is_fortran else "C")
    if size_bytes:
        view = array.ravel(order="K").view(np.uint8).data
        done = 0
        while done < size_bytes:
            # readinto exists on every zip stream; typeshed promises it for raw files only.
            count = stream.readinto(view[done:])  # type: ignore[attr-defined]
            if not count:
                raise EOFError(f"it ends after {done} of {size_bytes} bytes")
            done += count
    if header.dtype.kind == "U":
        array.tolist()  # raises on invalid Unicode
    return array.astype(header.dtype.newbyteorder("="), copy=False)


def _read_runs(stream: IO[bytes], header: Header, lengths: Sequence[int]) -> Iterator[Array]:
    if header.is_fortran:
        whole = _read_values(stream, header, header.shape)
        for end, length in zip(itertools.accumulate(lengths), lengths, strict=True):
            yield whole[end - length : end]
        return
    for length in lengths:
        yield _read_values(stream, header, (length, *header.shape[1:]))


def _spell(header: Header) -> str:
    return f"{header.dtype}[{','.join(map(str, header.shape))}]"
