"""Accounts as plain data for `json.dumps`: what was decided, measured and found. Names stay as the model has them.

Every command that measures or converts gives the same document, "mezzo-account/1": all sections are always there, null
or empty where the command had no part in them. `account.schema.json` tells every field, and `schema` reads it.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Protocol

from mezzo.contracts.plans import Accumulation, Plan, PlannedNode
from mezzo.formats.dtypes import DType
from mezzo.report.records import sections
from mezzo.report.records.documents import Document as Document
from mezzo.report.records.documents import document as document
from mezzo.report.records.graphs import describe_graph, describe_plans
from mezzo.report.records.groups import count_precisions, group_high_nodes
from mezzo.report.records.headline import Headline, describe_headline

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Comparison, Measured, Ranges, Sensitivity
    from mezzo.report.views.outline import Outline

Settings = Iterable[tuple[str, str]]


class Summary(Protocol):
    """What a report asks of a conversion's summary."""

    @property
    def low_nodes(self) -> int: ...
    @property
    def high_nodes(self) -> int: ...
    @property
    def casts(self) -> int: ...
    @property
    def size_before_bytes(self) -> int: ...
    @property
    def size_after_bytes(self) -> int: ...
    @property
    def opset_before(self) -> int | None: ...
    @property
    def opset_after(self) -> int | None: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of accounts."""
    text = files("mezzo.report.records").joinpath("account.schema.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def describe_conversion(
    source: str,
    result: str,
    plan: Plan,
    summary: Summary,
    measured: "Measured | None" = None,
    *,
    settings: Settings = (),
    accumulation: Accumulation | None = None,
    machine: "Machine | None" = None,
    headline: Headline | None = None,
) -> Document:
    """Tell what a conversion did and, where it had data, what that showed. `settings` go beyond those of the plan."""
    content = _describe_decisions(source, result, plan, summary, settings)
    if measured is not None:
        content |= _describe_measured(measured, plan, accumulation)
    content["summary"] = _describe_headline(headline)
    return _account("convert", content, machine, summary.notes, () if measured is None else _notes(measured))


def describe_tuning(
    source: str,
    result: str,
    plan: Plan,
    summary: Summary,
    measured: "Measured",
    *,
    settings: Settings = (),
    accumulation: Accumulation | None = None,
    machine: "Machine | None" = None,
    headline: Headline | None = None,
) -> Document:
    """Tell what a search found, what it measured on the way, and what stopped it."""
    content = _describe_decisions(source, result, plan, summary, settings)
    content |= _describe_measured(measured, plan, accumulation)
    content["summary"] = _describe_headline(headline)
    return _account("tune", content, machine, summary.notes, _notes(measured))


def describe_comparison(
    reference: str,
    model: str,
    comparison: "Comparison",
    *,
    settings: Settings = (),
    formats: Iterable[DType] | None = None,
    accumulation: Accumulation | None = None,
    machine: "Machine | None" = None,
    decided: Iterable[PlannedNode] = (),
    headline: Headline | None = None,
) -> Document:
    """Tell how a model's answers differ from a reference's. `formats`: those emulated; by default those of the ulps.
    `decided`: what the model tells of its nodes.
    """
    if formats is None:
        formats = {d.ulp_format for d in (*comparison.outputs, *comparison.layers)} - {DType.FLOAT32, DType.FLOAT64}
    content: Document = {
        "summary": _describe_headline(headline),
        "models": [sections.describe_model("reference", reference), sections.describe_model("candidate", model)],
        "settings": dict(settings),
        "decisions": [describe_node(node) for node in decided],
        "data": sections.describe_data(comparison.data),
        "errors": sections.describe_errors(comparison, formats, accumulation),
    }
    return _account("compare", content, machine, comparison.notes)


def describe_ranges(
    model: str, ranges: "Ranges", *, settings: Settings = (), machine: "Machine | None" = None
) -> Document:
    """Tell what the values of a model held on data."""
    content: Document = {
        "models": [sections.describe_model("model", model)],
        "settings": dict(settings),
        "data": sections.describe_data(ranges.data),
        "ranges": sections.describe_value_ranges(ranges),
    }
    return _account("ranges", content, machine)


def describe_sensitivity(
    model: str,
    sensitivity: "Sensitivity",
    *,
    settings: Settings = (),
    notes: Iterable[str] = (),
    machine: "Machine | None" = None,
) -> Document:
    """Tell what each part of a model costs in output error when it alone runs low."""
    content: Document = {
        "models": [sections.describe_model("model", model)],
        "settings": dict(settings),
        "data": sections.describe_data(sensitivity.data),
        "sensitivity": sections.describe_units(sensitivity),
    }
    return _account("sensitivity", content, machine, notes)


def describe_strategies(model: str, *, settings: Settings = (), machine: "Machine | None" = None) -> Document:
    """Tell on what model strategies were tried; `with_graph` adds what each made of it."""
    content: Document = {"models": [sections.describe_model("model", model)], "settings": dict(settings)}
    return _account("strategies", content, machine)


def with_graph(account: Document, outline: "Outline", steps: Iterable[tuple[str, str]] = ()) -> Document:
    """The account with what a drawing needs: the graph, its plans, and commands worth trying, each with its reason."""
    told = [{"command": command, "why": why} for command, why in steps]
    return {**account, "graph": describe_graph(outline), "plans": describe_plans(outline), "next": told}


def _account(command: str, content: Mapping[str, object], machine: "Machine | None", *notes: Iterable[str]) -> Document:
    """Put the sections of one command among those it has none of, always in the same order."""
    every: Document = {
        "command": command,
        "summary": None,
        "versions": sections.describe_versions(machine),
        "models": [],
        "settings": {},
        "conversion": None,
        "decisions": [],
        "data": None,
        "memory": None,
        "ranges": None,
        "errors": None,
        "sensitivity": None,
        "frontier": [],
        "costs": None,
        "search": None,
        "timing": None,
        "runtime": None,
        "graph": None,
        "plans": [],
        "next": [],
    }
    assert content.keys() <= every.keys(), "a section that the schema does not know"
    said = list(dict.fromkeys(note for several in notes for note in several))
    return document("account", {**every, **content, "notes": said})


def _describe_decisions(source: str, result: str, plan: Plan, summary: Summary, settings: Settings) -> Document:
    """The sections that a plan and a written model give."""
    return {
        "models": [
            sections.describe_model("source", source, summary.size_before_bytes, summary.opset_before),
            sections.describe_model("result", result, summary.size_after_bytes, summary.opset_after),
        ],
        "settings": {**dict(plan.settings), **dict(settings)},
        "conversion": {
            "high": str(plan.high),
            "low": str(plan.lows[0]) if len(plan.lows) == 1 else [str(dtype) for dtype in plan.lows],
            "precisions": {str(dtype): count for dtype, count in count_precisions(plan).items()},
            "low_nodes": summary.low_nodes,
            "high_nodes": summary.high_nodes,
            "casts": summary.casts,
            "stayed_high": _stayed_high(plan),
        },
        "decisions": [describe_node(node) for node in plan.nodes],
    }


def _describe_measured(measured: "Measured", plan: Plan, accumulation: Accumulation | None) -> Document:
    """The sections that numerics give; those that were not asked for are left out."""
    given: Document = {"data": sections.describe_data(measured.data)}
    if measured.ranges is not None:
        given["ranges"] = sections.describe_value_ranges(measured.ranges)
    if measured.comparison is not None:
        formats = {dtype for node in plan.nodes for dtype in node.precision} - {DType.FLOAT32, DType.FLOAT64}
        given["errors"] = sections.describe_errors(measured.comparison, formats, accumulation)
    if measured.sensitivity is not None:
        given["sensitivity"] = sections.describe_units(measured.sensitivity)
    if measured.costs is not None:
        given["costs"] = sections.describe_costs(measured.costs)
    if measured.search is not None:
        given["search"] = sections.describe_search(measured.search)
    if measured.timing is not None:
        given["timing"] = sections.describe_timing(measured.timing)
    if measured.runtime is not None:
        given["runtime"] = sections.describe_runtime(measured.runtime)
    return {**given, "frontier": sections.describe_frontier(measured.frontier)}


def _notes(measured: "Measured") -> Iterable[str]:
    return (*measured.notes, *(() if measured.comparison is None else measured.comparison.notes))


def _describe_headline(headline: Headline | None) -> Document | None:
    return None if headline is None else describe_headline(headline)


def describe_chain(model: str, chain: Iterable[PlannedNode], unit: object = None) -> Document:
    """Tell why a node has its precision: the node, the node that caused it, and so on; and the unit it is in."""
    content = {"model": model, "chain": [describe_node(node) for node in chain]}
    return document("explanation", {**content, "unit": spell(unit)})


def describe_meant(model: str, word: str, known: str, nodes: Iterable[PlannedNode]) -> Document:
    """Tell what each of several nodes runs in, and why, that a word stands for; `known` says as what."""
    rows = [describe_node(node) for node in nodes]
    return document("explanation", {"model": model, "asked": word, "known": known, "nodes": rows})


def describe_node(node: PlannedNode) -> Document:
    """Spell one line of a plan as data."""
    return {
        "name": node.name,
        "op": node.op,
        "kind": node.kind,
        "precision": {name: str(dtype) for name, dtype in node.precision._asdict().items()},
        "category": None if node.category is None else node.category.value,
        "rule": node.rule,
        "because": node.because,
        "cause": node.cause,
    }


def _stayed_high(plan: Plan) -> list[Document]:
    return [
        {"rule": g.rule, "count": len(g.nodes), "because": list(g.reasons), "nodes": [node.name for node in g.nodes]}
        for g in group_high_nodes(plan)
    ]


def spell(value: object) -> object:
    """Turn a frozen row of a table into data: enums become their values, sets sorted lists, infinities words."""
    if isinstance(value, float):
        return value if math.isfinite(value) else sections.number(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: spell(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, frozenset):
        return sorted((spell(item) for item in value), key=str)
    if isinstance(value, tuple):
        return [spell(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): spell(item) for key, item in value.items()}
    if callable(value):
        return getattr(value, "__name__", str(value))
    return getattr(value, "value", value)
