"""JSON documents in a layout that diffs well: sections on own lines, list entries on one."""

import json
from collections.abc import Mapping

Document = dict[str, object]
_VERSION = 1
_OPEN_LEVELS = 2  # the document and its sections


def document(what: str, content: Mapping[str, object]) -> Document:
    """A document with the field "format" first: its kind and version."""
    return {"format": f"mezzo-{what}/{_VERSION}", **content}


def to_json(document: Mapping[str, object]) -> str:
    """A document as ASCII text. Raises ValueError: it has NaN or an infinity, which JSON lacks."""
    return _lay_out(document, 0)


def _lay_out(value: object, level: int) -> str:
    margin = "  " * (level + 1)
    if isinstance(value, Mapping) and value and level < _OPEN_LEVELS:
        lines = [
            f"{margin}{json.dumps(str(name))}: {_lay_out(inner, level + 1)}"
            for name, inner in value.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n" + "  " * level + "}"
    if isinstance(value, list) and any(isinstance(item, Mapping | list) for item in value):
        rows = [f"{margin}{_spell_row(item)}" for item in value]
        return "[\n" + ",\n".join(rows) + "\n" + "  " * level + "]"
    return _spell_row(value)


def _spell_row(value: object) -> str:
    return json.dumps(value, allow_nan=False)
