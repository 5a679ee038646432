"""The account of a conversion or an explanation as plain data for `json.dumps`. Names stay as the model has them."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Protocol

from mezzo.plans import Plan, PlannedNode
from mezzo.report.groups import count_precisions, group_high_nodes

Document = dict[str, object]
_VERSION = 1


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


def document(what: str, content: Mapping[str, object]) -> Document:
    """Wrap content so that a reader can tell what it is: "format" comes first and ends with the version."""
    return {"format": f"mezzo-{what}/{_VERSION}", **content}


def describe_conversion(source: str, result: str, plan: Plan, summary: Summary) -> Document:
    """Tell what a conversion did: settings, sizes, counts, and what stayed high and why."""
    return document(
        "conversion",
        {
            "source": source,
            "result": result,
            "settings": dict(plan.settings),
            "precisions": {str(dtype): count for dtype, count in count_precisions(plan).items()},
            "low_nodes": summary.low_nodes,
            "high_nodes": summary.high_nodes,
            "casts": summary.casts,
            "size_before_bytes": summary.size_before_bytes,
            "size_after_bytes": summary.size_after_bytes,
            "opset_before": summary.opset_before,
            "opset_after": summary.opset_after,
            "stayed_high": _stayed_high(plan),
            "notes": list(summary.notes),
        },
    )


def describe_chain(model: str, chain: Iterable[PlannedNode]) -> Document:
    """Tell why a node has its precision: the node, the node that caused it, and so on."""
    return document("explanation", {"model": model, "chain": [describe_node(node) for node in chain]})


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
    """Turn a frozen row of a table into data: enums become their values, sets become sorted lists."""
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
