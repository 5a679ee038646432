"""Folders of OpenVINO GenAI, from folders of ONNX models: openvino_model.xml, its tokenizer, and
configs of Hugging Face. Source: OpenVINO GenAI 2026.4.
"""

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from mezzo.api.folders import genai
from mezzo.api.folders.genai import OPENVINO_MODEL
from mezzo.api.folders.json_process import JsonProcess
from mezzo.api.folders.records import ConvertedFolder
from mezzo.api.folders.staging import STAGED_SUFFIX, FolderStaging
from mezzo.api.language_models.hugging_face import CONFIG
from mezzo.common.errors import InputError, ModelError
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.request import Request
from mezzo.numerics.data.readers.tokenizer_file import TOKENIZER
from mezzo.planner.options import read_options

_MODULE = "openvino"
_GENERATION = "generation_config.json"
_PROGRAM = "from mezzo.onnx.language_models.folder_worker import serve; serve()"
_PACKAGES = {
    "openvino": "openvino", "openvino-tokenizers": "openvino_tokenizers",
    "transformers": "transformers",
}  # fmt: skip
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")
# What configs that are nowhere get from genai_config.json.
_KEPT = {CONFIG: (*_TOKENS, "vocab_size"), _GENERATION: _TOKENS}


def is_for_openvino(request: Request) -> bool:
    """Whether a request's target is OpenVINO's. Raises InputError: an option has no such value."""
    runtime = read_options(request).planning.target.runtime
    return runtime is not None and runtime.module == _MODULE


def check_packages() -> None:
    """Raises InputError: a package that writes such folders is missing."""
    missing = [name for name, module in _PACKAGES.items() if find_spec(module) is None]
    if missing:
        raise InputError(
            "a folder of OpenVINO GenAI is written by openvino, openvino-tokenizers and"
            f" transformers, and {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
            f" installed; pip install {' '.join(missing)}"
        )


def convert_for_openvino(
    convert: Callable[[Path], ConvertedFolder],
    source: Path,
    tokenizer: Path | None,
    destination: Path,
    progress: Progress | None,
) -> ConvertedFolder:
    """Convert a folder, and write what OpenVINO GenAI runs in place of the results.

    `convert`: converts to the folder that it gets; `source`: where configs may be; `tokenizer`: the
    folder of the tokenizer.

    Raises InputError, ModelError: the folder has not one decoder and a tokenizer, or OpenVINO
    cannot write them.
    """
    if tokenizer is None:
        raise InputError(
            f"{os.fspath(source)!r} has no {TOKENIZER}, which OpenVINO GenAI needs; get it again"
        )
    with _temporary(destination) as models:
        folder = convert(models)
        if not folder.files:
            return replace(folder, path=destination)
        if len(folder.files) > 1 or folder.failed:
            names = [file.source for file in folder.files] + [f.source for f in folder.failed]
            raise InputError(
                f"{os.fspath(folder.source)!r} has {len(names)} models, {', '.join(names[:3])}, and"
                " a folder of OpenVINO GenAI one decoder; leave one"
            )
        (file,) = folder.files
        if progress is not None:
            progress("writing for OpenVINO GenAI", 0, 0)
        with FolderStaging(destination) as staging:
            _write(models / file.result, tokenizer, staging)
            copied = _copy((models, source), folder.copied, staging)
            staging.commit()
    return replace(
        folder, path=destination, files=(replace(file, result=OPENVINO_MODEL),), copied=copied
    )


@contextmanager
def _temporary(destination: Path) -> Iterator[Path]:
    """The name of a folder next to the destination; what is there is removed at the end."""
    path = destination.absolute().parent / f".{secrets.token_hex(8)}{STAGED_SUFFIX}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write(model: Path, tokenizer: Path, staging: FolderStaging) -> None:
    """Write the decoder and its tokenizer. Raises ModelError: it failed."""
    result = staging.staged(OPENVINO_MODEL)
    result.parent.mkdir(parents=True, exist_ok=True)
    request = {
        "model": os.path.abspath(model), "tokenizer": os.path.abspath(tokenizer),
        "result": os.path.abspath(result),
    }  # fmt: skip
    child = JsonProcess(_PROGRAM, is_silent=True)
    try:
        child.send(request)
        answer = child.receive()
        if answer is None:
            answer = {"fault": f"OpenVINO ended with code {child.wait()}"}
    finally:
        child.end()
    if "fault" in answer:
        raise ModelError(answer["fault"])
    for path in sorted(result.parent.iterdir()):
        staging.place(path.name)


def _copy(
    folders: tuple[Path, Path], copied: Iterable[str], staging: FolderStaging
) -> tuple[str, ...]:
    """Copy what the runtime reads besides models, and write configs that are nowhere."""
    models, _ = folders
    names = [name for name in copied if name != genai.CONFIG]
    for name in dict.fromkeys((*names, CONFIG, _GENERATION)):
        source = next((each / name for each in folders if (each / name).is_file()), None)
        if source is not None:
            shutil.copy2(source, staging.place(name))
        elif (models / genai.CONFIG).is_file():
            config = genai.read_config(models, genai.CONFIG)["model"]
            kept = {key: config[key] for key in _KEPT[name] if key in config}
            staging.place(name).write_text(json.dumps(kept, indent=4) + "\n", encoding="utf-8")
    return tuple(names)
