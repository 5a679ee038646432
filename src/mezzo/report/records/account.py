"""Accounts: JSON documents on what a command decided, measured and found.

Every command that measures or converts gives the same document, "mezzo-account/1", with all
sections: null or empty if the command does not fill them. Names are those of the model.
`account.schema.json` describes every field, and `schema` reads it.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mezzo.contracts.plans import Accumulation, Plan, PlannedNode, PlannedWeight
from mezzo.formats.dtypes import DType
from mezzo.report.records import sections
from mezzo.report.records.documents import Document, document, encode, read_schema
from mezzo.report.records.groups import count_precisions, group_high_nodes
from mezzo.report.records.headline import Headline, describe_headline
from mezzo.report.records.summary import Summary

if TYPE_CHECKING:
    from mezzo.common.machine import Machine
    from mezzo.numerics.measures import Comparison, Measured, Ranges, Sensitivity
    from mezzo.report.views.outline import Outline

Settings = Iterable[tuple[str, str]]
_HIGH_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of accounts."""
    return read_schema("account")


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
    """Account of a conversion and its evaluation on data. `settings` extend the plan's."""
    content = _describe_decisions(source, result, plan, summary, settings)
    if measured is not None:
        content |= _describe_measured(measured, plan, accumulation)
    content["summary"] = describe_headline(headline)
    return as_account(
        "convert", content, machine, summary.notes, () if measured is None else measured.all_notes
    )


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
    """Account of a search: its result, its measurements, and the reason why it stopped."""
    content = _describe_decisions(source, result, plan, summary, settings)
    content |= _describe_measured(measured, plan, accumulation)
    content["summary"] = describe_headline(headline)
    return as_account("tune", content, machine, summary.notes, measured.all_notes)


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
    """Account of the differences between a model's outputs and a reference's.

    `formats` are the emulated formats, by default those of the ulps. `decided` are the nodes of the
    model's own metadata.
    """
    if formats is None:
        values = (*comparison.outputs, *comparison.layers)
        formats = {value.ulp_format for value in values} - _HIGH_FLOATS
    content: Document = {
        "summary": describe_headline(headline),
        "models": [
            sections.describe_model("reference", reference),
            sections.describe_model("candidate", model),
        ],
        "settings": dict(settings),
        "decisions": encode(tuple(decided)),
        "data": encode(comparison.data),
        "errors": sections.describe_errors(comparison, formats, accumulation),
    }
    return as_account("compare", content, machine, comparison.notes)


def describe_ranges(
    model: str, ranges: "Ranges", *, settings: Settings = (), machine: "Machine | None" = None
) -> Document:
    """Account of the ranges of a model's values on data."""
    content: Document = {
        "models": [sections.describe_model("model", model)],
        "settings": dict(settings),
        "data": encode(ranges.data),
        "ranges": sections.describe_value_ranges(ranges),
    }
    return as_account("ranges", content, machine)


def describe_sensitivity(
    model: str,
    sensitivity: "Sensitivity",
    *,
    settings: Settings = (),
    notes: Iterable[str] = (),
    machine: "Machine | None" = None,
) -> Document:
    """Account of the output error of each unit of a model when it alone runs in low precision."""
    content: Document = {
        "models": [sections.describe_model("model", model)],
        "settings": dict(settings),
        "data": encode(sensitivity.data),
        "sensitivity": encode(sensitivity),
    }
    return as_account("sensitivity", content, machine, notes)


def describe_strategies(
    model: str, *, settings: Settings = (), machine: "Machine | None" = None
) -> Document:
    """Account of the strategies' model and settings; `with_graph` adds the plans."""
    content: Document = {
        "models": [sections.describe_model("model", model)],
        "settings": dict(settings),
    }
    return as_account("strategies", content, machine)


def with_graph(
    account: Document, outline: "Outline", steps: Iterable[tuple[str, str]] = ()
) -> Document:
    """The account with a drawing's content: graph, plans, and suggested commands with reasons."""
    suggestions = [{"command": command, "why": why} for command, why in steps]
    return {
        **account,
        "graph": encode_outline(outline),
        "plans": encode(outline.plans),
        "next": suggestions,
    }


def encode_outline(outline: "Outline") -> Document:
    """The graph of an outline as JSON data."""
    return {
        "groups": encode(outline.groups),
        "nodes": encode(outline.nodes),
        "values": encode(outline.values),
    }


def as_account(
    command: str, content: Mapping[str, object], machine: "Machine | None", *notes: Iterable[str]
) -> Document:
    """A document with all sections in fixed order, of which `content` fills some."""
    sections_by_name: Document = {
        "command": command,
        "summary": None,
        "versions": sections.describe_versions(machine),
        "models": [],
        "settings": {},
        "conversion": None,
        "decisions": [],
        "weights": [],
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
        "tried": [],
        "graph": None,
        "plans": [],
        "runs": [],
        "next": [],
    }
    assert content.keys() <= sections_by_name.keys(), "a section that the schema does not know"
    unique_notes = list(dict.fromkeys(note for group in notes for note in group))
    return document("account", {**sections_by_name, **content, "notes": unique_notes})


def _describe_decisions(
    source: str, result: str, plan: Plan, summary: Summary, settings: Settings
) -> Document:
    """Sections from a plan and a written model."""
    return {
        "models": [
            sections.describe_model(
                "source", source, summary.size_before_bytes, summary.opset_before
            ),
            sections.describe_model(
                "result", result, summary.size_after_bytes, summary.opset_after
            ),
        ],
        "settings": {**dict(plan.settings), **dict(settings)},
        "conversion": {
            "high": str(plan.high),
            "low": (
                str(plan.lows[0]) if len(plan.lows) == 1 else [str(dtype) for dtype in plan.lows]
            ),
            "precisions": {str(dtype): count for dtype, count in count_precisions(plan).items()},
            "low_nodes": summary.low_nodes,
            "high_nodes": summary.high_nodes,
            "casts": summary.casts,
            "stayed_high": _stayed_high(plan),
        },
        "decisions": encode(plan.nodes),
        "weights": encode(plan.weights),
    }


def _describe_measured(
    measured: "Measured", plan: Plan, accumulation: Accumulation | None
) -> Document:
    """Sections from measurements; those that were not requested are null."""
    ranges, comparison, runtime = measured.ranges, measured.comparison, measured.runtime
    errors = None
    if comparison is not None:
        formats = {dtype for node in plan.nodes for dtype in node.precision} - _HIGH_FLOATS
        errors = sections.describe_errors(comparison, formats, accumulation)
    return {
        "data": encode(measured.data),
        "ranges": None if ranges is None else sections.describe_value_ranges(ranges),
        "errors": errors,
        "sensitivity": encode(measured.sensitivity),
        "frontier": encode(measured.frontier),
        "costs": encode(measured.costs),
        "search": encode(measured.search),
        "timing": encode(measured.timing),
        "runtime": None if runtime is None else sections.describe_runtime(runtime),
        "tried": encode(measured.tried),
    }


def describe_chain(
    model: str,
    chain: Iterable[PlannedNode],
    unit: object = None,
    weights: Iterable[PlannedWeight] = (),
) -> Document:
    """The causes of a node's precision, from the node to the origin, the node's fused unit, and the
    weights that it reads, if they may be in blocks.
    """
    content = {"model": model, "chain": encode(tuple(chain)), "unit": encode(unit)}
    return document("explanation", {**content, "weights": encode(tuple(weights))})


def describe_meant(
    model: str,
    word: str,
    known: str,
    nodes: Iterable[PlannedNode],
    weights: Iterable[PlannedWeight] = (),
) -> Document:
    """Precision and reason of each node that a word refers to; `known` is the kind of name."""
    content = {"model": model, "asked": word, "known": known, "nodes": encode(tuple(nodes))}
    return document("explanation", {**content, "weights": encode(tuple(weights))})


def _stayed_high(plan: Plan) -> list[Document]:
    return [
        {
            "rule": g.rule,
            "cause": g.cause.value,
            "count": len(g.nodes),
            "because": list(g.reasons),
            "nodes": [node.name for node in g.nodes],
        }
        for g in (group_high_nodes(plan) if plan.lows else ())
    ]
