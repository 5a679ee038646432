"""How a model gets to a worker: by a path that both see, or as files, which travel once."""

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
class Source:
    """A model on its way. `key` tells models apart by what their files hold. `path` is where it lies for the driver;
    None where it has to travel as files.
    """

    key: str
    name: str
    path: str | None
    files: tuple[str, ...]  # beside the first, by their paths from its folder


@dataclass(frozen=True, slots=True)
class Bundle:
    """The files of a model, the one to open first, by names without folders."""

    files: Mapping[str, Bytes]


def source_of(model: Model) -> Source | None:
    """How a model is sent by path; None where it is not the content of a file, or has weights outside its folder."""
    if model.path is None or model.store is None:
        return None
    path = Path(os.path.realpath(model.path))
    files = [os.path.relpath(os.path.realpath(other), path.parent) for other in model.store.companions]
    if any(name.startswith(os.pardir) or os.path.isabs(name) for name in files):
        return None
    return Source(_digest(path, files), model.name, os.fspath(path), tuple(files))


def bundle_of(model: Model) -> tuple[Source, Bundle]:
    """A model as files. Raises InputError: such models are no files."""
    suffix = next((end for end in model.frontend.suffixes if end), "")
    with tempfile.TemporaryDirectory(prefix="mezzo-") as folder:
        first = Path(folder) / f"model{suffix}"
        store_of(model).write(model.original, first, overwrite=False)
        names = [first.name, *sorted(other.name for other in Path(folder).iterdir() if other != first)]
        key = _digest(first, names[1:])
        files = {name: np.fromfile(Path(folder) / name, np.uint8) for name in names}
    return Source(key, model.name, None, tuple(names[1:])), Bundle(files)


def open_by_path(source: Source) -> Model | None:
    """Open a model where the driver has it, with all checks that the driver makes; None where the same files are not
    there.
    """
    assert source.path is not None, "sent by path"
    try:
        if _digest(Path(source.path), source.files) != source.key:
            return None
    except (OSError, InputError):
        return None
    return open_source(source.path, False, None)


def open_bundle(bundle: Bundle, folder: Path) -> Model:
    """Write a model's files into a folder and open it. Raises InputError: a name is none of a file in it."""
    for name, content in bundle.files.items():
        if PurePath(name).name != name or name in ("", ".", ".."):
            raise InputError(f"{name!r} is no name of a file; nothing was written")
        content.tofile(folder / name)
    return open_source(folder / next(iter(bundle.files)), False, None)


def _digest(first: Path, others: Sequence[str]) -> str:
    """What tells a model's files apart: names, sizes and all that stands in them: others may lie at their path."""
    digest = hashlib.sha256()
    for name in ("", *others):
        handle, status = open_regular(first.parent / name if name else first)
        with handle:
            digest.update(repr((name, status.st_size)).encode())
            while chunk := handle.read(_READ_BYTES):
                digest.update(chunk)
    return digest.hexdigest()[:32]
