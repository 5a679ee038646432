"""Integers carried in floats: shape arithmetic, positions and angles are exact only up to 2/eps (2048 in f16)."""

from collections.abc import Iterable, Iterator

from mezzo.dtypes import DType
from mezzo.facts import Cost, Function, Risk
from mezzo.graph import Kind, Node, Role
from mezzo.policy import Finding
from mezzo.structure import StructureRule, View

_ARITHMETIC = frozenset({Cost.POINTWISE, Cost.MOVEMENT, Cost.GENERATOR})
_INTEGERS = frozenset({DType.INT64, DType.INT32, DType.INT16, DType.INT8, DType.UINT64, DType.UINT32, DType.UINT16, DType.UINT8})


def _back(view: View, ends: Iterable[Node], costs: frozenset[Cost]) -> Iterator[tuple[Node, Node]]:
    """Walk back from nodes through arithmetic of unbounded results: (node, the reader that led to it)."""
    queue = list(ends)
    seen = {node.id for node in queue}
    while queue:
        reader = queue.pop()
        makers = [
            view.graph.nodes[view.graph.values[v].producer]
            for v, role in zip(reader.inputs, reader.signature.inputs, strict=True)
            if v is not None and view.graph.values[v].dtype is not None and role is not Role.FIXED
        ]
        for maker in makers:
            row = view.rows[maker.id]
            is_open = maker.kind is Kind.TIE or (row is not None and row.cost in costs and not row.is_bounded)
            if maker.id not in seen and is_open and view.is_decided(maker):
                seen.add(maker.id)
                queue.append(maker)
                yield maker, reader


def returns_to_integers(view: View) -> Iterable[Finding]:
    """Arithmetic whose result is cast to an integer. A cast to bool asks only whether it is zero."""
    graph = view.graph
    ends = [
        node
        for node in view.nodes(Function.CAST)
        if node.kind is Kind.OP and node.outputs and node.outputs[0] is not None and graph.values[node.outputs[0]].dtype in _INTEGERS
    ]
    for node, reader in _back(view, ends, _ARITHMETIC):
        yield Finding(node.id, "returns-to-integers", f"its result becomes an integer through {reader.name!r}", reader.id)


def exact_operand(view: View) -> Iterable[Finding]:
    """Arithmetic that feeds an operand which keeps FP32: scales, ratios, grids, thresholds."""
    graph = view.graph
    for value, uses in zip(graph.values, graph.uses, strict=True):
        if value.dtype is not DType.FLOAT32:
            continue
        for use in uses:
            reader = graph.nodes[use.node]
            if reader.signature.inputs[use.operand] is not Role.FIXED or reader.kind is not Kind.OP:
                continue
            maker = graph.nodes[value.producer]
            row = view.rows[maker.id]
            if row is None or row.cost not in _ARITHMETIC or not view.is_decided(maker):
                continue
            text = f"feeds operand {use.operand} of {reader.name!r}, which is read in f32"
            yield Finding(maker.id, "exact-operand", text, reader.id)
            for node, later in _back(view, [maker], _ARITHMETIC):
                yield Finding(node.id, "exact-operand", text, later.id)


def angles(view: View) -> Iterable[Finding]:
    """Positions times frequencies under a sine or cosine (rotary and sinusoidal embeddings)."""
    costs = _ARITHMETIC | {Cost.LINEAR}
    for end in view.graph.nodes:
        row = view.rows[end.id]
        if row is None or Risk.PERIODIC not in row.risks or row.cost is not Cost.POINTWISE or not view.is_decided(end):
            continue
        chain = list(_back(view, [end], costs))
        if not any(_counts(view, maker) for node, _ in [(end, end), *chain] for maker in view.producers(node)):
            continue
        yield Finding(end.id, "angles", "turns positions into angles, whose absolute error is what counts")
        for node, reader in chain:
            yield Finding(node.id, "angles", f"is part of the angle that {end.name!r} takes", reader.id)


def _counts(view: View, node: Node) -> bool:
    """Whether a node brings integers into floats: a Cast from one, or a range."""
    if node.kind is Kind.SOURCE and node.inputs:
        return True
    row = view.rows[node.id]
    return row is not None and Risk.POSITION in row.risks


RULES = (
    StructureRule("returns-to-integers", "float arithmetic whose result becomes an integer", returns_to_integers),
    StructureRule("exact-operand", "arithmetic for an operand that is read in f32", exact_operand),
    StructureRule("angles", "positions times frequencies under a sine", angles),
)
