"""Transfer of models to workers: a path that driver and worker can read, or files, sent once."""

import hashlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import open_regular
from mezzo.contracts.frontend import Model
from mezzo.conversion.results import open_source, store_of

_READ_BYTES = 1 << 22

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class TransferredModel:
    """A reference to a model for workers. `key`: digest of its files; `path`: None if the files are
    sent.
    """

    key: str
    name: str
    path: str | None
    # The other files (external weights), as paths relative to the model's folder.
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A model's files by name without folders; the first is the one to open."""

    files: Mapping[str, Bytes]


def source_of(model: Model) -> TransferredModel | None:
    """A reference by path; None if the model has no file, or weights outside its folder."""
    if model.path is None or model.store is None:
        return None
    path = Path(os.path.realpath(model.path))
    files = [
        os.path.relpath(os.path.realpath(other), path.parent) for other in model.store.companions
    ]
    if any(name.startswith(os.pardir) or os.path.isabs(name) for name in files):
        return None
    return TransferredModel(_digest(path, files), model.name, os.fspath(path), tuple(files))


def bundle_of(model: Model) -> tuple[TransferredModel, Bundle]:
    """The files of a model. Raises InputError: its front end writes no files."""
    suffix = next((end for end in model.frontend.suffixes if end), "")
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        first = Path(folder) / f"model{suffix}"
        store_of(model).write(model.original, first, overwrite=False)
        names = [
            first.name,
            *sorted(other.name for other in Path(folder).iterdir() if other != first),
        ]
        key = _digest(first, names[1:])
        files = {name: np.fromfile(Path(folder) / name, np.uint8) for name in names}
    return TransferredModel(key, model.name, None, tuple(names[1:])), Bundle(files)


def open_by_path(source: TransferredModel) -> Model | None:
    """Open a model at the driver's path, with the driver's checks; None if the same files are not
    at that path on this machine.
    """
    assert source.path is not None, "sent by path"
    try:
        if _digest(Path(source.path), source.files) != source.key:
            return None
    except (OSError, InputError):
        return None
    return open_source(source.path, False, None)


def open_bundle(bundle: Bundle, folder: Path) -> Model:
    """Write a model's files into a folder and open it. Raises InputError: an unsafe name."""
    for name, content in bundle.files.items():
        if PurePath(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{name!r} is no name of a file; nothing was written")
        content.tofile(folder / name)
    return open_source(folder / next(iter(bundle.files)), False, None)


def _digest(first: Path, others: Sequence[str]) -> str:
    """A digest of names, sizes and contents: a worker may have other files at the same path."""
    digest = hashlib.sha256()
    for name in ("", *others):
        handle, status = open_regular(first.parent / name if name else first)
        with handle:
            digest.update(repr((name, status.st_size)).encode())
            while chunk := handle.read(_READ_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:32]
