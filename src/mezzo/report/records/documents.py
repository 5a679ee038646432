"""Records as JSON documents, in a layout that diffs well: sections on own lines, entries on one.

JSON has no infinities and no NaN: they are the strings "inf", "-inf" and "nan". Absent values are
null.
"""

import dataclasses
import enum
import json
import math
import os
import pkgutil
from collections.abc import Mapping
from typing import Any

from mezzo.report.records.groups import NamedNode
from mezzo.tables.quantized_kernels import Storage

Document = dict[str, object]
_VERSION = 1
_OPEN_LEVELS = 2  # the document and its sections
# Named tuples that documents list without the names of their fields.
_AS_LISTS = (NamedNode, Storage)


def document(what: str, content: Mapping[str, object]) -> Document:
    """A document with the field "format" first: its kind and version."""
    return {"format": f"mezzo-{what}/{_VERSION}", **content}


def read_schema(what: str) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a kind of documents, which describes every field."""
    text = pkgutil.get_data(__package__, f"{what}.schema.json")
    assert text is not None, "the package's loader reads files"
    schema: dict[str, Any] = json.loads(text)
    return schema


def number(value: float) -> float | str:
    """A number with nine significant digits, enough for any FP32 number; integers exactly."""
    converted = float(value)
    if math.isnan(converted):
        return "nan"
    if math.isinf(converted):
        return "inf" if converted > 0 else "-inf"
    return converted if converted.is_integer() else float(f"{converted:.9g}")


def encode_fields(record: object) -> Document:
    """The fields of a dataclass or a named tuple, in order, as JSON data."""
    names = getattr(record, "_fields", None) or [
        field.name
        for field in dataclasses.fields(record)  # type: ignore[arg-type]  # raises for others
    ]
    return {name: encode(getattr(record, name)) for name in names}


def encode(value: object) -> object:
    """Any record as JSON data: enums become their values, sets sorted lists, functions names."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return number(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, tuple | list):
        is_record = hasattr(value, "_fields") and not isinstance(value, _AS_LISTS)
        return encode_fields(value) if is_record else [encode(item) for item in value]
    if dataclasses.is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, Mapping):
        return {str(name): encode(item) for name, item in value.items()}
    if isinstance(value, frozenset):
        return sorted(map(encode, value), key=str)
    if callable(value):
        return getattr(value, "__name__", str(value))
    return encode(value.item())  # type: ignore[attr-defined]  # a NumPy scalar


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
