"""Integers stored as floats: shapes, positions, angles; exact up to 2/eps only (2048 in f16)."""

from collections.abc import Iterable, Iterator

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.ir.walks import walk
from mezzo.tables.facts import Cost, Function, OpFacts, Risk

_ARITHMETIC = frozenset({Cost.POINTWISE, Cost.MOVEMENT, Cost.GENERATOR})
_ANGLE_STEPS = _ARITHMETIC | {Cost.LINEAR}
_INTEGERS = frozenset(
    {
        DType.INT64,
        DType.INT32,
        DType.INT16,
        DType.INT8,
        DType.UINT64,
        DType.UINT32,
        DType.UINT16,
        DType.UINT8,
    }
)


def _back(
    view: StructureView, ends: Iterable[Node], costs: frozenset[Cost], visited: set[int]
) -> Iterator[tuple[Node, Node]]:
    """Backward traversal from nodes through unbounded arithmetic: yields (node, the reader that led
    to it). `visited` are the nodes of earlier traversals with the same `costs`.
    """
    fresh = [end for end in ends if end.id not in visited]
    visited.update(end.id for end in fresh)
    return walk(fresh, lambda reader: _open_makers(view, reader, costs), visited)


def _open_makers(view: StructureView, reader: Node, costs: frozenset[Cost]) -> Iterator[Node]:
    for v, role in zip(reader.inputs, reader.signature.inputs, strict=True):
        if v is not None and view.graph.values[v].dtype is not None and role is not Role.FIXED:
            maker = view.graph.producer(v)
            if _is_open(view, maker, costs):
                yield maker


def _is_open(view: StructureView, maker: Node, costs: frozenset[Cost]) -> bool:
    row = view.rows[maker.id]
    is_unbounded = row is not None and row.cost in costs and not row.is_bounded
    return (maker.kind is Kind.TIE or is_unbounded) and view.is_decided(maker)


def returns_to_integers(view: StructureView) -> Iterable[Detection]:
    """Arithmetic whose result is cast to an integer, except to bool, a test for zero."""
    graph = view.graph
    ends = [
        node
        for node in view.nodes(Function.CAST)
        if node.kind is Kind.OP
        and node.outputs
        and node.outputs[0] is not None
        and graph.values[node.outputs[0]].dtype in _INTEGERS
    ]
    for node, reader in _back(view, ends, _ARITHMETIC, set()):
        yield Detection(node, f"its result becomes an integer through {reader.name!r}", reader)


def exact_operand(view: StructureView) -> Iterable[Detection]:
    """Arithmetic that computes a fixed FP32 operand: scales, ratios, grids, thresholds."""
    import numpy as np

    from mezzo.ir.columns import FIXED

    graph, columns = view.graph, view.graph.columns
    exact = (columns.use_role == FIXED) & columns.holds(HIGH)[columns.use_value]
    exact &= columns.is_kind(Kind.OP)[columns.use_node]
    values, readers, operands = (
        columns.use_value[exact],
        columns.use_node[exact],
        columns.use_operand[exact],
    )
    visited: set[int] = set()
    for index in np.argsort(values, kind="stable").tolist():
        maker, reader = graph.producer(values[index]), graph.nodes[readers[index]]
        if view.cost(maker) not in _ARITHMETIC or not view.is_decided(maker):
            continue
        text = f"feeds operand {operands[index]} of {reader.name!r}, which is read in f32"
        yield Detection(maker, text, reader)
        for node, later in _back(view, [maker], _ARITHMETIC, visited):
            yield Detection(node, text, later)


def angles(view: StructureView) -> Iterable[Detection]:
    """Positions times frequencies under a sine or cosine: rotary, sinusoidal embeddings."""
    ends = [end for end in view.nodes_where(_is_periodic) if view.is_decided(end)]
    counting = _counting(view, ends)
    visited: set[int] = set()
    for end in ends:
        if end.id not in counting or end.id in visited:
            continue
        yield Detection(end, "turns positions into angles, whose absolute error is what counts")
        for node, reader in _back(view, [end], _ANGLE_STEPS, visited):
            yield Detection(node, f"is part of the angle that {end.name!r} takes", reader)


def _is_periodic(row: OpFacts) -> bool:
    return Risk.PERIODIC in row.risks and row.cost is Cost.POINTWISE


def _counting(view: StructureView, ends: Iterable[Node]) -> set[int]:
    """Ids of the nodes, among the ends and their producers, that are computed from integers."""
    reached = list(ends)
    readers: dict[int, list[int]] = {}
    visited = {node.id for node in reached}
    for reader in reached:  # grows
        for maker in _open_makers(view, reader, _ANGLE_STEPS):
            readers.setdefault(maker.id, []).append(reader.id)
            if maker.id not in visited:
                visited.add(maker.id)
                reached.append(maker)
    queue = [
        node.id for node in reached if any(_counts(view, maker) for maker in view.producers(node))
    ]
    counting = set(queue)
    while queue:
        for reader_id in readers.get(queue.pop(), ()):
            if reader_id not in counting:
                counting.add(reader_id)
                queue.append(reader_id)
    return counting


def _counts(view: StructureView, node: Node) -> bool:
    """Whether a node converts integers to floats: a Cast from an integer, or a Range."""
    if node.kind is Kind.SOURCE and node.inputs:
        return True
    row = view.rows[node.id]
    return row is not None and Risk.POSITION in row.risks


RULES = (
    StructureRule(
        "returns-to-integers",
        "float arithmetic whose result becomes an integer",
        returns_to_integers,
    ),
    StructureRule("exact-operand", "arithmetic for an operand that is read in f32", exact_operand),
    StructureRule("angles", "positions times frequencies under a sine", angles),
)
