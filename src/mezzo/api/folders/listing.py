"""Listing of a folder's files; links out of it are refused unless trusted."""

import os
from dataclasses import dataclass
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.common.message_style import setting

# Folders of git and of Hugging Face's client, which describe this copy of the folder alone.
_LEFT_OUT = frozenset({".git", ".cache"})


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Files of a folder by path, with "/" between the parts, and left-out files with reasons."""

    root: Path
    names: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.lower().endswith(".onnx"))


def list_folder(root: Path, *, trust: bool) -> FolderListing:
    """List all files of a folder, sorted. `trust` allows links of files to lead out of it.

    Raises:
        InputError: a link is broken or leads out of the folder; or the folder is unreadable.
    """
    real = os.path.realpath(root)
    names: list[str] = []
    left_out: list[tuple[str, str]] = []
    for folder, folders, files in os.walk(root, onerror=_refuse_unreadable):
        relative = Path(folder).relative_to(root)
        for name in sorted(folders):
            if name in _LEFT_OUT:
                left_out.append(((relative / name).as_posix(), "belongs to another program"))
            elif os.path.islink(os.path.join(folder, name)):
                left_out.append(((relative / name).as_posix(), "is a link to a folder"))
        excluded = {Path(name).name for name, _ in left_out if Path(name).parent == relative}
        folders[:] = sorted(name for name in folders if name not in excluded)
        for name in sorted(files):
            path = os.path.join(folder, name)
            if _is_readable(path, (relative / name).as_posix(), real, trust=trust):
                names.append((relative / name).as_posix())
            else:
                left_out.append(((relative / name).as_posix(), "is no regular file"))
    return FolderListing(root, tuple(sorted(names)), tuple(sorted(left_out)))


def _refuse_unreadable(error: OSError) -> None:
    raise InputError(
        f"cannot read folder {os.fspath(error.filename)!r}: {error.strerror}"
    ) from error


def _is_readable(path: str, name: str, root: str, *, trust: bool) -> bool:
    """Whether a path is a regular file. Raises InputError: broken or untrusted link."""
    if not os.path.islink(path):
        return os.path.isfile(path)
    if not os.path.exists(path):
        raise InputError(
            f"{name!r} in {root!r} is a link that leads nowhere; get the file, or remove the link"
        )
    if not trust and os.path.commonpath([root, os.path.realpath(path)]) != root:
        raise InputError(
            f"{name!r} in {root!r} is a link out of the folder, as in a model hub's cache; pass"
            f" {setting('trust_external_paths', True)} if you know where it leads, or copy the"
            " folder with its links followed"
        )
    return os.path.isfile(path)
