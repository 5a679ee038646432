"""What Inductor writes as one kernel: all that is no product. It computes in FP32 whatever it reads and writes, and
conversions are part of the pass over memory.
"""

from mezzo.core.facts import Cost
from mezzo.core.nodes import Kind, Node
from mezzo.dtypes import HALF_FORMATS
from mezzo.units.selector import tree
from mezzo.units.unit import Constraint, Inside, Kernel, Pattern
from mezzo.units.view import View

_DIALECTS = frozenset({"aten", "prims"})
_COMPUTED = frozenset({Cost.POINTWISE, Cost.NORMALIZATION, Cost.REDUCTION})
# What makes no copy: it is seen through, and what is converted behind it is converted by the kernel before it.
_VIEWS = frozenset(
    {"alias", "as_strided", "detach", "diagonal", "expand", "expand_as", "flatten", "lift", "narrow", "permute"}
    | {"reshape", "select", "slice", "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind"}
    | {"unflatten", "unfold", "unsafe_view", "_unsafe_view", "unsqueeze", "view", "view_as", "view_copy"}
)  # fmt: skip
_CONSTRAINT = Constraint(inside=Inside.FLOAT32, formats=HALF_FORMATS, reads_free=HALF_FORMATS, writes_free=HALF_FORMATS)


def _is_generated(view: View, node: Node) -> bool:
    return node.id in view.once(_generated)


def _generated(view: View) -> frozenset[int]:
    """The nodes that stand in kernels of Inductor's own, and what such a kernel's result is only seen through by."""
    found: set[int] = set()
    for node in view.graph.nodes:
        row = view.rows[node.id]
        is_traced = node.signature.dialect in _DIALECTS
        if node.kind is not Kind.OP or row is None or not is_traced or not view.is_float(node):
            continue
        if row.cost is Cost.MOVEMENT and node.op in _VIEWS:
            maker = None if node.inputs[0] is None else view.graph.values[node.inputs[0]].producer
            is_inside = maker in found
        else:
            is_inside = row.cost in _COMPUTED or row.cost is Cost.MOVEMENT
        if is_inside:
            found.add(node.id)
    return frozenset(found)


PATTERNS = (
    Pattern(
        name="inductor",
        summary="pointwise work, norms, reductions and moves that Inductor writes as loops",
        kernels=tuple(
            Kernel(
                target=target,
                order=90,
                make=tree(_is_generated),
                source="torch._inductor: low operands of pointwise work and reductions are widened as they are loaded",
                since="PyTorch 2.13",
                constraint=_CONSTRAINT,
                starts_at_end=True,
                least=1,
            )
            for target in ("torch-cpu", "torch-cuda")
        ),
    ),
)
