"""Path checks for external data of untrusted models; opens regular files only.

A model is not trusted: the place of its external data is a string in the file. It must lie in the
model's folder, after links are resolved, and must not be a hard link, which may show a file from
anywhere on the disk. Caches of model hubs store weights as links, so those can be allowed, for
names that stay inside the folder as written.
"""

import io
import os
import re
import weakref
from collections import OrderedDict
from dataclasses import dataclass

from mezzo.common.errors import InputError, ModelError
from mezzo.common.message_style import setting
from mezzo.common.safe_paths import open_regular
from mezzo.common.unsupported_files import advise_missing

_MAX_OPEN = 64
_MAX_QUOTED = 120


def quote(text: str | bytes | os.PathLike[str]) -> str:
    """Quote untrusted text on one line, truncated if long."""
    if isinstance(text, bytes):
        text = text.decode(errors="replace")
    text = os.fspath(text)
    return repr(text if len(text) <= _MAX_QUOTED else text[: _MAX_QUOTED - 1] + "…")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A checked regular file. Reading fails if the file was replaced or changed since."""

    path: str
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @property
    def identity(self) -> tuple[int, int]:
        return self.device, self.inode


def _inspect(path: str, *, follow: bool) -> tuple[DataFile, io.FileIO, int]:
    handle, status = open_regular(path, follow=follow)
    file = DataFile(
        path=path,
        device=status.st_dev,
        inode=status.st_ino,
        size_bytes=status.st_size,
        modified_ns=status.st_mtime_ns,
    )
    return file, handle, status.st_nlink


class Files:
    """LRU cache of open files, as a model may have one file per tensor."""

    def __init__(self) -> None:
        self._handles: OrderedDict[DataFile, io.FileIO] = OrderedDict()
        self._finalizer = weakref.finalize(self, _close_all, self._handles)

    def close(self) -> None:
        self._finalizer()

    def handle(self, file: DataFile) -> io.FileIO:
        """Return the open file, unbuffered. Its position is whatever the last reader left."""
        handle = self._handles.get(file)
        if handle is None:
            try:
                now, handle, _ = _inspect(file.path, follow=True)
            except OSError as error:
                raise InputError(
                    f"cannot read {quote(file.path)}: {error.strerror}; it was there before"
                ) from error
            if now != file:
                handle.close()
                raise InputError(
                    f"{quote(file.path)} changed while it was in use; read the model again"
                )
            self._keep(file, handle)
        self._handles.move_to_end(file)
        return handle

    def open_model(self, path: str) -> DataFile:
        """Open the file that the user named; follows links."""
        try:
            file, handle, _ = _inspect(path, follow=True)
        except FileNotFoundError as error:
            raise InputError(
                f"cannot read {quote(path)}: {error.strerror}{advise_missing(path)}"
            ) from error
        except OSError as error:
            raise InputError(
                f"cannot read {quote(path)}: {error.strerror}; name an ONNX model file"
            ) from error
        except ValueError as error:
            raise InputError(
                f"cannot read {quote(path)}: {error}; name an ONNX model file"
            ) from error
        self._keep(file, handle)
        return file

    def open_external(self, folder: str, location: str, where: str, *, trust: bool) -> DataFile:
        """Open the file a model names for its data. `trust` lets links lead out of the folder.

        Raises:
            ModelError: the name leaves the folder, or is no regular file there.
        """
        parts = re.split(r"[/\\]", location)
        if (
            not location
            or "\0" in location
            or os.path.isabs(location)
            or re.match(r"[/\\]|[A-Za-z]:", location)
        ):
            raise ModelError(
                f"{where}: external data is in {quote(location)}; it must be a name in the model's"
                " folder"
            )
        if ".." in parts:
            raise ModelError(
                f"{where}: external data is in {quote(location)}, outside the model's folder; move"
                " the file next to it"
            )
        path = os.path.join(folder, location)
        try:
            if not trust:
                path = _contained(folder, path, location, where)
            file, handle, links = _inspect(path, follow=trust)
        except OSError as error:
            raise ModelError(
                f"{where}: cannot read external data {quote(location)} in {quote(folder)}:"
                f" {error.strerror}; put the file there"
            ) from error
        except ModelError:
            raise
        except InputError as error:
            raise ModelError(f"{where}: external data {error}") from error
        if links > 1 and not trust:
            handle.close()
            raise ModelError(
                f"{where}: external data {quote(location)} is a hard link, which may show a file"
                " from outside the model's folder; copy the file, or pass"
                f" {setting('trust_external_paths', True)} if you know where it comes from"
            )
        self._keep(file, handle)
        return file

    def _keep(self, file: DataFile, handle: io.FileIO) -> None:
        old = self._handles.pop(file, None)
        if old is not None:
            old.close()
        self._handles[file] = handle
        if len(self._handles) > _MAX_OPEN:
            self._handles.popitem(last=False)[1].close()


def _contained(folder: str, path: str, location: str, where: str) -> str:
    """Resolve links and check that the file is still in the folder."""
    root = os.path.realpath(folder)
    real = os.path.realpath(path)
    if os.path.commonpath([root, real]) != root:
        raise ModelError(
            f"{where}: external data {quote(location)} is a link out of the model's folder; copy"
            f" the file there, or pass {setting('trust_external_paths', True)} if you know where it"
            " leads"
        )
    return real


def _close_all(handles: OrderedDict[DataFile, io.FileIO]) -> None:
    for handle in handles.values():
        handle.close()
    handles.clear()
