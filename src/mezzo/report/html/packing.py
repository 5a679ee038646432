"""Accounts as a page embeds them: long lists as columns, strings once, then gzip in base64.

A list of records with the same fields becomes {"rows": count, "columns": {field: column}}. A column
is {"words": indices into the document's strings, -1 for null}, {"lists": lists of such indices},
{"at": indices, "of": the distinct values}, or {"raw": values}. `scripts/packing.js` reads them.
"""

import base64
import gzip
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from mezzo.common.documents import parse_json

Records = Sequence[Mapping[str, Any]]
# Paths of the lists that grow with the model.
_LONG = (
    ("decisions",),
    ("conversion", "stayed_high"),
    ("graph", "groups"),
    ("graph", "nodes"),
    ("graph", "values"),
)
_LARGEST_BYTES = 1 << 28  # of an unpacked document
_EMBEDDED = re.compile(r'<script type="text/plain" id="account">([^<]*)</script>')


def pack(account: Mapping[str, object]) -> str:
    """The account as characters without a meaning in HTML or JavaScript, deterministic."""
    strings: dict[str, int] = {}
    document = _pack_document(account, strings)
    runs = account.get("runs")
    if isinstance(runs, list):
        document["runs"] = [_pack_document(run, strings) for run in runs]
    text = json.dumps(
        {"strings": list(strings), "account": document}, allow_nan=False, separators=(",", ":")
    )
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode()


def unpack(packed: str) -> dict[str, Any]:
    """The account that was packed. Raises ValueError: the text is not one."""
    try:
        unzip = zlib.decompressobj(zlib.MAX_WBITS | 16)
        text = unzip.decompress(base64.b64decode(packed, validate=True), _LARGEST_BYTES)
        if unzip.unconsumed_tail:
            raise ValueError(f"the account has more than {_LARGEST_BYTES} bytes")
        content = parse_json(text)
        strings, document = content["strings"], content["account"]
        document["runs"] = [_unpack_document(run, strings) for run in document.get("runs", [])]
        return _unpack_document(document, strings)
    except (zlib.error, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the account cannot be unpacked: {error}") from error


def find_account(page: str) -> dict[str, Any]:
    """The account in a page. Raises ValueError: the page has none, or it is damaged."""
    packed = _EMBEDDED.search(page)
    if packed is None:
        raise ValueError("it has no account")
    return unpack(packed[1])


def _pack_document(account: Mapping[str, Any], strings: dict[str, int]) -> dict[str, Any]:
    packed = dict(account)
    for *sections, name in _LONG:
        outer = packed
        for section in sections:
            outer[section] = dict(outer[section]) if outer.get(section) else None
            outer = outer[section] or {}
        if outer.get(name):
            outer[name] = _pack_rows(outer[name], strings)
    return {name: packed[name] for name in account}


def _unpack_document(packed: dict[str, Any], strings: Sequence[str]) -> dict[str, Any]:
    for *sections, name in _LONG:
        outer = packed
        for section in sections:
            outer = outer.get(section) or {}
        if outer.get(name):
            outer[name] = _unpack_rows(outer[name], strings)
    return packed


def _pack_rows(rows: Records, strings: dict[str, int]) -> dict[str, Any]:
    columns = {field: _pack_column([row[field] for row in rows], strings) for field in rows[0]}
    return {"rows": len(rows), "columns": columns}


def _pack_column(values: list[Any], strings: dict[str, int]) -> dict[str, Any]:
    kinds = set(map(type, values))
    if kinds <= {str, type(None)}:
        return {"words": [_index(value, strings) for value in values]}
    if kinds <= {int, type(None)}:
        return {"raw": values}
    if kinds == {list} and all(type(item) is str for value in values for item in value):
        return {"lists": [[_index(item, strings) for item in value] for value in values]}
    distinct: dict[str, int] = {}
    at = [distinct.setdefault(json.dumps(value), len(distinct)) for value in values]
    if 2 * len(distinct) > len(values):
        return {"raw": values}
    return {"at": at, "of": [json.loads(text) for text in distinct]}


def _index(value: str | None, strings: dict[str, int]) -> int:
    return -1 if value is None else strings.setdefault(value, len(strings))


def _unpack_rows(packed: Mapping[str, Any], strings: Sequence[str]) -> list[dict[str, Any]]:
    columns = {
        field: _unpack_column(column, strings) for field, column in packed["columns"].items()
    }
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]


def _unpack_column(column: Mapping[str, Any], strings: Sequence[str]) -> Sequence[Any]:
    if "words" in column:
        return [None if index < 0 else strings[index] for index in column["words"]]
    if "lists" in column:
        return [[strings[index] for index in items] for items in column["lists"]]
    if "at" in column:
        return [column["of"][index] for index in column["at"]]
    values: Sequence[Any] = column["raw"]
    return values
