"""Hugging Face folders, exported to ONNX in FP32 by the model builder of onnxruntime-genai.

The builder runs in a child process, offline and without telemetry. It runs no code of the folder:
only safetensors are read, and the builder trusts no remote code by default. Source:
onnxruntime-genai 0.18, models/builder.py.
"""

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

from mezzo.api.folders.genai import CONFIG as GENAI_CONFIG
from mezzo.api.folders.listing import FolderListing, list_folder
from mezzo.api.folders.staging import STAGED_SUFFIX
from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError, ModelError
from mezzo.common.safe_paths import read_file
from mezzo.common.telemetry import OPT_OUTS
from mezzo.contracts.frontend import Progress

CONFIG, _INDEX = "config.json", "model.safetensors.index.json"
_WEIGHTS, _PICKLES = ".safetensors", (".bin", ".pt", ".pth")
_MOST_BYTES = 64 << 20  # of a JSON file; an index of a large model has some megabytes
_BUILDER = "onnxruntime_genai.models.builder"
# What the builder imports, by the names for pip.
_PACKAGES = {
    "onnxruntime-genai": "onnxruntime_genai", "torch": "torch", "transformers": "transformers",
    "onnx-ir": "onnx_ir",
}  # fmt: skip
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
# The builder's error for an architecture that it does not know.
_UNSUPPORTED = re.compile(r"NotImplementedError: (The \S+ model is not currently supported)")
_SHOWN_LINES = 20  # of the builder's log


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder holds a model of Hugging Face to export: weights, and no genai model."""
    names = [path.name for path in folder.iterdir()]
    return GENAI_CONFIG not in names and any(name.endswith(_WEIGHTS) for name in names)


def check_hugging_face(folder: Path, *, trust: bool) -> None:
    """Raises InputError: a folder has no config or no weights that can be read, or links that lead
    outside, unless `trust`.
    """
    where, listing = os.fspath(folder), list_folder(folder, trust=trust)
    if listing.failed:
        raise InputError(listing.failed[0].because)
    if CONFIG not in listing.names:
        raise InputError(
            f"{where!r} has no {CONFIG}; name a folder of Hugging Face ({CONFIG}, *{_WEIGHTS},"
            " tokenizer.json), or one of onnxruntime-genai in FP32"
        )
    architectures = read_object(folder, CONFIG).get("architectures")
    if not isinstance(architectures, list) or not architectures:
        raise InputError(
            f"{CONFIG!r} in {where!r} names no architecture, which decides how the model is"
            " exported; get the file again"
        )
    _check_weights(folder, listing)


def _check_weights(folder: Path, listing: FolderListing) -> None:
    """Raises InputError: there are no weights, or less than their index names."""
    where = os.fspath(folder)
    weights = {name for name in listing.names if name.endswith(_WEIGHTS)}
    if not weights:
        pickle = next((name for name in listing.names if name.endswith(_PICKLES)), None)
        remedy = "get them again, or name another folder"
        if pickle is not None:
            remedy = (
                f"{pickle!r} can run code when it is read: save the model as safetensors, with"
                " save_pretrained of transformers"
            )
        raise InputError(f"{where!r} has no weights (*{_WEIGHTS}); {remedy}")
    if _INDEX not in listing.names:
        return
    files = read_object(folder, _INDEX).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise InputError(f"{_INDEX!r} in {where!r} has no 'weight_map'; get the file again")
    for name in sorted(set(files.values())):
        if PurePosixPath(name).name != name or name not in weights:
            raise InputError(
                f"{_INDEX!r} in {where!r} names {name[:80]!r}, which is not there; get it again"
            )


def read_object(folder: Path, name: str) -> dict[str, object]:
    """A JSON object. Raises InputError: the file is too large, or no such object."""
    content = read_file(folder / name, _MOST_BYTES)
    try:
        document = None if content is None else parse_json(content)
    except ValueError as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{name!r} is no JSON: {reason}; get the file again") from error
    if not isinstance(document, dict):
        raise InputError(f"{name!r} is no JSON object of usual size; get the file again")
    return document


@contextmanager
def exported(
    source: Path, destination: Path, *, trust: bool, progress: Progress | None
) -> Iterator[Path]:
    """A folder of onnxruntime-genai in FP32, next to the destination; it is removed at the end.

    Raises:
        InputError: the folder is at fault, or a package is missing.
        ModelError: the builder cannot export the model.
    """
    check_hugging_face(source, trust=trust)
    missing = [name for name, module in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise InputError(
            f"{os.fspath(source)!r} is exported by the builder of onnxruntime-genai, and"
            f" {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; pip"
            f" install {' '.join(missing)}"
        )
    staged = destination.absolute().parent / f".{secrets.token_hex(8)}{STAGED_SUFFIX}"
    try:
        staged.mkdir()
        if progress is not None:
            progress("exporting to ONNX", 0, 0)
        yield _build(source, staged)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def _build(source: Path, staged: Path) -> Path:
    """Run the builder. Returns the folder that it wrote. Raises ModelError: it failed."""
    result, cache, log = staged / "model", staged / "cache", staged / "log"
    command = [
        sys.executable, "-m", _BUILDER, "-i", os.path.abspath(source), "-o", os.fspath(result),
        "-p", "fp32", "-e", "cpu", "-c", os.fspath(cache),
    ]  # fmt: skip
    with log.open("wb") as output:  # its folder is the staging folder, which has no modules
        done = subprocess.run(
            command, env={**os.environ, **_OFFLINE, **OPT_OUTS}, cwd=staged,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    if done.returncode == 0 and (result / GENAI_CONFIG).is_file():
        return result
    raise _failure(source, done.returncode, log.read_text(encoding="utf-8", errors="replace"))


def _failure(source: Path, exit_code: int, log: str) -> ModelError:
    """The error of a builder that failed, with the end of its log as a note, unless one line
    says all.
    """
    begin = f"onnxruntime-genai's builder cannot export {os.fspath(source)!r}"
    unsupported = _UNSUPPORTED.search(log)
    if unsupported is not None:
        return ModelError(f"{begin}: {unsupported[1]}; export it by other means to ONNX in FP32")
    lines = [line for line in log.splitlines() if line.strip()]
    last = lines[-1].strip()[:200] if lines else "it wrote no log"
    error = ModelError(f"{begin} (exit code {exit_code}): {last}; see its log")
    error.add_note("\n".join(lines[-_SHOWN_LINES:]))
    return error
