"""Provenance metadata of a converted model: the conversion steps and the decision on each node, as
one text.

The text is ASCII JSON, deterministic and compact: nodes are listed by position, each as the number
of a shared row of precision and reason. It omits nodes that only follow a neighbour: readers derive
these. Readers treat it as hostile.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from mezzo.common.documents import parse_json
from mezzo.formats.dtypes import HIGH, LEVEL_DTYPES, LOW_DTYPES, QUANTIZED, DType
from mezzo.formats.precision_line import Precision, uniform
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node
from mezzo.tables.policy import Category

FORMAT = "mezzo-provenance/1"
# Far more than any model needs; reading takes memory in proportion.
MAX_BYTES = 8 << 20
_MAX_STEPS = 8
_MAX_NODES = 1 << 22
# Space for reasons; past it reasons are left out, and only rules are recorded.
_REASON_BYTES, _REASON_BYTES_PER_NODE = 1 << 16, 32
_LONGEST_REASON = 400
LONGEST_TEXT = 1000
NO_ROOM = "its reason was left out of the model's metadata for want of room"
# Placeholder for the cause's name in a reason, so that repeated blocks share one text.
_CAUSE = "{cause}"
_RUN = re.compile(r"(\d{1,7})(?:x(\d{1,7}))?")
_OWN_OPERATORS: Mapping[str, str] = MappingProxyType({})
_KINDS = frozenset({Kind.OP, Kind.TIE, Kind.INPUT, Kind.OUTPUT})


class ProvenanceStep(NamedTuple):
    """One run of mezzo: version, command, and the options that decided, without paths."""

    version: str
    command: str
    options: tuple[tuple[str, str], ...]


class Row(NamedTuple):
    """Decision on a node. `rule` is None for a node that follows a neighbour.

    `cause`: the node that caused it, as a distance in the list of recorded nodes, or as a name if
    not in the list.
    """

    precision: Precision
    category: Category | None
    rule: str | None
    because: str
    cause: int | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """How a model was made. `runs`: run-length encoded row numbers of the nodes: (row, count).

    `names`: digest of the nodes' names and operators, equal in the source model and the result;
    `added`: nodes of the result only; `casts`: narrowing casts of the source. `follows` and
    `leaves`: the strategy's reasons. `low`: the float below FP32, or the quantized format if there
    is none; FP32 where only the storage of weights was chosen.
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
        """Whether some nodes run quantized: they are FP32-typed, between QuantizeLinear and
        DequantizeLinear.
        """
        return any(row.precision.compute in QUANTIZED for row in self.rows)

    @property
    def floats(self) -> tuple[DType, ...]:
        """The float below FP32 and further ones that nodes run in, or `low` alone."""
        used = {row.precision.compute for row in self.rows}
        return (self.low, *(d for d in LOW_DTYPES.values() if d in used and d is not self.low))

    @property
    def size(self) -> int:
        """Number of recorded nodes."""
        return sum(count for _, count in self.runs)

    def each_row(self) -> list[Row]:
        """One row per node."""
        return [row for number, count in self.runs for row in [self.rows[number]] * count]


def recorded_nodes(graph: Graph) -> list[Node]:
    """The recorded nodes, in order: those with a float dtype, except weights and casts."""
    return [
        node for node in graph.nodes if node.signature.dtype is not None and node.kind in _KINDS
    ]


def recorded_casts(graph: Graph) -> list[Node]:
    """The narrowing casts of a model. Nodes may follow them, but a conversion may remove them."""
    casts = [
        graph.nodes[number] for number in graph.columns.is_kind(Kind.CAST).nonzero()[0].tolist()
    ]
    return [node for node in casts if node.signature.dtype is not None]


def digest_names(nodes: Iterable[Node], operators: Mapping[str, str] = _OWN_OPERATORS) -> str:
    """Hash of a sequence of nodes, by name and operator; `operators`: of those with another."""
    lines = "\n".join(
        [f"{node.name}\t{operators.get(node.name, node.signature.op)}" for node in nodes]
    )
    return hashlib.sha256(lines.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def hide_name(because: str, cause: str) -> str:
    """A reason with a placeholder for its cause's name, to be restored by `show_name`."""
    return because if _CAUSE in because else because.replace(repr(cause), _CAUSE, 1)


def show_name(because: str, cause: str) -> str:
    """A reason with its cause's name restored."""
    return because.replace(_CAUSE, repr(cause), 1)


def count_runs(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Run-length encoding: (number, count)."""
    return tuple((number, len([*alike])) for number, alike in groupby(numbers))


# -- writing ---------------------------------------------------------------------------------------


def to_text(provenance: Provenance) -> str:
    """Serialize."""
    reasons: dict[str, int] = {}
    space = _REASON_BYTES + _REASON_BYTES_PER_NODE * provenance.size
    rows: list[object] = []
    for row in provenance.rows:
        text = _plain(row.because)[:_LONGEST_REASON]
        if text not in reasons:
            space -= len(text)
            text = text if space >= 0 else NO_ROOM
        number = reasons.setdefault(text, len(reasons))
        category = None if row.category is None else row.category.value
        reason_fields = (
            []
            if row.rule is None
            else [_plain(row.rule), number, *([] if row.cause is None else [row.cause])]
        )
        rows.append([spell_precision(row.precision), category, *reason_fields])
    document = {
        "format": FORMAT,
        "made": [
            {"mezzo": step.version, "command": step.command, "options": dict(step.options)}
            for step in provenance.steps[-_MAX_STEPS:]
        ],
        "low": str(provenance.low),
        "names": provenance.names,
        "added": provenance.added,
        "casts": provenance.casts,
        "follows": _plain(provenance.follows),
        "leaves": provenance.leaves,
        "reasons": list(reasons),
        "rows": rows,
        "nodes": " ".join(
            [f"{number}x{count}" if count > 1 else str(number) for number, count in provenance.runs]
        ),
    }
    return json.dumps(document, separators=(",", ":"))


def _plain(text: str) -> str:
    """Printable text: other characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text
    )


def spell_precision(precision: Precision) -> object:
    """One dtype if all three agree, else the three."""
    spelled = [str(dtype) for dtype in precision]
    return spelled[0] if len(set(spelled)) == 1 else spelled


# -- reading ---------------------------------------------------------------------------------------


def read_text(text: str) -> Provenance:
    """Parse the output of `to_text`. Raises ValueError: malformed, with the cause."""
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
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("it says a field twice")
    return fields


def _read_document(document: dict[str, object]) -> Provenance:
    reasons = _texts(document["reasons"])
    rows = tuple(_read_row(entry, reasons) for entry in _list(document["rows"]))
    low = DType(_text(document["low"]))
    if low not in (HIGH, *LEVEL_DTYPES.values()):
        raise ValueError(f"its low format is {low}")
    known = {low, HIGH, *LEVEL_DTYPES.values()}
    other = next((d for row in rows for d in row.precision if d not in known), None)
    if other is not None:
        raise ValueError(f"it tells of a format that no model is converted to: {other}")
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
    stated = parts[0]
    precision = (
        Precision(*map(DType, _texts(stated)))
        if isinstance(stated, list)
        else uniform(DType(_text(stated)))
    )
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
        match = _RUN.fullmatch(word)
        if match is None:
            raise ValueError("its nodes are no numbers")
        number, count = int(match[1]), int(match[2] or 1)
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
