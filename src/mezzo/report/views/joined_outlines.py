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
    precisions: dict[DType, list[int]] = {}
    retyped: dict[DType, list[int]] = {}
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
        for target, ids, offset in (
            (precisions, plan.precisions, first),
            (retyped, plan.retyped, base),
        ):
            for dtype, numbers in ids.items():
                target.setdefault(dtype, []).extend(number + offset for number in numbers)
        casts += [
            cast._replace(value=cast.value + base, users=tuple(user + first for user in cast.users))
            for cast in plan.casts
        ]
    joined = OutlinedPlan(name, _settled(precisions), _settled(retyped), tuple(casts))
    return Outline(tuple(groups), tuple(nodes), tuple(values), (joined,))


def node_name(graph: str, name: str, place: int) -> str:
    """The name of a node of the graph at a position, among the nodes of all graphs."""
    return f"{graph}: {name}" if place else name


def _moved(values: Sequence[int | None], base: int) -> tuple[int | None, ...]:
    return tuple(None if value is None else value + base for value in values)


def _settled(numbers: Mapping[DType, Sequence[int]]) -> Mapping[DType, tuple[int, ...]]:
    return {dtype: tuple(ids) for dtype, ids in numbers.items()}
