"""Operators that compute number by number, one behind the other, in one pass over memory."""

from mezzo.core.graph import Node
from mezzo.units.selector import tree
from mezzo.units.unit import Kernel, Pattern
from mezzo.units.view import View


def _joins(view: View, node: Node) -> bool:
    """Whether a node computes number by number, or only hands numbers on."""
    return view.is_pointwise(node) or view.hands_on(node)


PATTERNS = (
    Pattern(
        name="elementwise",
        summary="operators that compute number by number, as far as one result leaves them",
        kernels=tuple(
            Kernel(target=target, order=90, make=tree(_joins), source=source, since=since, starts_at_end=True)
            for target, source, since in (
                ("openvino-cpu", "runtime graphs: Eltwise and Subgraph of several layers", "OpenVINO 2026.4.1"),
                ("tensorrt", "documentation, Layer Fusion Catalog (PointWise fusion)", "TensorRT 10.15"),
            )
        ),
    ),
)
