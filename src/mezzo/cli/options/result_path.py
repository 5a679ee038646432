"""The argument OUT: its default, and mistakes in it."""

import os
from collections.abc import Mapping
from pathlib import Path

from mezzo.common.errors import InputError
from mezzo.contracts.options.keywords import request_of
from mezzo.formats.format_words import AUTO, FORMAT_WORDS, FP32, plain_word
from mezzo.report.layout.names import quote

# In the name of a result whose formats are chosen by measurement.
_OF_AUTO = "mixed"


def name_result(
    source: Path,
    result: Path | None,
    chosen: Mapping[str, object],
    *,
    plan: Path | None,
    overwrite: bool,
) -> Path:
    """The path of the result: OUT, or the source's name with the formats, such as model.fp16.onnx,
    or model.mixed.onnx where they are chosen by measurement.

    Raises InputError: OUT cannot be meant, it is needed, or the default name is taken.
    """
    if result is not None:
        _check_order(source, result)
        return result
    words = ["mezzo", "convert", _quote(source), "OUT"]
    if source.is_dir():
        raise InputError(f"'convert' lacks OUT: where the folder goes; write {' '.join(words)}")
    if plan is not None:
        words += ["--plan", _quote(plan)]
        raise InputError(f"'convert' lacks OUT: where the model goes; write {' '.join(words)}")
    from mezzo.planner.options import requested_formats

    request, formats = request_of(chosen), _OF_AUTO
    if request.to == FP32:
        formats = FP32
    elif request.to != AUTO:  # what is fastest is known when it is converted
        formats = requested_formats(request).replace(",", "-")
    named = source.with_name(f"{source.stem}.{formats}.onnx")
    if named.exists() and not overwrite:
        raise InputError(
            f"{os.fspath(named)!r} is there already; name a result as the second word, or pass"
            " --overwrite"
        )
    return named


def _check_order(source: Path, result: Path) -> None:
    """Raises InputError: OUT is a format, or IN and OUT are swapped."""
    word = os.fspath(result)
    if plain_word(word) in (*FORMAT_WORDS, FP32) and not result.exists():
        raise InputError(
            f"{word!r} is a format, not a file; write mezzo convert {_quote(source)} --to"
            f" {plain_word(word)}"
        )
    if not source.exists() and result.is_file():
        raise InputError(
            f"there is no {os.fspath(source)!r}, and {word!r} exists: the model comes first; write"
            f" mezzo convert {_quote(result)} {_quote(source)}"
        )


def _quote(path: Path) -> str:
    return quote(os.fspath(path))
