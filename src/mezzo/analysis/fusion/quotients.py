"""Rewriting of norms from multiplication by a reciprocal root to division, which some runtimes
require for fusion.

x * (1 / r) rounds twice and x / r once, so the result is at least as accurate.
"""

from collections.abc import Collection, Iterator

from mezzo.analysis.fusion.unit import Partition
from mezzo.analysis.fusion.view import FusionView
from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node, Use
from mezzo.tables.facts import Function

_NORMS = frozenset({"layer-norm", "rms-norm"})


def quotients_in(
    view: FusionView, split: Partition, dtypes: Collection[DType]
) -> Iterator[Replacement]:
    """Replacements for the norms of a graph whose nodes all have one of the dtypes."""
    for unit in split.units:
        nodes = [view.graph.nodes[number] for number in unit.nodes]
        if unit.pattern in _NORMS and {node.signature.dtype for node in nodes} <= {*dtypes}:
            yield from (
                quotient for node in nodes if (quotient := _quotient(view, node)) is not None
            )


def _quotient(view: FusionView, reciprocal: Node) -> Replacement | None:
    """The division that replaces a reciprocal and its only reader, a multiplication; else None."""
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
