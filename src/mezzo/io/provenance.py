"""What made a model: the steps that led to it and the plan of its nodes, as one text that the model carries.

The text is JSON in ASCII, the same for the same decisions, and small: nodes are told by their order, each by a number
that stands for a precision with its reason. It says what was decided, not what followed: who only followed a neighbour
is found again by whoever reads it. Whoever reads it takes it for hostile.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from mezzo.formats.dtypes import HIGH, LEVEL_DTYPES, QUANTIZED, DType
from mezzo.formats.precision_line import Precision, uniform
from mezzo.io.documents import parse_json
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.policy import Category

FORMAT = "mezzo-provenance/1"
# No model that can be written comes near it; reading takes memory in proportion.
MAX_BYTES = 8 << 20
_MAX_STEPS = 8
_MAX_NODES = 1 << 22
# Reasons may take so much beside the nodes themselves; past it they are left out, and rules alone are told.
_REASON_BYTES, _REASON_BYTES_PER_NODE = 1 << 16, 32
_LONGEST_REASON = 400
LONGEST_TEXT = 1000
NO_ROOM = "its reason was left out of the model's metadata for want of room"
# Stands for the name of a row's cause in its text, so that repeated blocks share their texts.
_CAUSE = "{cause}"
_RUN = re.compile(r"(\d{1,7})(?:x(\d{1,7}))?")
_KINDS = frozenset({Kind.OP, Kind.TIE, Kind.INPUT, Kind.OUTPUT})


class ProvenanceStep(NamedTuple):
    """One run of mezzo: its version, the command, and the options that decided, without paths."""

    version: str
    command: str
    options: tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """What was decided about a node. `rule` is None for a node that followed a neighbour.

    `cause` is the node that led to it: by its distance among the nodes told of, or by name where it is none of them.
    """

    precision: Precision
    category: Category | None
    rule: str | None
    because: str
    cause: int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a model was made. `runs` tell each node by the number of its row: (row, how many in turn).

    `names` is a digest of the nodes' names and operators, alike in the model that came in and in the one that came out;
    `added` are nodes that are in the second only, `casts` those that were in the first. `follows` and `leaves` are the
    strategy's words. `low` is the float beside FP32, or what is quantized to where there is none.
    """

    steps: tuple[ProvenanceStep, ...]
    low: DType
    names: str
    added: tuple[str, ...]
    casts: tuple[str, ...]
    follows: str
    leaves: tuple[str, str]
    rows: tuple[Row, ...]
    runs: tuple[tuple[int, int], ...]

    @property
    def is_quantized(self) -> bool:
        """Whether some nodes run on integers: these are typed in FP32, between Quantize and Dequantize."""
        return any(row.precision.compute in QUANTIZED for row in self.rows)

    @property
    def size(self) -> int:
        """How many nodes are told of."""
        return sum(count for _, count in self.runs)

    def each_row(self) -> list[Row]:
        """One row per node."""
        return [row for number, count in self.runs for row in [self.rows[number]] * count]


def told_nodes(graph: Graph) -> list[Node]:
    """The nodes that a text tells of, in its order: those that compute floats, but no weights and no casts."""
    return [node for node in graph.nodes if node.signature.dtype is not None and node.kind in _KINDS]


def told_casts(graph: Graph) -> list[Node]:
    """The casts of a model that round on purpose. Nodes may follow them, but a conversion may take them away."""
    casts = [graph.nodes[number] for number in graph.columns.is_kind(Kind.CAST).nonzero()[0].tolist()]
    return [node for node in casts if node.signature.dtype is not None]


def digest_names(nodes: Iterable[Node]) -> str:
    """Name a sequence of nodes by their names and operators."""
    lines = "\n".join([f"{node.name}\t{node.signature.op}" for node in nodes])
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def hide_name(because: str, cause: str) -> str:
    """A reason without the name of its cause, for `show_name` to put back."""
    return because if _CAUSE in because else because.replace(repr(cause), _CAUSE, 1)


def show_name(because: str, cause: str) -> str:
    """A reason with the name of its cause."""
    return because.replace(_CAUSE, repr(cause), 1)


def count_runs(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Say a sequence as numbers with how often each stands in turn."""
    return tuple((number, len([*alike])) for number, alike in groupby(numbers))


# -- writing ------------------------------------------------------------------------------------------------------


def to_text(given: Provenance) -> str:
    """Spell it out."""
    reasons: dict[str, int] = {}
    room = _REASON_BYTES + _REASON_BYTES_PER_NODE * given.size
    rows: list[object] = []
    for row in given.rows:
        text = _plain(row.because)[:_LONGEST_REASON]
        if text not in reasons:
            room -= len(text)
            text = text if room >= 0 else NO_ROOM
        number = reasons.setdefault(text, len(reasons))
        category = None if row.category is None else row.category.value
        told = [] if row.rule is None else [_plain(row.rule), number, *([] if row.cause is None else [row.cause])]
        rows.append([_spell_precision(row.precision), category, *told])
    document = {
        "format": FORMAT,
        "made": [
            {"mezzo": step.version, "command": step.command, "options": dict(step.options)}
            for step in given.steps[-_MAX_STEPS:]
        ],
        "low": str(given.low),
        "names": given.names,
        "added": given.added,
        "casts": given.casts,
        "follows": _plain(given.follows),
        "leaves": given.leaves,
        "reasons": list(reasons),
        "rows": rows,
        "nodes": " ".join([f"{number}x{count}" if count > 1 else str(number) for number, count in given.runs]),
    }
    return json.dumps(document, separators=(",", ":"))


def _plain(text: str) -> str:
    """A text that any terminal and file takes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)


def _spell_precision(precision: Precision) -> object:
    spelled = [str(dtype) for dtype in precision]
    return spelled[0] if len(set(spelled)) == 1 else spelled


# -- reading ------------------------------------------------------------------------------------------------------


def read_text(text: str) -> Provenance:
    """Read it back. Raises ValueError: it is not what `to_text` writes; the message says what is wrong."""
    if len(text) > MAX_BYTES:
        raise ValueError(f"it is longer than {MAX_BYTES} bytes")
    try:
        document = parse_json(text, pairs=_no_duplicates)
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    try:
        return _read_document(document)
    except KeyError as error:
        raise ValueError(f"it lacks {error.args[0]!r}") from error
    except (TypeError, AttributeError, IndexError) as error:
        raise ValueError("a field of it is of another type than it should be") from error


def _no_duplicates(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("it says a field twice")
    return found


def _read_document(document: dict[str, object]) -> Provenance:
    reasons = _texts(document["reasons"])
    rows = tuple(_read_row(entry, reasons) for entry in _list(document["rows"]))
    low = DType(_text(document["low"]))
    if low not in LEVEL_DTYPES.values():
        raise ValueError(f"its low format is {low}")
    if any(dtype not in (low, HIGH, *QUANTIZED) for row in rows for dtype in row.precision):
        raise ValueError(f"it tells of other formats than {low} and {HIGH}")
    rule, because = _texts(document["leaves"])
    steps = tuple(_read_step(entry) for entry in _list(document["made"]))
    if not 1 <= len(steps) <= _MAX_STEPS:
        raise ValueError(f"it tells of {len(steps)} steps")
    return Provenance(
        steps=steps,
        low=low,
        names=_text(document["names"]),
        added=tuple(name for name in _list(document["added"]) if isinstance(name, str)),
        casts=tuple(name for name in _list(document["casts"]) if isinstance(name, str)),
        follows=_text(document["follows"]),
        leaves=(rule, because),
        rows=rows,
        runs=_read_runs(_text(document["nodes"], MAX_BYTES), len(rows)),
    )


def _read_step(entry: object) -> ProvenanceStep:
    if not isinstance(entry, dict) or not isinstance(entry["options"], dict):
        raise ValueError("a step of it is no object")
    options = tuple((_text(name), _text(value)) for name, value in entry["options"].items())
    return ProvenanceStep(_text(entry["mezzo"]), _text(entry["command"]), options)


def _read_row(entry: object, reasons: Sequence[str]) -> Row:
    parts = _list(entry)
    held = parts[0]
    precision = Precision(*map(DType, _texts(held))) if isinstance(held, list) else uniform(DType(_text(held)))
    category = None if parts[1] is None else Category(_text(parts[1]))
    if len(parts) == 2:
        return Row(precision, category, None, "", None)
    rule, number, cause = (*parts[2:], None)[:3]
    if type(number) is not int or not 0 <= number < len(reasons):
        raise ValueError("a row of it names no reason")
    if cause is not None and type(cause) is not int and type(cause) is not str:
        raise ValueError("a row of it names no cause")
    return Row(precision, category, _text(rule), reasons[number], cause)


def _read_runs(text: str, rows: int) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    total = 0
    for word in text.split():
        found = _RUN.fullmatch(word)
        if found is None:
            raise ValueError("its nodes are no numbers")
        number, count = int(found[1]), int(found[2] or 1)
        total += count
        if number >= rows or total > _MAX_NODES:
            raise ValueError("it tells of rows or nodes that are not there")
        runs.append((number, count))
    return tuple(runs)


def _text(value: object, longest: int = LONGEST_TEXT) -> str:
    if not isinstance(value, str) or len(value) > longest or not value.isprintable():
        raise ValueError(f"a field of it is no printable text of at most {longest} characters")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError("a field of it is no list")
    return value


def _texts(value: object) -> list[str]:
    return [_text(entry) for entry in _list(value)]
