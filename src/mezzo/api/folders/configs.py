"""Updates of config.json for transformers.js: external data files and an FP16 cache.

Source: transformers.js 4.3.1, src/models/session.js and src/utils/model-loader.js; `kv_cache_dtype`
is used by 3.x, 4.x inspects the model itself.
"""

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mezzo.common.documents import parse_json

_FILE = "config.json"
_SECTION, _EXTERNAL, _CACHE = "transformers.js_config", "use_external_data_format", "kv_cache_dtype"
_MAX_BYTES = 16 << 20


def find_config(result: str, names: Iterable[str]) -> str | None:
    """The config.json of a model: in its own folder, else in the next one above."""
    available = frozenset(names)
    candidates = (str(folder / _FILE) for folder in PurePosixPath(result).parents)
    return next((name for name in candidates if name in available), None)


def update_config(
    path: Path, external: Iterable[str], cache_key: str | None, models: Iterable[str] = ()
) -> str | None:
    """The text of a config.json with external data files and, under `cache_key`, an FP16 cache.

    None if the text would not change, or the file is not JSON.
    """
    if path.stat().st_size > _MAX_BYTES:
        return None
    try:
        config = parse_json(path.read_bytes())
    except ValueError:
        return None
    if not isinstance(config, dict) or not isinstance(config.get(_SECTION, {}), dict):
        return None
    before = json.dumps(config)
    section = config.setdefault(_SECTION, {})
    data_files = section.get(_EXTERNAL)
    file_names = [PurePosixPath(name).name for name in external]
    # Applies to all files; results have one data file each.
    if isinstance(data_files, int) and data_files > 1:
        data_files = dict.fromkeys((PurePosixPath(name).name for name in models), data_files)
    if file_names and (isinstance(data_files, dict) or not data_files):
        section[_EXTERNAL] = {**(data_files or {}), **dict.fromkeys(file_names, 1)}
    caches = section.get(_CACHE)
    if cache_key is not None and caches != "float16":
        section[_CACHE] = {**(caches if isinstance(caches, dict) else {}), cache_key: "float16"}
    if not section or json.dumps(config) == before:
        return None
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate can be escaped in JSON but not encoded as UTF-8.
    return text if _has_utf8(text) else json.dumps(config, indent=2) + "\n"


def _has_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
