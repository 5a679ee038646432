"""Atomic output of several files: all appear, or none."""

import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from mezzo.common.safe_paths import check_destination, staging_path

_BUFFER_BYTES = 1 << 20


class Staging:
    """Temporary files in the folders of their destinations, moved there together by `commit`.
    Leaving the context without `commit` removes them.

    If a move fails, files that earlier moves replaced are restored.
    """

    def __init__(self) -> None:
        self._staged: list[tuple[Path, Path]] = []

    def __enter__(self) -> Self:
        return self

    def create(self, destination: Path) -> BinaryIO:
        """Open a temporary file that will become `destination`, with default permissions."""
        path = staging_path(destination)
        # Recorded before it is created, so that an interrupt in between cannot leave it behind.
        self._staged.append((path, destination))
        flags = (
            os.O_WRONLY
            | os.O_CREAT
            | os.O_EXCL
            | getattr(os, "O_CLOEXEC", 0)
            | getattr(os, "O_BINARY", 0)
        )
        return os.fdopen(os.open(path, flags, 0o666), "wb", buffering=_BUFFER_BYTES)

    def commit(self) -> None:
        """Move all files to their destinations, in the order they were created.

        Raises:
            InputError: a destination is no longer a regular file or a free name.
            OSError: a file cannot be moved.
        """
        moved: list[tuple[Path, Path | None]] = []
        try:
            for path, destination in self._staged[:-1]:
                check_destination(destination)
                backup = staging_path(destination) if os.path.lexists(destination) else None
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for path, _ in self._staged:
            path.unlink(missing_ok=True)
        self._staged.clear()
