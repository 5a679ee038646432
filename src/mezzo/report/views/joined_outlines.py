"""Several graphs of one program as one outline, each in a box of its own."""

from collections.abc import Mapping, Sequence

from mezzo.formats.dtypes import DType
from mezzo.report.views.grouping import Group
from mezzo.report.views.outline import Outline, OutlinedNode, OutlinedPlan, OutlinedValue, PlacedCast


def join_outlines(name: str, outlines: Mapping[str, Outline]) -> Outline:
    """Put outlines of one plan each beside each other: `name` is the plan's, the keys are those of the graphs. Nodes of
    all but the first are called "GRAPH: NODE".
    """
    if len(outlines) == 1:
        (only,) = outlines.values()
        return only
    groups = [Group("", None, "graph")]
    nodes: list[OutlinedNode] = []
    values: list[OutlinedValue] = []
    precisions: dict[DType, list[int]] = {}
    retyped: dict[DType, list[int]] = {}
    casts: list[PlacedCast] = []
    for place, (graph, one) in enumerate(outlines.items()):
        box, first, base = len(groups), len(nodes), len(values)
        groups += [
            Group(
                group.name or graph,
                0 if group.parent is None else box + group.parent,
                "scope" if group.parent is None else group.kind,
            )
            for group in one.groups
        ]
        nodes += [
            node._replace(
                name=node_name(graph, node.name, place),
                group=box + node.group,
                inputs=_moved(node.inputs, base),
                outputs=_moved(node.outputs, base),
            )
            for node in one.nodes
        ]
        values += [value._replace(producer=value.producer + first) for value in one.values]
        (plan,) = one.plans
        for into, found, offset in ((precisions, plan.precisions, first), (retyped, plan.retyped, base)):
            for dtype, numbers in found.items():
                into.setdefault(dtype, []).extend(number + offset for number in numbers)
        casts += [
            cast._replace(value=cast.value + base, users=tuple(user + first for user in cast.users))
            for cast in plan.casts
        ]
    joined = OutlinedPlan(name, _settled(precisions), _settled(retyped), tuple(casts))
    return Outline(tuple(groups), tuple(nodes), tuple(values), (joined,))


def node_name(graph: str, name: str, place: int) -> str:
    """What a node of the graph at a place is called among those of all."""
    return f"{graph}: {name}" if place else name


def _moved(values: Sequence[int | None], base: int) -> tuple[int | None, ...]:
    return tuple(None if value is None else value + base for value in values)


def _settled(numbers: Mapping[DType, Sequence[int]]) -> Mapping[DType, tuple[int, ...]]:
    return {dtype: tuple(several) for dtype, several in numbers.items()}
