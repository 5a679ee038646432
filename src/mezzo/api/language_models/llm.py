"""Low-bit weights for a language model in one call, from a Hugging Face folder: mezzo.llm."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

from mezzo.api.folders.converting import FolderOptions, convert_models
from mezzo.api.folders.listing import Placing, check_places
from mezzo.api.folders.model_jobs import Search
from mezzo.api.folders.records import ConvertedFolder, error_of
from mezzo.api.language_models.hugging_face import exported, is_hugging_face
from mezzo.api.language_models.openvino_genai import (
    check_packages,
    convert_for_openvino,
    is_for_openvino,
)
from mezzo.common.errors import InputError
from mezzo.common.message_style import option, setting
from mezzo.contracts.frontend import Progress
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.keyword_types import ConvertOptions
from mezzo.contracts.options.keywords import documents_options_with, named_options
from mezzo.contracts.options.request import LLM_DEFAULTS, SEARCH_DEFAULTS, Request
from mezzo.numerics.data.datasets import Data, as_files
from mezzo.numerics.data.readers.tokenizer_file import TOKENIZER

_TEXT = ".txt"


@documents_options_with(**LLM_DEFAULTS)
def llm(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    data: Data | None = None,
    max_error: float | None = None,
    max_bytes: int | str | None = None,
    held_out: Data | None = None,
    time_limit_s: float | None = None,
    resume: str | os.PathLike[str] | None = None,
    batch_size: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **options: Unpack[ConvertOptions],
) -> ConvertedFolder:
    """Write a folder that onnxruntime-genai runs, with low-bit weights, from a Hugging Face folder;
    with OpenVINO's target one that OpenVINO GenAI runs.

    The model is exported in FP32 by onnxruntime-genai's builder, in another process and without
    network, unless the folder has ONNX models in FP32 already. These are converted as by
    `mezzo.convert_folder`; with a budget the storage of each weight is searched as by `mezzo.tune`.
    The result's account is that of its model, in `files`.

    Args:
        src: a folder with config.json, safetensors and a tokenizer; or one of onnxruntime-genai or
            of Optimum in FP32.
        dst: the destination folder.
        data: running text, in files (.txt), which the folder's own tokenizer splits; or other data
            as of `mezzo.compare`. The result is checked on it, and a search chooses by it.
        max_error, max_bytes, held_out, time_limit_s, resume: of a search, as of `mezzo.tune`.
        overwrite: replace files of a destination that exists.
        progress: called with (stage, done, total).

    Raises:
        InputError: an option, the data or the folder is at fault, or a package is missing.
        ModelError: the model cannot be exported, or is not valid.
        ContractError: the result would break a promise.
    """
    search = None
    if max_error is not None or max_bytes is not None:
        search = Search(max_error, max_bytes, held_out, time_limit_s, resume)
    given = FolderOptions(
        data=data, batch_size=batch_size, overwrite=overwrite, progress=progress, search=search
    )
    request = request_with_defaults(named_options(options), search)
    folder = convert_language_model(Path(src), Path(dst), request, given)
    if not folder.files and folder.failed:
        raise error_of(folder.failed)
    return folder


def request_with_defaults(named: Mapping[str, Any], search: Search | None) -> Request:
    """The request of the options that are given."""
    usual = LLM_DEFAULTS if search is None else {**LLM_DEFAULTS, **SEARCH_DEFAULTS}
    return Request(**{**usual, **named})


def convert_language_model(
    source: Path, destination: Path, request: Request, given: FolderOptions
) -> ConvertedFolder:
    """Export a folder if it has no ONNX models, and convert it. Errors are those of `llm`."""
    check_places(source, destination)
    if not given.overwrite and destination.exists() and any(destination.iterdir()):
        raise InputError(
            f"{os.fspath(destination)!r} is there already; pass {setting('overwrite', True)} to"
            " replace its files, or name a new folder"
        )
    if given.search is not None and given.data is None:
        raise InputError(
            f"{option('max_error')} and {option('max_bytes')} are held on data; give"
            f" {option('data')}, such as a text that the model is used on"
        )
    trust = request.trust_external_paths
    is_openvino = is_for_openvino(request)
    if is_openvino:
        check_packages()
        # Of an ONNX file OpenVINO runs this attention on one sample alone; the result has another.
        request = replace(request, check=False)
    with _with_models(source, destination, trust, given.progress) as models:
        tokenizer = next((p for p in (source, models) if (p / TOKENIZER).is_file()), None)
        search = given.search
        if search is not None and search.held_out is not None:
            search = search._replace(held_out=_with_tokenizer(search.held_out, tokenizer))
        data = None if given.data is None else _with_tokenizer(given.data, tokenizer)
        given = replace(
            given, layout=Placing.INSTEAD.value, data=data, search=search, shown_source=source,
            shown_destination=destination,
        )  # fmt: skip
        if not is_openvino:
            return convert_models(models, destination, request, given)
        return convert_for_openvino(
            lambda folder: convert_models(models, folder, request, given),
            source, tokenizer, destination, given.progress,
        )  # fmt: skip


@contextmanager
def _with_models(
    source: Path, destination: Path, trust: bool, progress: Progress | None
) -> Iterator[Path]:
    """The folder with the ONNX models: the source, or its export."""
    if is_hugging_face(source) or not any(source.rglob("*.onnx")):
        with exported(source, destination, trust=trust, progress=progress) as models:
            yield models
    else:
        yield source


def _with_tokenizer(data: Data, tokenizer: Path | None) -> Data:
    """Data whose text is split by the model's tokenizer, unless it names one.

    Raises InputError: there is none.
    """
    files = as_files(data)
    if not isinstance(files, DataFiles) or files.tokenizer is not None:
        return files
    if not all(name.lower().endswith(_TEXT) for name in files.sources):
        return files
    if tokenizer is None:
        raise InputError(
            f"{files.sources[0]}: text is split by the folder's {TOKENIZER}, which is missing; get"
            " it again"
        )
    return DataFiles(files.sources, files.preprocess, tokenizer)
