"""Fusion patterns of elementwise operators, which run in one pass over memory."""

from mezzo.analysis.fusion.selector import Make, fixed, tree
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node
from mezzo.tables.fusions import Fusion

_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def _joins(view: FusionView, node: Node) -> bool:
    """Whether a node is elementwise or an Identity."""
    return view.is_pointwise(node) or view.is_identity(node)


def _converting(fusion: Fusion) -> Make:
    """Grows over operators of generated code, which computes in FP32 and converts while reading and
    writing.
    """

    def joins(view: FusionView, node: Node) -> bool:
        if view.is_identity(node):
            return True
        if view.op(node) not in fusion.operators or not view.is_float(node):
            return False
        is_known = view.have_static_shapes((*node.inputs, *node.outputs))
        return is_known and not _moves_up(view, node)

    return tree(joins)


def _moves_up(view: FusionView, node: Node) -> bool:
    """Whether OpenVINO moves a node, or a Cast before it, above data movement, where the Cast is a
    separate kernel.
    """
    varying = [operand for operand, value in enumerate(node.inputs) if not view.is_constant(value)]
    makers = {view.op(maker) for maker in view.makers(node)}
    return "Transpose" in makers or (len(varying) == 1 and not makers.isdisjoint(_RESHAPING))


PATTERNS = (
    Pattern(
        name="elementwise",
        summary="operators that compute number by number, as far as one result leaves them",
        forms={"": fixed(tree(_joins)), "converting": _converting},
        starts_at_end=True,
    ),
)
