"""Folders of onnxruntime-genai: genai_config.json names the models and their generation settings.

The config has no types: the runtime gets the types of inputs and outputs from each model. With
`past_present_share_buffer` it binds one buffer as past and present cache, so a cache has the type
of attention's input. Source: onnxruntime-genai 0.18, src/config.h, src/models/kv_cache.cpp and
models/builders/base.py.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from mezzo.common.errors import InputError

CONFIG = "genai_config.json"
# The model of a folder of OpenVINO GenAI.
OPENVINO_MODEL = "openvino_model.xml"
# Suffix of external data files, as onnxruntime-genai's model builder writes them.
DATA_SUFFIX = ".data"
_MAX_BYTES = 16 << 20
_FILENAME = "filename"


def find_configs(names: Iterable[str]) -> tuple[str, ...]:
    """The paths of genai_config.json files in a folder."""
    return tuple(name for name in names if PurePosixPath(name).name == CONFIG)


def check_config(root: Path, name: str) -> None:
    """Raises InputError: a config is too large, no JSON, or names a file outside its folder."""
    for path in _filenames(read_config(root, name)):
        parts = PurePosixPath(path.replace("\\", "/")).parts
        if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0]:
            raise InputError(
                f"{name!r} names {path[:80]!r}, which lies outside its folder; name a file"
                " beside it"
            )


def update_config(root: Path, name: str, results: Mapping[str, str]) -> str | None:
    """The text of a config with results in place of source models; None if it would not change.

    Both are given by their paths in the folder.
    """
    config, folder = read_config(root, name), PurePosixPath(name).parent
    is_changed = False
    for section in _sections(config):
        result = results.get(str(folder / str(section[_FILENAME])))
        if result is not None and result != str(folder / section[_FILENAME]):
            section[_FILENAME] = PurePosixPath(result).relative_to(folder).as_posix()
            is_changed = True
    return json.dumps(config, indent=4) + "\n" if is_changed else None


def read_config(root: Path, name: str) -> dict[str, Any]:
    """A genai_config.json. Raises InputError: it is too large, or no such config."""
    path = root / name
    if path.stat().st_size > _MAX_BYTES:
        raise InputError(
            f"{name!r} has {path.stat().st_size} bytes, and no such config has more than"
            f" {_MAX_BYTES}"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(
            f"{name!r} is no JSON: {reason}; get the file again, or take it out of the folder"
        ) from error
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise InputError(
            f"{name!r} has no object 'model', which names the folder's models; get the file again"
        )
    return config


def _filenames(config: Mapping[str, Any]) -> Iterator[str]:
    yield from (section[_FILENAME] for section in _sections(config))


def _sections(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects of a config that name a model's file."""
    pending: list[object] = [config["model"]]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            if isinstance(item.get(_FILENAME), str):
                yield item
            pending += item.values()
        elif isinstance(item, list):
            pending += item
