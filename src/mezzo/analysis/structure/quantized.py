"""Operators between DequantizeLinear and QuantizeLinear, which runtimes fuse into integer kernels
if no Cast is inserted.
"""

from collections.abc import Iterable, Iterator

from mezzo.analysis.structure import StructureRule, StructureView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Cost
from mezzo.tables.policy import Finding


def quantized_part(view: StructureView) -> Iterable[Finding]:
    """Operators that read dequantized values, up to the QuantizeLinear."""
    for node in view.nodes_where(lambda row: row.cost is Cost.QUANTIZE):
        for start in view.producers(node):
            yield from _between(view, start, node)


def _between(view: StructureView, node: Node, quantizer: Node) -> Iterator[Finding]:
    path: list[Node] = []
    while view.is_decided(node) and node.id not in {n.id for n in path}:
        path.append(node)
        makers = view.producers(node)
        if any(_is_quantized(view, maker) for maker in makers):
            for step in path:
                if not _is_quantized(view, step):
                    because = f"is part of the quantized operator that {quantizer.name!r} ends"
                    yield Finding(
                        node=step.id, rule="quantized-part", because=because, cause=quantizer.id
                    )
            return
        row = view.rows[node.id]
        if row is None or row.cost not in (Cost.POINTWISE, Cost.MOVEMENT) or not makers:
            return
        node = makers[0]


def _is_quantized(view: StructureView, node: Node) -> bool:
    row = view.rows[node.id]
    return row is not None and row.cost is Cost.QUANTIZE


RULES = (
    StructureRule(
        "quantized-part", "operators between dequantizing and quantizing", quantized_part
    ),
)
