"""Operators of a runtime's own dialect in place of units: a rule per pattern says which one, or that none does it.

A unit is what the runtime's patterns find; a rule looks closer than they do, as what is written in a file has to answer
as the operators did, whatever the runtime makes of them: axes, ranks, numbers, types.
"""

from collections.abc import Iterator, Mapping, Sequence

from mezzo.analysis.fusion.composites import composites
from mezzo.analysis.fusion.own.activations import ACTIVATIONS, BIASED, SPELLED
from mezzo.analysis.fusion.own.norms import NORMS
from mezzo.analysis.fusion.own.products import PRODUCTS
from mezzo.analysis.fusion.own.rule import Rule
from mezzo.analysis.fusion.unit import Partition
from mezzo.analysis.fusion.view import View
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node, Use
from mezzo.tables.fused_operators import Fused
from mezzo.tables.target import OwnOperator

RULES: Mapping[str, Rule] = {**PRODUCTS, **ACTIVATIONS, **NORMS}
_QUANTIZE, _DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def fused_in(view: View, split: Partition, rows: Sequence[OwnOperator]) -> Iterator[Fused]:
    """What of a graph is written as one of the operators of a target's rows: its units, and activations in a spelling
    that the runtime does not find by itself.
    """
    dtypes = {(row.dialect, row.op): row.dtypes for row in rows}
    taken: set[int] = set()
    for rule, numbers in _candidates(view, split):
        nodes = [view.graph.nodes[number] for number in sorted(numbers)]
        fused = None if numbers & taken or _is_beside_integers(view, nodes) else rule(view, nodes)
        if fused is None or not _is_whole(view, fused):
            continue
        held = _types_in(view, fused)
        if len(held) == 1 and held <= dtypes.get((fused.dialect, fused.op), frozenset()):
            taken |= numbers
            yield fused


def _candidates(view: View, split: Partition) -> Iterator[tuple[Rule, frozenset[int]]]:
    """Nodes that a rule may write as one operator; of those that overlap the first to try comes first."""
    for unit in split.units:
        if unit.pattern in RULES:
            yield RULES[unit.pattern], frozenset(unit.nodes)
    alone = {*split.alone}
    for composite in composites(view):
        if composite.nodes <= alone and composite.name in SPELLED:
            added = view.graph.values[composite.value].producer
            if added in alone and composite.name in BIASED:
                yield BIASED[composite.name], composite.nodes | {added}
            yield SPELLED[composite.name], composite.nodes


def _is_beside_integers(view: View, nodes: Sequence[Node]) -> bool:
    """Whether nodes read what is dequantized or make what is quantized, by which a runtime finds integer kernels."""
    graph = view.graph
    for node in nodes:
        makers = (graph.nodes[graph.values[view.origin(value)].producer] for value in node.inputs if value is not None)
        readers = (reader for value in node.outputs if value is not None for reader, _ in view.readers(value))
        if any(maker.op == _DEQUANTIZE for maker in makers) or any(reader.op == _QUANTIZE for reader in readers):
            return True
    return False


def _is_whole(view: View, fused: Fused) -> bool:
    """Whether nothing outside reads what the nodes make for each other, and all of them stand in one scope."""
    nodes, inside = [view.graph.nodes[number] for number in fused.nodes], {*fused.nodes}
    if any(view.escapes(node, inside) for node in nodes[:-1]) or len({node.scope for node in nodes}) > 1:
        return False
    return not any(view.graph.uses[value] for value in nodes[-1].outputs[1:] if value is not None)


def _types_in(view: View, fused: Fused) -> set[DType | None]:
    """The types of all floats that the nodes read and make; None among them where one is read through a Cast."""
    graph, found = view.graph, set[DType | None]()
    for node in (graph.nodes[number] for number in fused.nodes):
        for operand, value in enumerate(node.inputs):
            if value is not None and graph.values[value].dtype is not None:
                found.add(None if Use(node.id, operand) in graph.aliased else graph.values[value].dtype)
        found.update(graph.values[value].dtype for value in node.outputs if value is not None)
    return found
