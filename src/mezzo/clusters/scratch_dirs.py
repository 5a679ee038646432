"""Temporary folders of workers, locked while the worker lives: any later process removes the
unlocked ones.

Only folders with mezzo's prefix are removed that belong to this user and are private; links are
never followed.
"""

import os
import shutil
import stat
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from mezzo.common.machine import find_temporary_folder

if sys.platform != "win32":  # no locks on Windows: folders of killed workers remain
    import fcntl

_PREFIX = "mezzo-worker-"
_FOLDER_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_DIRECTORY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
)


class ScratchDir:
    """A locked temporary folder that exists until closed, or while this process lives."""

    def __init__(self) -> None:
        """Create the folder. Raises OSError: it cannot be created."""
        lock = None
        while lock is None:
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=find_temporary_folder()))
            lock = _locked(self.path)
        self._lock: int | None = lock

    def close(self) -> None:
        """Remove the folder and its contents."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None and self._lock >= 0:
            os.close(self._lock)
        self._lock = None


def _locked(path: Path) -> int | None:
    """A descriptor that locks a folder; None if a concurrent cleanup removed it first."""
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


def remove_scratch_dirs() -> int:
    """Remove this user's folders of dead workers; returns how many."""
    root = find_temporary_folder()
    try:
        names = sorted(name for name in os.listdir(root) if name.startswith(_PREFIX))
    except OSError:
        return 0
    return sum(_remove_unlocked(os.path.join(root, name)) for name in names)


def _remove_unlocked(path: str) -> bool:
    """Remove a folder that no worker locks; returns whether it was removed."""
    if sys.platform == "win32":
        return False
    try:
        folder = os.open(path, _FOLDER_FLAGS)
    except OSError:  # a link, a file, another user's, or removed by now
        return False
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return False
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(status, os.lstat(path)):
            return False
        shutil.rmtree(path)
    except OSError:  # locked by its worker, or removed by another process
        return False
    finally:
        os.close(folder)
    return True
