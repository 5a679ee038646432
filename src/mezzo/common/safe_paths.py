"""Safe file access: only regular files are read or replaced, and new files appear atomically.
Devices, FIFOs, sockets and folders, and links to them, are refused before they are opened.
"""

import io
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from mezzo.common.errors import InputError

_AT_ONCE_BYTES = 1 << 20
# System folders whose entries are devices and open files. /dev/stdout looks like a regular file
# when the shell redirects it to one, so the folder is checked too.
_OF_THE_SYSTEM = ("/dev", "/proc", "/sys")
_ON_A_DISK = ("/dev/shm",)  # shared memory, which holds ordinary files
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def kind_of(mode: int) -> str | None:
    """The kind of a path that is not a regular file, in words; None for a regular file."""
    if stat.S_ISREG(mode):
        return None
    return next((words for holds, words in _KINDS if holds(mode)), "no regular file")


def check_destination(path: str | os.PathLike[str], what: str = "") -> None:
    """Check that a regular file can be written at a path, without touching it. `what` names the
    file's purpose in errors.

    Raises InputError: something else is at the path, the folder is missing or not writable, or the
    name is invalid.
    """
    place = Path(path)
    begin = f"cannot write {what + ' ' if what else ''}{_quote(path)}"
    folder = place.parent
    if not folder.is_dir():
        raise InputError(f"{begin}: {_quote(folder)} is not a folder; make it first")
    try:
        kind = kind_of(os.stat(place).st_mode)
    except FileNotFoundError:
        kind = None  # no file, or a dangling link, which is replaced
    except (OSError, ValueError) as error:
        raise InputError(f"{begin}: {_cause(error)}; name another file") from error
    if kind is not None:
        raise InputError(f"{begin}: it is {kind}; name a file")
    if _is_of_the_system(os.path.realpath(folder)):
        raise InputError(f"{begin}: {_quote(folder)} holds devices; name a file in another folder")
    if not os.access(folder, os.W_OK):
        raise InputError(
            f"{begin}: {_quote(folder)} may not be written to; name a file in another folder"
        )


def check_destinations(
    wanted: Mapping[str, str | os.PathLike[str] | None], models: Iterable[Path] = ()
) -> None:
    """Check a command's output files, by purpose, before it starts: each is writable, and no two
    outputs or models are the same file.

    Raises InputError: a file is invalid.
    """
    labels = {_identity(model): "a model" for model in models}
    for what, path in wanted.items():
        if path is None:
            continue
        check_destination(path, what)
        identity = _identity(Path(path))
        if identity in labels:
            raise InputError(
                f"{what} {_quote(path)} is {labels[identity]} of this command; give it a name of"
                " its own"
            )
        labels[identity] = f"the {what}"


def staging_path(destination: Path) -> Path:
    """An unused temporary name in the destination's folder."""
    return destination.with_name(f".{os.urandom(8).hex()}.mezzo-tmp")


def write_file(path: str | os.PathLike[str], data: bytes, what: str = "") -> None:
    """Write a file atomically. Raises InputError: it cannot be written; then the destination is
    unchanged.
    """
    check_destination(path, what)
    place = Path(path)
    staged = staging_path(place)
    try:
        try:
            staged.write_bytes(data)
            replace_file(staged, place)
        finally:
            staged.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot write {what + ' ' if what else ''}{_quote(path)}: {_cause(error)}; nothing was"
            " written"
        ) from error


def replace_file(staged: Path, destination: Path) -> None:
    """Move a finished file to its destination, checked again because it may have changed meanwhile.

    Raises:
        InputError: the destination is no longer a regular file or a free name.
        OSError: the file cannot be moved.
    """
    check_destination(destination)
    os.replace(staged, destination)


def open_regular(
    path: str | os.PathLike[str], *, follow: bool = True
) -> tuple[io.FileIO, os.stat_result]:
    """Open a regular file for reading. O_NONBLOCK keeps a FIFO from blocking the open.

    Raises:
        InputError: it is not a regular file.
        OSError: it cannot be opened.
    """
    flags = (
        os.O_RDONLY
        | getattr(os, "O_CLOEXEC", 0)
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_BINARY", 0)
    )
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    if follow:  # checked before opening, which has side effects on some devices
        _check_regular(path, os.stat(path))
    descriptor = os.open(path, flags)
    try:
        status = os.fstat(descriptor)
        _check_regular(path, status)
        return io.FileIO(descriptor, "rb"), status
    except BaseException:
        os.close(descriptor)
        raise


def read_file(path: str | os.PathLike[str], most_bytes: int) -> bytes | None:
    """The content of a regular file; None if larger than `most_bytes`. Errors are those of
    `open_regular`.
    """
    handle, status = open_regular(path)
    with handle, io.BufferedReader(handle) as file:
        if status.st_size > most_bytes:
            return None
        data = bytearray()
        # It may grow while it is read.
        while len(data) <= most_bytes and (piece := file.read(_AT_ONCE_BYTES)):
            data += piece
    return None if len(data) > most_bytes else bytes(data)


def _check_regular(path: str | os.PathLike[str], status: os.stat_result) -> None:
    kind = kind_of(status.st_mode)
    if kind is not None:
        raise InputError(f"{_quote(path)} is {kind}; name a file")


def _is_of_the_system(folder: str) -> bool:
    def is_under(root: str) -> bool:
        return folder == root or folder.startswith(root + "/")

    return any(map(is_under, _OF_THE_SYSTEM)) and not any(map(is_under, _ON_A_DISK))


def _identity(path: Path) -> object:
    """A key that is equal for two paths of the same file, existing or not."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


def _cause(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _quote(path: str | os.PathLike[str]) -> str:
    return repr(os.fspath(path))
