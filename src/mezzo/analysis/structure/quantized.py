"""Operators between DequantizeLinear and QuantizeLinear, which runtimes fuse into integer kernels
if no Cast is inserted.
"""

from collections.abc import Iterable, Iterator

from mezzo.analysis.structure import Detection, StructureRule, StructureView
from mezzo.ir.nodes import Node
from mezzo.tables.facts import Cost


def quantized_part(view: StructureView) -> Iterable[Detection]:
    """Operators that read dequantized values, up to the QuantizeLinear."""
    for node in view.nodes_where(lambda row: row.cost is Cost.QUANTIZE):
        for start in view.producers(node):
            yield from _between(view, start, node)


def _between(view: StructureView, node: Node, quantizer: Node) -> Iterator[Detection]:
    path: list[Node] = []
    while view.is_decided(node) and node.id not in {n.id for n in path}:
        path.append(node)
        makers = view.producers(node)
        if any(view.cost(maker) is Cost.QUANTIZE for maker in makers):
            text = f"is part of the quantized operator that {quantizer.name!r} ends"
            for step in path:
                if view.cost(step) is not Cost.QUANTIZE:
                    yield Detection(step, text, quantizer)
            return
        if view.cost(node) not in (Cost.POINTWISE, Cost.MOVEMENT) or not makers:
            return
        node = makers[0]


RULES = (
    StructureRule(
        "quantized-part", "operators between dequantizing and quantizing", quantized_part
    ),
)
