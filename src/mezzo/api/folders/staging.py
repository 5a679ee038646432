"""Files of a folder that appear all at once, or not at all: made in a folder of their own, and moved at the end."""

import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from mezzo.common.safe_paths import check_destination


class FolderStaging:
    """A folder in the making. Leaving without `commit` removes all that was made.

    A new folder appears by one rename. Into a folder that is there, files move one after the other; if one cannot, what
    the others replaced is put back.
    """

    def __init__(self, destination: Path) -> None:
        self.destination = destination
        self._is_new = not destination.exists() or not any(destination.iterdir())
        beside = destination.parent if self._is_new else destination
        self._staged = beside / f".{secrets.token_hex(8)}.mezzo-tmp"
        self._names: list[str] = []
        self._removed: list[str] = []
        self._replaced: Path | None = None  # where what gave way is until the end

    def __enter__(self) -> Self:
        return self

    def place(self, name: str) -> Path:
        """Return where to write the file that will be `name` in the destination. Its folder is there."""
        path = self._staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        self._names.append(name)
        return path

    def staged(self, name: str) -> Path:
        """Return where `name` is until it is committed."""
        return self._staged / name

    def remove(self, name: str) -> None:
        """Let a file of the destination be gone once all others are there."""
        self._removed.append(name)

    def commit(self) -> None:
        """Let the files appear. If they cannot, the destination is as it was.

        Raises:
            InputError: something that is no file has one of their names.
            OSError: a file cannot be moved.
        """
        if self._is_new:
            if self.destination.exists():
                self.destination.rmdir()
            os.rename(self._staged, self.destination)
            return
        replaced = Path(f"{self._staged}.old")  # on the same disk, so that moves are renames
        replaced.mkdir()
        moved: list[tuple[Path, Path | None]] = []
        made: list[Path] = []
        try:
            for number, name in enumerate((*self._names, *self._removed)):
                target = self.destination / name
                made += _make_folders(target.parent)
                check_destination(target)
                backup = replaced / str(number) if os.path.lexists(target) else None
                moved.append((target, backup))
                if backup is not None:
                    os.rename(target, backup)
                if number < len(self._names):
                    os.rename(self._staged / name, target)
        except BaseException:
            for target, backup in reversed(moved):
                if backup is None:
                    target.unlink(missing_ok=True)
                elif os.path.lexists(backup):
                    os.replace(backup, target)
            for folder in reversed(made):
                folder.rmdir()
            replaced.rmdir()  # empty, or what could not be put back stays there
            raise
        self._replaced = replaced

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)
        if self._replaced is not None:
            shutil.rmtree(self._replaced, ignore_errors=True)


def _make_folders(folder: Path) -> list[Path]:
    """Make a folder and those above it that lack; return the new ones, the outermost first."""
    if folder.is_dir():
        return []
    made = _make_folders(folder.parent)
    folder.mkdir()
    return [*made, folder]
