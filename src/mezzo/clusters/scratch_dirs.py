"""Folders for files of workers. A folder is locked as long as its worker lives, however that ends: whoever comes next
removes those that nobody holds any more.

Only folders are removed that carry the name, belong to this user and let nobody else in; links are never followed.
"""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from mezzo.common.machine import find_temporary_folder

if sys.platform != "win32":  # where what a killed worker leaves stays
    import fcntl

_PREFIX = "mezzo-worker-"
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Holding:
    """A folder that is there as long as this process lives, or until it is closed."""

    def __init__(self) -> None:
        """Make it. Raises OSError: there is no room for one."""
        held = None
        while held is None:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=find_temporary_folder()))
            held = _locked(self.path)
        self._lock: int | None = held

    def close(self) -> None:
        """Remove it with all in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None and self._lock >= 0:
            os.close(self._lock)
        self._lock = None


def _locked(path: Path) -> int | None:
    """A descriptor that holds a folder; None where somebody who tidied up had it first."""
    if sys.platform == "win32":
        return -1
    try:
        lock = os.open(path, _FOLDER_FLAGS)
    except FileNotFoundError:
        return None
    with suppress(FileNotFoundError):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.samestat(os.fstat(lock), os.lstat(path)):
            return lock
    os.close(lock)
    return None


def tidy_up() -> int:
    """Remove the folders of workers of this user that are gone; how many there were."""
    return sum(map(_remove_unheld, _found()))


def _found() -> Iterator[str]:
    with suppress(OSError), os.scandir(find_temporary_folder()) as entries:
        yield from sorted(entry.path for entry in entries if entry.name.startswith(_PREFIX))


def _remove_unheld(path: str) -> bool:
    if sys.platform == "win32":
        return False
    try:
        folder = os.open(path, _FOLDER_FLAGS)
    except OSError:  # a link, a file, another user's, or gone by now
        return False
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return False
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(status, os.lstat(path)):
            return False
        shutil.rmtree(path)
    except OSError:  # somebody holds it, or was quicker
        return False
    finally:
        os.close(folder)
    return True
