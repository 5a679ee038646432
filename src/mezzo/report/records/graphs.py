"""The graph and its plans as JSON data for drawings; references are positions in the lists."""

from typing import TYPE_CHECKING

from mezzo.formats.dtypes import DType

if TYPE_CHECKING:
    from mezzo.report.views.outline import Outline, OutlinedPlan, PlanCounts

Document = dict[str, object]


def describe_graph(outline: "Outline") -> Document:
    """The graph of the source model, without weights."""
    return {
        "groups": [
            {"name": group.name, "parent": group.parent, "kind": group.kind}
            for group in outline.groups
        ],
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "kind": node.kind,
                "group": node.group,
                "dtype": _spell(node.dtype),
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "module": node.module,
                "line": None if node.line is None else node.line._asdict(),
            }
            for node in outline.nodes
        ],
        "values": [
            {
                "name": value.name,
                "dtype": _spell(value.dtype),
                "elements": int(value.elements),
                "producer": value.producer,
            }
            for value in outline.values
        ],
    }


def describe_plans(outline: "Outline") -> list[Document]:
    """The plans for a graph, in order of creation."""
    return [_describe_plan(plan) for plan in outline.plans]


def _describe_plan(plan: "OutlinedPlan") -> Document:
    return {
        "name": plan.name,
        "precisions": {str(dtype): list(nodes) for dtype, nodes in plan.precisions.items()},
        "retyped": {str(dtype): list(values) for dtype, values in plan.retyped.items()},
        "casts": [
            {
                "value": cast.value,
                "dtype": str(cast.dtype),
                "is_copy": cast.is_copy,
                "users": list(cast.users),
            }
            for cast in plan.casts
        ],
        "counts": None if plan.counts is None else _describe_counts(plan.counts),
    }


def _describe_counts(counts: "PlanCounts") -> Document:
    return {
        **counts._asdict(),
        "to_least": None if counts.to_least is None else float(f"{counts.to_least:.9g}"),
    }


def _spell(dtype: DType | None) -> str | None:
    return None if dtype is None else str(dtype)
