"""Atomic creation of several files in a folder: written to a staging folder, then moved."""

import os
import secrets
import shutil
from pathlib import Path
from types import TracebackType
from typing import Self

from mezzo.common.safe_paths import check_destination

STAGED_SUFFIX = ".mezzo-tmp"


class FolderStaging:
    """A folder of staged files. Leaving the context without `commit` removes all of them.

    A new folder appears by one rename. In an existing folder, files are moved one by one; if a move
    fails, the replaced files are restored.
    """

    def __init__(self, destination: Path, *, commits_often: bool = False) -> None:
        """`commits_often`: files appear at several commits, so the folder is made at once."""
        self.destination = destination
        if commits_often:
            destination.mkdir(exist_ok=True)
        self._is_new = not commits_often and (
            not destination.exists() or not any(destination.iterdir())
        )
        parent = destination.parent if self._is_new else destination
        self._staged = parent / f".{secrets.token_hex(8)}{STAGED_SUFFIX}"
        self._names: list[str] = []
        self._removed: list[str] = []
        self._replaced: Path | None = None  # folder of the files that were replaced

    def __enter__(self) -> Self:
        return self

    def place(self, name: str) -> Path:
        """The path to write for the future file `name` of the destination; makes its folder."""
        path = self.staged(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._names.append(name)
        return path

    def staged(self, name: str) -> Path:
        """The path of `name` before the commit."""
        return self._staged / name

    def discard(self, name: str) -> None:
        """Forget a staged file, which may not exist."""
        self.staged(name).unlink(missing_ok=True)
        self._names = [placed for placed in self._names if placed != name]

    def remove(self, name: str) -> None:
        """Remove a file of the destination at the commit."""
        self._removed.append(name)

    def commit(self) -> None:
        """Move the files to the destination. If that fails, the former files are moved back. In a
        new folder this is the only commit.

        Raises:
            InputError: one of the names is taken by something other than a file.
            OSError: a file cannot be moved.
        """
        if self._is_new:
            self._remove_unplaced()
            if self.destination.exists():
                self.destination.rmdir()
            os.rename(self._staged, self.destination)
            return
        replaced = Path(f"{self._staged}.old")  # on the same disk, so that moves are renames
        replaced.mkdir()
        moved: list[tuple[Path, Path | None]] = []
        new_folders: list[Path] = []
        try:
            for number, name in enumerate((*self._names, *self._removed)):
                target = self.destination / name
                new_folders += _make_folders(target.parent)
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
            for folder in reversed(new_folders):
                folder.rmdir()
            replaced.rmdir()  # fails if files could not be moved back, and so keeps them
            raise
        self._replaced = replaced
        shutil.rmtree(replaced, ignore_errors=True)
        self._replaced = None
        self._names, self._removed = [], []

    def _remove_unplaced(self) -> None:
        """Remove what a killed process left in the staging folder."""
        placed = {self._staged / name for name in self._names}
        for path in self._staged.rglob("*"):
            if not path.is_dir() and path not in placed:
                path.unlink()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        shutil.rmtree(self._staged, ignore_errors=True)
        if self._replaced is not None:
            shutil.rmtree(self._replaced, ignore_errors=True)


def _make_folders(folder: Path) -> list[Path]:
    """Create a folder and its missing parents; return the new ones, the outermost first."""
    if folder.is_dir():
        return []
    parents = _make_folders(folder.parent)
    folder.mkdir()
    return [*parents, folder]
