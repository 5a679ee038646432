"""Provenance of a conversion: the steps that produced a model and the decision on each node, for
its metadata.
"""

import dataclasses
import enum
import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from mezzo.common.errors import InputError
from mezzo.common.packages import VERSION
from mezzo.contracts.frontend import Applied
from mezzo.contracts.options.request import usual_settings
from mezzo.contracts.plans import Plan, PlannedNode, Reason
from mezzo.contracts.strategy import Strategy
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import DType
from mezzo.formats.format_words import weight_float_word, weight_word
from mezzo.formats.precision_line import Precision, float_of
from mezzo.io.provenance import (
    LONGEST_TEXT,
    Provenance,
    ProvenanceStep,
    Row,
    count_runs,
    digest_names,
    hide_name,
    recorded_casts,
    recorded_nodes,
)
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Node
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import Judged
from mezzo.planner.reasons import decided_reason
from mezzo.plugins.discovery import is_built_in
from mezzo.plugins.discovery import strategy as find_strategy
from mezzo.tables.policy import Category, Policy
from mezzo.tables.target import Target

# The settings recorded in a model's metadata, with their defaults, which are left out.
_DEFAULTS: Mapping[str, str | None] = {
    **usual_settings(), "data": "", "max_error": "", "max_bytes": "", "metric": "", "max_drop": "",
    "margin": "", "accumulate": "", "tile": "",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class RecordedDecisions:
    """Decisions of a conversion, to be recorded. `reasons`: those not derived from verdicts, by
    node name; None for a node that follows a neighbour.
    """

    judged: Judged
    levels: Sequence[int]
    planning: PlanningOptions
    reasons: Mapping[str, Reason | None]


def describe_step(
    settings: Sequence[tuple[str, str]],
    digests: Mapping[str, str],
    in_blocks: Iterable[BlockStorage] = (),
    low_floats: Iterable[DType] = (),
) -> ProvenanceStep:
    """The options of a run, without paths, and counts of the weights that it stored in blocks or in
    a low float. `digests`: content hashes of files, by option.
    """
    options = []
    for name, value in settings:
        if name not in _DEFAULTS or value == _DEFAULTS[name]:
            continue
        match name:
            case "data":
                value = "given"
            case "policy" | "target":
                value = (
                    PurePath(value.replace("\\", "/")).stem if value.endswith(".toml") else value
                )
                value = digests.get(name, value)
            case "metric":
                value = value.rpartition(":")[2]
        options.append((name, value if value.isprintable() else ascii(value)))
    counts = Counter(weight_word(storage.bits) for storage in in_blocks)
    counts.update(map(weight_float_word, low_floats))
    if counts:
        words = [f"{count} in {word}" for word, count in sorted(counts.items())]
        options.append(("weights", " and ".join(words)))
    command = "tune" if any(name == "margin" for name, _ in settings) else "convert"
    return ProvenanceStep(
        VERSION, command, tuple((name, value[:LONGEST_TEXT]) for name, value in options)
    )


def name_content(given: object, read: Policy | Target) -> str:
    """Name of a policy or target: presets by name alone, others by name and a digest of their
    content.
    """
    if isinstance(read, Policy) and read.function is not None:
        return f"{read.name} (a function)"
    kind = "policy" if isinstance(read, Policy) else "target"
    if given is None or (
        isinstance(given, str) and not given.endswith(".toml") and is_built_in(kind, read.name)
    ):
        return read.name
    digest = hashlib.sha256(_spell(read).encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{read.name} ({digest})"


def _spell(value: object) -> str:
    """Deterministic text of a record and its fields."""
    match value:
        case enum.Enum():
            return f"{type(value).__name__}.{value.name}"
        case Mapping():
            return f"{{{','.join(sorted(f'{_spell(k)}:{_spell(v)}' for k, v in value.items()))}}}"
        case frozenset() | set():
            return f"{{{','.join(sorted(map(_spell, value)))}}}"
        case tuple() | list():
            return f"({','.join(map(_spell, value))})"
        case str() | int() | float() | None:
            return repr(value)
    if dataclasses.is_dataclass(value):
        fields = [
            f"{field.name}={_spell(getattr(value, field.name))}"
            for field in dataclasses.fields(value)
            if field.compare
        ]
        return f"{type(value).__name__}({','.join(fields)})"
    return getattr(value, "__qualname__", type(value).__name__)


def record_decisions(
    decisions: RecordedDecisions, steps: Sequence[ProvenanceStep], applied: Applied
) -> Provenance:
    """The provenance of a conversion."""
    graph, strategy = decisions.judged.problem.graph, decisions.planning.strategy
    nodes = _in_order(graph, applied.order)
    writer = _Rows(decisions, nodes)
    codes = writer.codes()
    return Provenance(
        steps=tuple(steps),
        low=float_of(decisions.judged.problem.line),
        names=digest_names(nodes, applied.operators),
        added=applied.added,
        casts=tuple(node.name for node in recorded_casts(graph)),
        follows=strategy.because,
        leaves=strategy.leaves,
        rows=tuple(writer.rows),
        runs=count_runs(codes),
    )


def record_plan(
    graph: Graph, plan: Plan, steps: Sequence[ProvenanceStep], applied: Applied
) -> Provenance:
    """The provenance of a plan's decisions, edited ones included. Quantized plans also record
    followers: the result has nodes between them and their neighbours that the graph has not.
    """
    nodes = _in_order(graph, applied.order)
    places = {node.name: place for place, node in enumerate(nodes)}
    strategy = _find_strategy(dict(plan.settings).get("strategy", ""))
    follows = getattr(strategy, "because", "as the plan says")
    rows: dict[Row, int] = {}
    codes = []
    is_quantized = plan.line.quantized is not None
    for place, node in enumerate(nodes):
        row = _row_of(
            plan.by_name[node.name], place, places, strategy.leaves, tells_followers=is_quantized
        )
        codes.append(rows.setdefault(row, len(rows)))
    return Provenance(
        steps=tuple(steps), low=float_of(plan.line),
        names=digest_names(nodes, applied.operators), added=applied.added,
        casts=tuple(node.name for node in recorded_casts(graph)), follows=follows,
        leaves=strategy.leaves, rows=tuple(rows), runs=count_runs(codes),
    )  # fmt: skip


def _find_strategy(name: str) -> Strategy | type[Strategy]:
    """The strategy of a plan, or the base class if it is not installed."""
    try:
        return find_strategy(name)
    except InputError:
        return Strategy


def _row_of(
    entry: PlannedNode,
    place: int,
    places: Mapping[str, int],
    leaves: tuple[str, str],
    *,
    tells_followers: bool,
) -> Row:
    """The metadata row of a plan entry. Texts of nodes that follow or are left over are omitted:
    the reader derives them.
    """
    if (entry.rule == "follows" and not tells_followers) or (entry.rule, entry.because) == leaves:
        return Row(entry.precision, entry.category, None, "", None)
    if entry.cause is None or entry.cause not in places:
        return Row(entry.precision, entry.category, entry.rule, entry.because, entry.cause)
    because = hide_name(entry.because, entry.cause)
    return Row(entry.precision, entry.category, entry.rule, because, places[entry.cause] - place)


def _in_order(graph: Graph, order: Sequence[str] | None) -> list[Node]:
    nodes = recorded_nodes(graph)
    if order is not None:
        places = {name: place for place, name in enumerate(order)}
        nodes.sort(key=lambda node: places.get(node.name, -1))
    return nodes


class _Rows:
    """Numbers the distinct rows. Nodes with equal verdicts share one, so most rows are looked up
    without being built.
    """

    def __init__(self, decisions: RecordedDecisions, nodes: Sequence[Node]) -> None:
        self.rows: dict[Row, int] = {}
        self._decisions = decisions
        self._nodes = nodes
        self._places: dict[int, int] | None = None

    def codes(self) -> list[int]:
        """The number of each node's row."""
        judged, reasons, levels = (
            self._decisions.judged,
            self._decisions.reasons,
            self._decisions.levels,
        )
        problem = judged.problem
        verdict_ids = ([id(verdict) for verdict in side] for side in judged.sides)
        choices = (side.choices for side in problem.sides)
        keys = [
            *zip(
                *verdict_ids,
                *choices,
                problem.graph.columns.node_signature.tolist(),
                levels,
                strict=True,
            )
        ]
        by_key: dict[tuple[object, ...], int] = {}
        codes = []
        for position, node in enumerate(self._nodes):
            number, has_own = node.id, node.name in reasons
            code = None if has_own else by_key.get(keys[number])
            if code is None:
                row = self._row(position, node)
                code = self.rows.setdefault(row, len(self.rows))
                verdict = judged.verdict_of(number, levels[number])
                # Not shared: refusals depend on attributes, error costs and causes on the node.
                is_shared = levels[number] != problem.line.base or verdict.category is Category.DENY
                if is_shared and row.cause is None and not has_own:
                    by_key[keys[number]] = code
            codes.append(code)
        return codes

    def _row(self, place: int, node: Node) -> Row:
        judged, reasons, level = (
            self._decisions.judged,
            self._decisions.reasons,
            self._decisions.levels[node.id],
        )
        if node.name in reasons:
            reason = reasons[node.name]
        else:
            reason = decided_reason(judged, node, level, self._decisions.planning)
        precision, category = (
            precision_of(judged, node.id, level),
            category_of(judged, node.id, level),
        )
        if reason is None:
            return Row(precision, category, None, "", None)
        if reason.cause is None:
            return Row(precision, category, reason.rule, reason.because, None)
        name, position = judged.problem.graph.nodes[reason.cause].name, self._place(reason.cause)
        return Row(
            precision,
            category,
            reason.rule,
            hide_name(reason.because, name),
            name if position is None else position - place,
        )

    def _place(self, number: int) -> int | None:
        if self._places is None:
            self._places = {node.id: place for place, node in enumerate(self._nodes)}
        return self._places.get(number)


def precision_of(judged: Judged, number: int, level: int) -> Precision:
    """Compute, accumulate and output dtypes of a node at a level."""
    line = judged.problem.line
    if level == line.base:
        return line.levels[level]
    verdict, usual = judged.verdicts(level)[number], line.levels[level]
    return Precision(
        usual.compute, verdict.accumulate or usual.accumulate, verdict.output or usual.output
    )


def category_of(judged: Judged, number: int, level: int) -> Category | None:
    """Category of a node's verdict at its level; at the base, of the one that keeps it."""
    return None if judged.problem.is_absent[number] else judged.verdict_of(number, level).category
