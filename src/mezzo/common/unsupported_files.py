"""Error messages for files and folders that are no ONNX models: what they are, what to do."""

import os
import re
from collections.abc import Iterable

from mezzo.common.file_kinds import EXPORT_FROM_HUB, FileKind, kind_by_name
from mezzo.common.message_style import setting, verb
from mezzo.common.name_matching import aside, did_you_mean

_MODEL = ".onnx"
# Entries of a folder that are listed at most.
_MOST_NAMES = 2000
_ADDRESS = re.compile(r"[A-Za-z]{2,}:/+([^?#]*/)?(?P<file>[^/?#]*)")
_FIELD = re.compile(r"\{(path|folder|data|plan|target)\}")
# "bert-base-uncased", "BAAI/bge-small-en-v1.5"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(?<!\.onnx)")


def describe_unsupported(path: str | os.PathLike[str], kind: FileKind) -> str:
    """The error for a file of another type: what it is, and how to get a model."""
    where = os.fspath(path)
    return f"{where!r} is {kind.what}, not an ONNX model; {_spell_remedy(kind, where)}"


def advise_missing(path: str | os.PathLike[str]) -> str:
    """Advice on a missing model, guessed from its name, with leading punctuation."""
    where = os.fspath(path)
    address = _ADDRESS.match(where)
    if address is not None:
        return (
            f"; it is a web address: download {address['file'] or 'the model'!r} first and name the"
            " file"
        )
    folder, _, name = where.rpartition("/")
    question = did_you_mean(
        name, [n for n in _names_in(folder or ".") if n.lower().endswith(_MODEL)], 1
    )
    if not question and _HUB_NAME.fullmatch(where):
        return (
            "; name an ONNX model file, or export a model of Hugging Face's hub:"
            f" {EXPORT_FROM_HUB.format(path=where)}"
        )
    return f"{aside(question)}; name an ONNX model file"


def describe_folder(path: str | os.PathLike[str]) -> str:
    """The error for a folder in place of a model: its content, and what to name."""
    where = os.fspath(path)
    names = _names_in(where)
    models = [name for name in names if name.lower().endswith(_MODEL)]
    if len(models) == 1:
        return f"{where!r} is a folder; name the model in it, {os.path.join(where, models[0])!r}"
    if models:
        listed = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
        return f"{where!r} is a folder with {len(models)} models, {listed}; name one of them"
    return f"{where!r} is {_folder_without_models(where, names)}"


def _folder_without_models(where: str, names: Iterable[str]) -> str:
    entries = set(names)
    if "saved_model.pb" in entries:
        convert = f"python -m tf2onnx.convert --saved-model {where} --output model.onnx"
        return f"a SavedModel of TensorFlow, not an ONNX model; convert it: {convert}"
    if where.rstrip("/").lower().endswith(".mlpackage"):
        return "a model of Core ML, not an ONNX model; name the model that it was made from"
    weights = sorted(
        name for name in entries if name.endswith((".safetensors", ".bin", ".gguf", ".pt", ".pth"))
    )
    if "config.json" in entries and weights:
        export = EXPORT_FROM_HUB.format(path=where)
        return (
            f"a model of Hugging Face without ONNX files ({weights[0]}); for a language model use"
            f" {verb('llm')}, or export it: {export}"
        )
    below = (os.path.join(where, name) for name in sorted(entries))
    inside = next(
        (f for f in below if any(name.lower().endswith(_MODEL) for name in _names_in(f))), None
    )
    if inside is not None:
        return f"a folder without an .onnx file; there is one in {inside!r}: name that"
    kind = next(
        (kind for name in weights if (kind := kind_by_name(name.lower())) is not None), None
    )
    if kind is not None:
        remedy = _spell_remedy(kind, os.path.join(where, weights[0]))
        return f"a folder without an .onnx file; {weights[0]} is {kind.what}: {remedy}"
    return "a folder without an .onnx file; name a model, or a folder of models"


def _spell_remedy(kind: FileKind, path: str) -> str:
    values = {
        "path": path,
        "folder": os.path.dirname(path) or ".",
        "data": setting("data", "FILE.npz"),
        "plan": setting("plan", "FILE.json"),
        "target": setting("target", kind.runtime),
    }
    return _FIELD.sub(lambda field: values[field[1]], kind.remedy)


def _names_in(folder: str) -> list[str]:
    """The first names in a folder, sorted; empty if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry, _ in zip(entries, range(_MOST_NAMES), strict=False))
    except OSError:
        return []
