"""Files that appear all at once, or not at all."""

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from mezzo.common.safe_paths import check_destination, stage_beside

_BUFFER_BYTES = 1 << 20


class Staging:
    """Files written beside their destinations and moved there together. Leaving without `commit` removes them.

    A failing move puts back what the earlier ones replaced.
    """

    def __init__(self) -> None:
        self._staged: list[tuple[Path, Path]] = []

    def __enter__(self) -> Self:
        return self

    def create(self, destination: Path) -> BinaryIO:
        """Open a new file that will become `destination`, with the permissions of one made in the ordinary way."""
        path = stage_beside(destination)
        # Listed first, so that an interrupt right after the file is made still removes it.
        self._staged.append((path, destination))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=_BUFFER_BYTES)

    def commit(self) -> None:
        """Move all files to their destinations, in the order they were made.

        Raises:
            InputError: a destination has become something that is no file.
            OSError: a file cannot be moved.
        """
        moved: list[tuple[Path, Path | None]] = []
        try:
            for path, destination in self._staged[:-1]:
                check_destination(destination)
                backup = stage_beside(destination) if os.path.lexists(destination) else None
                moved.append((destination, backup))
                if backup is not None:
                    os.replace(destination, backup)
                os.replace(path, destination)
            for path, destination in self._staged[-1:]:
                check_destination(destination)
                os.replace(path, destination)
        except BaseException:
            is_complete = not os.path.lexists(self._staged[-1][0])
            for destination, backup in () if is_complete else reversed(moved):
                if backup is None:
                    destination.unlink(missing_ok=True)
                elif backup.exists():
                    os.rename(backup, destination)
            raise
        for _, backup in moved:
            if backup is not None:
                backup.unlink(missing_ok=True)
        self._staged.clear()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for path, _ in self._staged:
            path.unlink(missing_ok=True)
        self._staged.clear()
