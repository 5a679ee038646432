"""What Inductor writes as one kernel: all that is no product. It computes in FP32 whatever it reads and writes, and
conversions are part of the pass over memory.
"""

from mezzo.core.facts import Cost
from mezzo.core.nodes import Kind, Node
from mezzo.dtypes import HALF_FORMATS
from mezzo.units.selector import tree
from mezzo.units.unit import Constraint, Inside, Kernel, Pattern
from mezzo.units.view import View

# What moves numbers is seen through by Inductor, or copies what it reads: it has no types of its own to convert.
_GENERATED = frozenset({Cost.POINTWISE, Cost.NORMALIZATION, Cost.REDUCTION})
_CONSTRAINT = Constraint(inside=Inside.FLOAT32, formats=HALF_FORMATS, reads_free=HALF_FORMATS, writes_free=HALF_FORMATS)


def _is_generated(view: View, node: Node) -> bool:
    row = view.rows[node.id]
    return node.kind is Kind.OP and row is not None and row.cost in _GENERATED and view.is_float(node)


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
