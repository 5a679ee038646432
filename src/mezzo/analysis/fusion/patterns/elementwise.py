"""Fusion patterns of elementwise operators, which run in one pass over memory."""

from mezzo.analysis.fusion.selector import tree
from mezzo.analysis.fusion.unit import Constraint, FusedKernel, Inside, Pattern
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import HALF_FORMATS, DType
from mezzo.ir.nodes import Node

_BF16 = frozenset({DType.BFLOAT16})
# Operators that OpenVINO compiles into a Subgraph, with the Casts around it, if shapes are static;
# otherwise each Cast is a kernel.
_GENERATED = frozenset(
    {
        "Abs",
        "Add",
        "Ceil",
        "Celu",
        "Clip",
        "Div",
        "Elu",
        "Erf",
        "Exp",
        "Floor",
        "Gelu",
        "HardSwish",
        "LeakyRelu",
        "Max",
        "Mean",
        "Min",
        "Mod",
        "Mul",
        "Neg",
        "PRelu",
        "Pow",
        "Reciprocal",
        "Relu",
        "Round",
        "Sigmoid",
    }
    | {"Softsign", "Sqrt", "Sub", "Sum", "Tanh", "ThresholdedRelu"}
)
_RESHAPING = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})


def _joins(view: FusionView, node: Node) -> bool:
    """Whether a node is elementwise or an Identity."""
    return view.is_pointwise(node) or view.hands_on(node)


def _is_generated(view: FusionView, node: Node) -> bool:
    """Whether OpenVINO generates code for a node, which computes in FP32 and converts while reading
    and writing.
    """
    if view.hands_on(node):
        return True
    if view.op(node) not in _GENERATED or not view.is_float(node):
        return False
    shapes = [
        view.graph.shapes.get(value) for value in (*node.inputs, *node.outputs) if value is not None
    ]
    is_known = view.has_fixed_inputs and all(
        shape is not None and None not in shape for shape in shapes
    )
    return is_known and not _moves_up(view, node)


def _moves_up(view: FusionView, node: Node) -> bool:
    """Whether OpenVINO moves a node, or a Cast before it, above data movement, where the Cast is a
    separate kernel.
    """
    varying = [operand for operand, value in enumerate(node.inputs) if not view.is_constant(value)]
    makers = {
        view.op(maker)
        for maker in (view.maker(node, operand) for operand in varying)
        if maker is not None
    }
    return "Transpose" in makers or (len(varying) == 1 and not makers.isdisjoint(_RESHAPING))


PATTERNS = (
    Pattern(
        name="elementwise",
        summary="operators that compute number by number, as far as one result leaves them",
        kernels=(
            FusedKernel(
                target="openvino-cpu",
                order=90,
                make=tree(_is_generated),
                source="runtime graphs: a Subgraph of Cast, operators and Cast, in FP32",
                since="OpenVINO 2026.4.1",
                constraint=Constraint(
                    inside=Inside.FLOAT32, formats=_BF16, reads_free=_BF16, writes_free=_BF16
                ),
                starts_at_end=True,
                least=1,
            ),
            FusedKernel(
                target="openvino-cpu",
                order=91,
                make=tree(_joins),
                source="runtime graphs: Eltwise and Subgraph of several layers",
                since="OpenVINO 2026.4.1",
                starts_at_end=True,
            ),
            FusedKernel(
                target="tensorrt",
                order=90,
                make=tree(_joins),
                source="documentation, Layer Fusion Catalog (PointWise fusion)",
                since="TensorRT 10.15",
                constraint=Constraint(formats=HALF_FORMATS),
                starts_at_end=True,
            ),
        ),
    ),
)
