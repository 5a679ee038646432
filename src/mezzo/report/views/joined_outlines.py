"""Joined outline of several graphs of one program, each in its own box."""

from collections.abc import Mapping, Sequence

from mezzo.formats.dtypes import DType
from mezzo.report.views.grouping import NodeBox
from mezzo.report.views.outline import (
    Outline,
    OutlinedNode,
    OutlinedPlan,
    OutlinedValue,
    PlacedCast,
    group_by_dtype,
)


def join_outlines(name: str, outlines: Mapping[str, Outline]) -> Outline:
    """Join outlines of one plan each: `name` is the plan's, the keys are the graphs' names.

    Nodes of all graphs but the first are named "GRAPH: NODE".
    """
    if len(outlines) == 1:
        (only,) = outlines.values()
        return only
    groups = [NodeBox("", None, "graph")]
    nodes: list[OutlinedNode] = []
    values: list[OutlinedValue] = []
    precisions: list[tuple[DType, int]] = []
    retyped: list[tuple[DType, int]] = []
    casts: list[PlacedCast] = []
    for position, (graph, part) in enumerate(outlines.items()):
        box, first, base = len(groups), len(nodes), len(values)
        groups += [
            NodeBox(
                group.name or graph,
                0 if group.parent is None else box + group.parent,
                "scope" if group.parent is None else group.kind,
            )
            for group in part.groups
        ]
        nodes += [
            node._replace(
                name=node_name(graph, node.name, position),
                group=box + node.group,
                inputs=_moved(node.inputs, base),
                outputs=_moved(node.outputs, base),
            )
            for node in part.nodes
        ]
        values += [value._replace(producer=value.producer + first) for value in part.values]
        (plan,) = part.plans
        for dtype, members in plan.precisions.items():
            precisions += [(dtype, number + first) for number in members]
        for dtype, members in plan.retyped.items():
            retyped += [(dtype, number + base) for number in members]
        casts += [
            cast._replace(value=cast.value + base, users=tuple(user + first for user in cast.users))
            for cast in plan.casts
        ]
    joined = OutlinedPlan(name, group_by_dtype(precisions), group_by_dtype(retyped), tuple(casts))
    return Outline(tuple(groups), tuple(nodes), tuple(values), (joined,))


def node_name(graph: str, name: str, place: int) -> str:
    """The name of a node of the graph at a position, among the nodes of all graphs."""
    return f"{graph}: {name}" if place else name


def _moved(values: Sequence[int | None], base: int) -> tuple[int | None, ...]:
    return tuple(None if value is None else value + base for value in values)
