"""Fusion patterns of decomposed activations: GELU with Erf and Tanh, SiLU, and a bias before
GELU.
"""

from collections.abc import Sequence

from mezzo.analysis.fusion.composites import composites_at
from mezzo.analysis.fusion.selector import Form, Free, whole
from mezzo.analysis.fusion.unit import Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.ir.nodes import Node

_GELU = ("gelu-erf", "gelu-tanh")
_UNFUSED_ADD = 13  # the version of Add that ONNX Runtime's bias fusion does not match


def _composite(*names: str, must_be_usual: bool = False) -> Form:
    """Matches a decomposed activation, with its last node as the seed.

    `must_be_usual`: only in the form that every fusion recognises.
    """

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        composite = composites_at(view).get(seed.id)
        if composite is None or composite.name not in names or not view.is_float(seed):
            return None
        if must_be_usual and not composite.is_usual:
            return None
        return [view.graph.nodes[node] for node in sorted(composite.nodes)]

    return whole(match)


def _biased(*names: str) -> Form:
    """Matches an activation after a per-channel bias without other readers."""

    def match(view: FusionView, seed: Node, free: Free) -> Sequence[Node] | None:
        composite = composites_at(view).get(seed.id)
        if composite is not None and composite.name in names and composite.is_usual:
            nodes, value = composite.nodes, composite.value
        elif view.op(seed) == "Gelu" and seed.inputs and seed.inputs[0] is not None:
            nodes, value = frozenset({seed.id}), view.origin(seed.inputs[0])
        else:
            return None
        bias_add = view.producer(value)
        is_read_elsewhere = any(reader.id not in nodes for reader, _ in view.readers(value))
        if (
            is_read_elsewhere
            or bias_add.scope != seed.scope
            or not free(bias_add.id)
            or not _adds_channels(view, bias_add)
        ):
            return None
        return [bias_add, *(view.graph.nodes[node] for node in sorted(nodes))]

    return whole(match)


def _adds_channels(view: FusionView, node: Node) -> bool:
    """Whether a node adds a constant vector."""
    if view.op(node) != "Add" or not view.is_float(node) or node.signature.version == _UNFUSED_ADD:
        return False
    return any(
        view.is_constant(value) and len(view.shape(node, operand) or ()) == 1
        for operand, value in enumerate(node.inputs)
    )


PATTERNS = (
    Pattern(
        name="bias-gelu",
        summary="a bias and GELU in any spelling",
        forms={"": _biased(*_GELU)},
    ),
    Pattern(
        name="gelu",
        summary="GELU written out, with erf or with tanh",
        forms={"": _composite(*_GELU), "usual": _composite(*_GELU, must_be_usual=True)},
    ),
    Pattern(
        name="silu",
        summary="x times the sigmoid of x, or of x scaled",
        forms={"": _composite("silu")},
    ),
)
