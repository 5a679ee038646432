"""A graph as arrays: what the planner asks of every use and value at once. Derived from the Graph, never instead of
it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mezzo.dtypes import DType

if TYPE_CHECKING:
    from mezzo.graph import Graph

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GROUP, FIXED, ANY = 0, 1, 2
_DTYPES = {dtype: code for code, dtype in enumerate(DType)}
_UNKNOWN = len(_DTYPES)


@dataclass(frozen=True, slots=True)
class Columns:
    """Uses in node order, values and nodes by id. Roles are GROUP, FIXED or ANY; kinds index the members of Kind.

    `value_role` is the role of the port that makes the value. `repeats` are those of the scope a value or node is in.
    """

    use_value: Ints
    use_node: Ints
    use_operand: Ints
    use_role: Ints
    use_widened: Bools
    use_aliased: Bools
    value_producer: Ints
    value_role: Ints
    value_dtype: Ints
    value_elements: Ints
    value_repeats: Ints
    node_kind: Ints
    node_repeats: Ints

    def holds(self, dtype: DType) -> Bools:
        """Which values hold a dtype today."""
        found: Bools = self.value_dtype == _DTYPES[dtype]
        return found

    def made_in(self, low: DType, is_low: Bools) -> Bools:
        """Which values their producers make low, given which nodes run low."""
        found: Bools = np.where(self.value_role == GROUP, is_low[self.value_producer], self.holds(low))
        return found

    def wanted_in(self, low: DType, is_low: Bools) -> Bools:
        """Which uses want their value low, given which nodes run low. Uses with the role ANY say nothing."""
        held = self.holds(low)[self.use_value] & ~self.use_widened
        found: Bools = np.where(self.use_role == GROUP, is_low[self.use_node], held)
        return found


def columns_of(graph: "Graph") -> Columns:
    """Build the arrays, in one walk over the nodes."""
    from mezzo.graph import Kind, Role

    codes = {Role.GROUP: GROUP, Role.FIXED: FIXED, Role.ANY: ANY}
    kinds = {kind: code for code, kind in enumerate(Kind)}
    roles_of: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    use_value: list[int] = []
    use_node: list[int] = []
    use_operand: list[int] = []
    use_role: list[int] = []
    value_role = [FIXED] * len(graph.values)
    for node in graph.nodes:
        signature = node.signature
        roles = roles_of.get(id(signature))
        if roles is None:
            roles = tuple(codes[r] for r in signature.inputs), tuple(codes[r] for r in signature.outputs)
            roles_of[id(signature)] = roles
        number = node.id
        for operand, value in enumerate(node.inputs):
            if value is not None:
                use_value.append(value)
                use_node.append(number)
                use_operand.append(operand)
                use_role.append(roles[0][operand])
        for port, value in enumerate(node.outputs):
            if value is not None:
                value_role[value] = roles[1][port]
    repeats = np.array([scope.repeats for scope in graph.scopes], np.int64)
    uses = len(use_value)
    widened, aliased = np.zeros(uses, bool), np.zeros(uses, bool)
    if graph.aliased:
        for at, use in enumerate(zip(use_node, use_operand, strict=True)):
            widened[at], aliased[at] = use in graph.widened, use in graph.aliased
    values = graph.values
    return Columns(
        np.array(use_value, np.int64), np.array(use_node, np.int64), np.array(use_operand, np.int64),
        np.array(use_role, np.int64), widened, aliased,
        np.array([v.producer for v in values], np.int64), np.array(value_role, np.int64),
        np.array([_UNKNOWN if v.dtype is None else _DTYPES[v.dtype] for v in values], np.int64),
        np.array([v.elements for v in values], np.int64), repeats[[v.scope for v in values]],
        np.array([kinds[n.kind] for n in graph.nodes], np.int64), repeats[[n.scope for n in graph.nodes]],
    )  # fmt: skip
