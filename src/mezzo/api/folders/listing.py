"""Files of model folders: listing, names of low-precision and of converted files.

Links out of a folder are refused unless trusted. Sources of the suffixes: transformers.js 4.3.1,
src/utils/dtypes.js (suffixes) and src/utils/model-loader.js (external data); Optimum ONNX 0.1.0,
optimum/onnxruntime/constants.py (standard names) and optimum/onnx/graph_transformations.py
(external data); sentence-transformers 6.2.0 (O1 to O4, qint8 and quint8 variants).
"""

import enum
import os
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from mezzo.api.folders.records import FailedFile
from mezzo.api.folders.staging import STAGED_SUFFIX
from mezzo.common.errors import InputError
from mezzo.common.message_style import setting, verb
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.frontend import Model
from mezzo.plugins.discovery import op_facts
from mezzo.tables.facts import Risk

# Folders of git and of Hugging Face's client: metadata of this copy, wrong in a converted folder.
_LEFT_OUT = frozenset({".git", ".cache"})
# Suffix of external data: transformers.js fetches only "model.onnx_data", as Optimum writes it.
DATA_SUFFIX = "_data"
_LOW = re.compile(
    r"[_.-](fp16|float16|half|bf16|bfloat16|fp8|fp4|u?int(4|8)|q[1248](f16)?|bnb4|quantized|qu?int8(_.*)?|O4)$",
    re.IGNORECASE,
)


class Placing(enum.Enum):
    """Destination of converted files: next to the originals, or in their place."""

    BESIDE = "beside"
    INSTEAD = "instead"


def check_places(source: Path, destination: Path) -> None:
    """Raises InputError: the source is not a folder, or the destination cannot become one or is
    inside the source.
    """
    if not source.is_dir():
        raise InputError(
            f"{os.fspath(source)!r} is no folder; name a folder of models, or use {verb('convert')}"
            " for one"
        )
    if destination.exists() and not destination.is_dir():
        raise InputError(
            f"{os.fspath(destination)!r} is a file, and a folder comes out; name a folder"
        )
    if not destination.exists():
        if not destination.absolute().parent.is_dir():
            raise InputError(
                f"{os.fspath(destination)!r} cannot be made: there is no folder above it; make"
                " that first"
            )
        check_destination(destination)
    inner, outer = os.path.realpath(destination), os.path.realpath(source)
    if inner != outer and os.path.commonpath([inner, outer]) == outer:
        raise InputError(
            f"{os.fspath(destination)!r} lies in the folder that is converted; name one beside it,"
            " or the same one"
        )


@dataclass(frozen=True, slots=True)
class FolderListing:
    """Files of a folder by path, with "/" between the parts, and left-out files with reasons.

    `failed` are links that cannot be followed, unreadable folders, and what has a model's name and
    is no file.
    """

    root: Path
    names: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]
    failed: tuple[FailedFile, ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if is_model_name(name))


def is_model_name(name: str) -> bool:
    """Whether a file's name is a model's."""
    return name.lower().endswith(".onnx")


def list_folder(root: Path, *, trust: bool) -> FolderListing:
    """List all files of a folder, sorted. `trust` allows symbolic links to files outside of it.

    Raises InputError: the folder is unreadable.
    """
    real = os.path.realpath(root)
    names: list[str] = []
    left_out: list[tuple[str, str]] = []
    failed: list[FailedFile] = []

    def note_unreadable(error: OSError) -> None:
        name = Path(error.filename).relative_to(root).as_posix()
        message = f"cannot read folder {os.fspath(error.filename)!r}: {error.strerror}"
        if name == ".":
            raise InputError(message) from error
        failed.append(FailedFile(name, message))

    for folder, folders, files in os.walk(root, onerror=note_unreadable):
        relative = Path(folder).relative_to(root)
        entered = []
        for name in sorted(folders):
            path = (relative / name).as_posix()
            reason = _why_left_out(os.path.join(folder, name))
            if reason is None:
                entered.append(name)
            elif is_model_name(name):
                failed.append(FailedFile(path, f"{path!r} {reason}; name a model file so"))
            else:
                left_out.append((path, reason))
        folders[:] = entered
        if is_model_name(folder) and not files and not entered:
            path = relative.as_posix()
            failed.append(FailedFile(path, f"{path!r} is an empty folder, not a model; remove it"))
        for name in sorted(files):
            path = (relative / name).as_posix()
            fault = _link_fault(os.path.join(folder, name), path, real, trust=trust)
            if fault is not None:
                failed.append(FailedFile(path, fault))
            elif os.path.isfile(os.path.join(folder, name)):
                names.append(path)
            elif is_model_name(name):
                failed.append(FailedFile(path, f"{path!r} is no regular file; give the model"))
            else:
                left_out.append((path, "is no regular file"))
    return FolderListing(
        root=root,
        names=tuple(sorted(names)),
        left_out=tuple(sorted(left_out)),
        failed=tuple(sorted(failed)),
    )


def _why_left_out(folder: str) -> str | None:
    """Why a subfolder is not entered; None if it is."""
    name = os.path.basename(folder)
    if name in _LEFT_OUT:
        return "belongs to another program"
    if name.endswith(STAGED_SUFFIX):
        return "is left from an interrupted conversion"
    return "is a link to a folder" if os.path.islink(folder) else None


def _link_fault(path: str, name: str, root: str, *, trust: bool) -> str | None:
    """Why a link cannot be followed; None if it can, or the path is no link."""
    if not os.path.islink(path):
        return None
    if not os.path.exists(path):
        return (
            f"{name!r} in {root!r} is a link that leads nowhere; get the file, or remove the link"
        )
    if not trust and os.path.commonpath([root, os.path.realpath(path)]) != root:
        return (
            f"{name!r} in {root!r} is a link out of the folder, as in a model hub's cache; pass"
            f" {setting('trust_external_paths', True)} if you know where it leads, or copy the"
            " folder with its links followed"
        )
    return None


def find_low_suffix(name: str) -> str | None:
    """The part of a file's name that marks it as low or quantized; None if there is none."""
    suffix = _LOW.search(PurePosixPath(name).stem)
    return None if suffix is None else suffix.group()


def name_result(name: str, to: str, layout: Placing) -> str:
    """The name of a converted model: "model_fp16.onnx" for "model.onnx"."""
    path, word = PurePosixPath(name), to.replace(",", "_")
    return (
        name
        if layout is Placing.INSTEAD
        else str(path.with_name(f"{path.stem}_{word}{path.suffix}"))
    )


def why_low(model: Model) -> str | None:
    """Why a model is already low or quantized; None if it is to be converted."""
    own = model.frontend.dialect
    for dialect, op in sorted(model.operators(), key=lambda entry: (entry[0] != own, entry)):
        row = op_facts(dialect).get(op)
        if row is not None and Risk.QUANTIZED in row.risks:
            return f"is quantized: it has a node of {op}"
    low = model.low_weights()
    return None if low is None else f"is low already: most of its weights are {low}"
