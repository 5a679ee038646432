"""Plans as JSON: written, read by people, edited by hand, read back."""

import json
import os
from pathlib import Path

from mezzo.dtypes import DType
from mezzo.errors import InputError
from mezzo.plans import Plan, PlannedNode, Precision, uniform
from mezzo.policy import Category

FORMAT = "mezzo-plan/1"
_MAX_BYTES = 1 << 30


def to_json(plan: Plan) -> str:
    """One JSON document; a node takes one line, so that a diff shows what changed."""
    head = {
        "format": FORMAT,
        "fingerprint": plan.fingerprint,
        "high": str(plan.high),
        "low": str(plan.low),
        "opset": plan.opset,
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
    place = Path(path)
    staged = place.with_name(f".{place.name}.{os.getpid()}.tmp")
    try:
        staged.write_text(to_json(plan), encoding="utf-8")
        os.replace(staged, place)
    except OSError as error:
        staged.unlink(missing_ok=True)
        raise InputError(f"cannot write plan {str(path)!r}: {error.strerror}; nothing was written") from error


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan. Its edits are made anew when it is applied, from the precisions it states.

    Raises:
        InputError: no file, no plan, or a field that is not what it should be.
    """
    where = f"plan {str(path)!r}"
    try:
        if Path(path).stat().st_size > _MAX_BYTES:
            raise InputError(f"{where} is larger than {_MAX_BYTES} bytes; no plan is")
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}; give the path of a plan") from error
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise InputError(f"{where} is not JSON ({str(error).splitlines()[0]}); save it again with --save-plan") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else type(document).__name__
        raise InputError(f"{where} has format {found!r}, wanted {FORMAT!r}; save it again with --save-plan")
    try:
        fingerprint = _text(document, "fingerprint")
        nodes = tuple(_read_node(entry) for entry in document["nodes"])
        return Plan(
            high=DType(document["high"]),
            low=DType(document["low"]),
            opset=document["opset"] if isinstance(document["opset"], int) else None,
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


def _read_node(entry: dict[str, object]) -> PlannedNode:
    name = _text(entry, "name")
    held = entry["precision"]
    try:
        precision = Precision(*(DType(d) for d in held)) if isinstance(held, list) else uniform(DType(held))
        category = None if entry["category"] is None else Category(entry["category"])
    except (ValueError, TypeError) as error:
        raise ValueError(f"node {name!r}: {error}") from error
    cause = entry["cause"]
    return PlannedNode(
        name, _text(entry, "op"), _text(entry, "kind"), precision, category, _text(entry, "rule"), _text(entry, "because"),
        cause if isinstance(cause, str) else None,
    )  # fmt: skip
