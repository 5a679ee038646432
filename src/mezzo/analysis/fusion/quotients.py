"""Norms that multiply by a root's reciprocal, as quotients by the root: in some types a runtime fuses no others.

x * (1 / r) rounds twice and x / r once, so what is written is as exact or more.
"""

from collections.abc import Collection, Iterator

from mezzo.analysis.fusion.unit import Partition
from mezzo.analysis.fusion.view import View
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node, Use
from mezzo.tables.facts import Function

_NORMS = frozenset({"layer-norm", "rms-norm"})


def quotients_in(view: View, split: Partition, dtypes: Collection[DType]) -> Iterator[Replacement]:
    """The quotients that the norms of a graph are written with, of those that are all of one of the types."""
    for unit in split.units:
        nodes = [view.graph.nodes[number] for number in unit.nodes]
        if unit.pattern in _NORMS and {node.signature.dtype for node in nodes} <= {*dtypes}:
            yield from (quotient for node in nodes if (quotient := _quotient(view, node)) is not None)


def _quotient(view: View, reciprocal: Node) -> Replacement | None:
    """What a reciprocal's only reader makes of it, by one division."""
    is_quotient = view.function(reciprocal) is Function.DIVIDE and view.number(reciprocal, 0) == 1.0
    if view.function(reciprocal) is not Function.RECIPROCAL and not is_quotient:
        return None
    product = view.sole_reader(reciprocal)
    if product is None or view.function(product) is not Function.MULTIPLY:
        return None
    inverse = [view.same(value, reciprocal.outputs[0]) for value in product.inputs]
    if not any(inverse):
        return None
    reads = (Use(product.id, 1 - inverse.index(True)), Use(reciprocal.id, int(is_quotient)))
    return Replacement(op="Div", nodes=(reciprocal.id, product.id), reads=reads)
