"""Plans as JSON: written, read by people, edited by hand, read back."""

import json
import os

from mezzo.core.levels import Line, Precision, uniform
from mezzo.core.plans import Plan, PlannedNode
from mezzo.core.policy import Category
from mezzo.dtypes import FORMATS, HIGH, DType, size_bits
from mezzo.errors import InputError
from mezzo.file_kinds import tell_kind
from mezzo.places import read_file, write_file
from mezzo.voices import either

FORMAT = "mezzo-plan/1"
_MAX_BYTES = 1 << 30
_MAX_VERSION = 1000
# What older files are of, which say "opset" and no dialect.
_OLD_DIALECT, _OLD_VERSION = "onnx", "opset"


def to_json(plan: Plan) -> str:
    """One JSON document; a node takes one line, so that a diff shows what changed."""
    head = {
        "format": FORMAT,
        "fingerprint": plan.fingerprint,
        "levels": [str(dtype) for dtype in plan.line.dtypes],
        "base": str(plan.line.base_dtype),
        "dialect": plan.dialect,
        "version": plan.version,
        "settings": dict(plan.settings),
        "limits": dict(plan.limits),
        "notes": list(plan.notes),
    }
    lines = [json.dumps(_node(node), ensure_ascii=False) for node in plan.nodes]
    body = ",\n    ".join(lines)
    text = json.dumps(head, indent=2, ensure_ascii=False)
    return f'{text[:-2]},\n  "nodes": [\n    {body}\n  ]\n}}\n' if lines else f'{text[:-2]},\n  "nodes": []\n}}\n'


def _node(node: PlannedNode) -> dict[str, object]:
    compute, accumulate, output = (str(dtype) for dtype in node.precision)
    precision: object = compute if compute == accumulate == output else [compute, accumulate, output]
    return {
        "name": node.name,
        "op": node.op,
        "kind": node.kind,
        "precision": precision,
        "category": None if node.category is None else node.category.value,
        "rule": node.rule,
        "because": node.because,
        "cause": node.cause,
    }


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write a plan, all of it or nothing. Raises InputError: the place cannot be written."""
    write_file(path, to_json(plan).encode(), "plan")


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan. Its edits are made anew when it is applied, from the precisions it states.

    Raises:
        InputError: no file, no plan, or a field that is not what it should be.
    """
    where = f"plan {str(path)!r}"
    try:
        data = read_file(path, _MAX_BYTES)
        if data is None:
            raise InputError(f"{where} is larger than {_MAX_BYTES} bytes; no plan is")
        document = json.loads(data.decode())
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}; give the path of a plan") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        kind = None if os.fspath(path).lower().endswith(".json") else tell_kind(path)
        what = f"is {kind.what}, not a plan" if kind else f"is not JSON ({str(error).splitlines()[0]})"
        raise InputError(f"{where} {what}; {_save_again()}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InputError(f"{where} has format {found!r}, wanted {FORMAT!r}; {_save_again()}")
    try:
        fingerprint = _text(document, "fingerprint")
        nodes = tuple(_read_node(entry) for entry in document["nodes"])
        names = [node.name for node in nodes]
        if len(set(names)) < len(names):
            raise ValueError(f"node {next(n for n in names if names.count(n) > 1)!r} has two lines")
        if not isinstance(document["notes"], list):
            raise ValueError("notes are no list")
        is_old = "dialect" not in document and _OLD_VERSION in document
        return Plan(
            line=_line(document),
            dialect=_OLD_DIALECT if is_old else _text(document, "dialect"),
            version=_version(document, _OLD_VERSION if is_old else "version"),
            settings=tuple((str(k), str(v)) for k, v in document["settings"].items()),
            edits=(),
            limits=tuple((str(name), float(limit)) for name, limit in document["limits"].items()),
            notes=tuple(str(note) for note in document["notes"]),
            make_nodes=lambda: nodes,
            make_fingerprint=lambda: fingerprint,
        )
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{where} lacks or misstates a field: {error}; compare it with a plan saved afresh") from error


def _text(entry: dict[str, object], key: str) -> str:
    value = entry[key]
    if not isinstance(value, str):
        raise ValueError(f"{key} is {value!r}, wanted text")
    return value


def _line(document: dict[str, object]) -> Line:
    """The levels of a plan. Older files state a pair, as "high" and "low"."""
    if "levels" in document or not document.keys() & {"high", "low"}:
        words, base = document["levels"], DType(document["base"])
        if not isinstance(words, list):
            raise ValueError(f"levels is {words!r}, wanted a list")
    else:
        words, base = [document["high"], document["low"]], DType(document["high"])
    if base is not HIGH:
        raise ValueError(f"base is {base}, wanted {HIGH}")
    dtypes = tuple(map(DType, words))
    known = {dtype for dtype in FORMATS if size_bits(dtype) < size_bits(HIGH)}
    if len(dtypes) < 2 or len({*dtypes}) < len(dtypes) or not {HIGH} < {*dtypes} <= {HIGH, *known}:
        found, lows = ", ".join(map(str, dtypes)) or "none", ", ".join(sorted(map(str, known)))
        raise ValueError(f"levels are {found}, wanted {HIGH} and some of {lows} beside it, each once")
    return Line(tuple(map(uniform, dtypes)), dtypes.index(base))


def _version(document: dict[str, object], key: str) -> int | None:
    value = document[key]
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MAX_VERSION):
        return value
    raise ValueError(f"{key} is {value!r}, wanted a number from 1 to {_MAX_VERSION} or null")


def _read_node(entry: dict[str, object]) -> PlannedNode:
    name = _text(entry, "name")
    held = entry["precision"]
    try:
        precision = Precision(*(DType(d) for d in held)) if isinstance(held, list) else uniform(DType(held))
        category = None if entry["category"] is None else Category(entry["category"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"node {name!r}: {error}") from error
    cause = entry["cause"]
    if cause is not None and not isinstance(cause, str):
        raise ValueError(f"node {name!r}: cause is {cause!r}, wanted a node's name or null")
    return PlannedNode(
        name,
        _text(entry, "op"),
        _text(entry, "kind"),
        precision,
        category,
        _text(entry, "rule"),
        _text(entry, "because"),
        cause,
    )


def _save_again() -> str:
    return either("save it again with --save-plan", "save it again with mezzo.save_plan")
