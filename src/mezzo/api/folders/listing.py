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
    """Files of a folder by path, with "/" between the parts, and left-out files with reasons."""

    root: Path
    names: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name.lower().endswith(".onnx"))


def list_folder(root: Path, *, trust: bool) -> FolderListing:
    """List all files of a folder, sorted. `trust` allows symbolic links to files
    outside of it.

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
