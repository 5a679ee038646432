"""Graph outline for drawings: names, edges, scopes and the casts of plans, without weights."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from mezzo.contracts.plans import AddCast, AddCopy, Edit, Plan, Retype, Rewire
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Node, SourceLine
from mezzo.report.views.grouping import NodeBox, find_module, group_nodes

_LONGEST_ATTRIBUTE = 120  # characters


class OutlinedNode(NamedTuple):
    """A node of the graph. `group`, inputs and outputs are positions in the outline.

    `dtype` is the compute dtype in the source model, None without floats. `module` and `line` are
    its origin in the exported program, None if unknown. `attributes` are as text, by name.
    """

    name: str
    op: str
    kind: str
    group: int
    dtype: DType | None
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    module: str | None = None
    line: SourceLine | None = None
    attributes: Mapping[str, str] = MappingProxyType({})


class OutlinedValue(NamedTuple):
    """A tensor of the source model. `elements` is nominal for symbolic shapes.

    `shape` has None per unknown dimension; None if the rank is unknown.
    """

    name: str
    dtype: DType | None
    elements: int
    producer: int
    shape: tuple[int | None, ...] | None = None


class PlacedCast(NamedTuple):
    """Another form of a value: a Cast, or with `is_copy` a second weight. `users` are nodes."""

    value: int
    dtype: DType
    is_copy: bool
    users: tuple[int, ...]


class PlanCounts(NamedTuple):
    """Counts of one strategy's plan, as of `mezzo strategies`."""

    low_nodes: int
    nodes: int
    casts: int
    cast_bytes: int
    cost: int
    to_least: float | None


class OutlinedPlan(NamedTuple):
    """One plan: `precisions` are nodes by compute dtype, `retyped` values with a new dtype."""

    name: str
    precisions: Mapping[DType, tuple[int, ...]]
    retyped: Mapping[DType, tuple[int, ...]]
    casts: tuple[PlacedCast, ...]
    counts: PlanCounts | None = None


@dataclass(frozen=True, slots=True)
class Outline:
    """A graph and one or more plans for it."""

    groups: tuple[NodeBox, ...]
    nodes: tuple[OutlinedNode, ...]
    values: tuple[OutlinedValue, ...]
    plans: tuple[OutlinedPlan, ...]


def outline(graph: Graph, plans: Iterable[OutlinedPlan]) -> Outline:
    """The outline of a graph with plans."""
    groups, group_of = group_nodes(graph)
    nodes = tuple(
        OutlinedNode(
            node.name,
            node.op,
            node.kind.value,
            group_of[node.id],
            node.signature.dtype,
            node.inputs,
            node.outputs,
            find_module(graph, node),
            graph.lines.get(node.id),
            _spell_attributes(node),
        )
        for node in graph.nodes
    )
    values = tuple(
        OutlinedValue(
            value.name, value.dtype, value.elements, value.producer, graph.shapes.get(number)
        )
        for number, value in enumerate(graph.values)
    )
    return Outline(groups, nodes, values, tuple(plans))


def _spell_attributes(node: Node) -> Mapping[str, str]:
    """A node's attributes as text, sorted by name, long ones cut."""
    spelled = {}
    for name, value in sorted(node.attributes.items()):
        text = f"{value:.7g}" if isinstance(value, float) else str(value)
        is_long = len(text) > _LONGEST_ATTRIBUTE
        spelled[str(name)] = f"{text[: _LONGEST_ATTRIBUTE - 3]}..." if is_long else text
    return spelled


def outline_plan(graph: Graph, name: str, plan: Plan) -> OutlinedPlan:
    """The outline of a plan for its graph."""
    planned = []
    for node in plan.nodes:
        number = graph.by_name.get(node.name)
        # Nodes without floats, such as integer inputs, have no precision.
        if number is not None and graph.nodes[number].signature.dtype is not None:
            planned.append((node.precision.compute, number))
    return outline_edits(name, group_by_dtype(planned), plan.edits)


def outline_edits(
    name: str,
    precisions: Mapping[DType, tuple[int, ...]],
    edits: Sequence[Edit],
    counts: PlanCounts | None = None,
) -> OutlinedPlan:
    """The outline of an assignment and its edits."""
    retyped: list[tuple[DType, int]] = []
    users: dict[tuple[int, DType], dict[int, None]] = {}
    is_copy: dict[tuple[int, DType], bool] = {}
    for edit in edits:
        match edit:
            case Retype():
                retyped.append((edit.dtype, edit.value))
            case AddCast() | AddCopy():
                is_copy[edit.value, edit.dtype] = isinstance(edit, AddCopy)
            case Rewire():
                users.setdefault((edit.value, edit.dtype), {})[edit.node] = None
    casts = tuple(
        PlacedCast(value, dtype, copied, tuple(users.get((value, dtype), ())))
        for (value, dtype), copied in is_copy.items()
    )
    return OutlinedPlan(name, precisions, group_by_dtype(retyped), casts, counts)


def outline_as_it_is(graph: Graph, name: str) -> OutlinedPlan:
    """The outline of a source model: dtypes, and widening casts, which are no graph nodes."""
    typed = ((node.signature.dtype, node.id) for node in graph.nodes)
    users: dict[int, dict[int, None]] = {}
    for use in sorted(graph.widened):
        value = graph.nodes[use.node].inputs[use.operand]
        if value is not None and graph.nodes[graph.values[value].producer].kind is not Kind.SOURCE:
            users.setdefault(value, {})[use.node] = None
    casts = tuple(
        PlacedCast(value, DType.FLOAT32, False, tuple(readers))
        for value, readers in sorted(users.items())
    )
    return OutlinedPlan(name, group_by_dtype(typed), {}, casts)


def outline_matching(graph: Graph, name: str, other: Graph) -> OutlinedPlan:
    """The outline of another model over this graph: dtypes of its nodes with the same names."""
    matches = ((other.by_name.get(node.name), node.id) for node in graph.nodes)
    typed = [
        (other.nodes[match].signature.dtype, number)
        for match, number in matches
        if match is not None
    ]
    return OutlinedPlan(name, group_by_dtype(typed), {}, ())


def group_by_dtype(
    numbers: Iterable[tuple[DType | None, int]],
) -> Mapping[DType, tuple[int, ...]]:
    """Nodes or values by dtype, without those that have none."""
    by_dtype: dict[DType, list[int]] = {}
    for dtype, number in numbers:
        if dtype is not None:
            by_dtype.setdefault(dtype, []).append(number)
    return {dtype: tuple(members) for dtype, members in by_dtype.items()}
