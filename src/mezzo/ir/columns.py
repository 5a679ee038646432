"""Graph as NumPy arrays, for vectorized queries over all uses and values."""

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Role, Scope, Signature, Use, Value

if TYPE_CHECKING:
    from mezzo.formats.precision_line import PrecisionLine

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

GROUP, FIXED, ANY = 0, 1, 2


def distinct(numbers: Ints) -> Ints:
    """Sorted unique numbers; unlike `np.unique`, without importing masked arrays."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return ordered[is_first]


_KINDS = {kind: code for code, kind in enumerate(Kind)}
_DTYPES = {dtype: code for code, dtype in enumerate(DType)}
_UNKNOWN = len(_DTYPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Arrays of a graph: uses in node order, values and nodes by id. Roles are GROUP, FIXED or ANY;
    kinds are indices into Kind.

    `value_role` is the role of the output port that produces the value. `repeats` are those of the
    scope of a value or node. `signatures` lists the distinct signatures, which are few;
    `node_signature` indexes it.
    """

    signatures: tuple[Signature, ...]

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
    node_signature: Ints
    node_repeats: Ints

    def is_kind(self, *kinds: Kind) -> Bools:
        """Mask of the nodes of any of these kinds."""
        return _mask(len(_KINDS), [_KINDS[kind] for kind in kinds])[self.node_kind]

    def holds(self, *dtypes: DType) -> Bools:
        """Mask of the values with any of these dtypes in the source model."""
        return _mask(_UNKNOWN + 1, [_DTYPES[dtype] for dtype in dtypes])[self.value_dtype]

    @property
    def use_wants(self) -> Bools:
        """Mask of the uses that need a certain level; the others accept any dtype."""
        wants: Bools = self.use_role != ANY
        return wants

    def levels_held(self, line: "PrecisionLine") -> Ints:
        """The level of each value's source dtype; the base for dtypes without a level."""
        by_code = np.full(_UNKNOWN + 1, line.base, np.int64)
        by_code[[_DTYPES[dtype] for dtype in line.dtypes]] = np.arange(len(line.dtypes))
        levels: Ints = by_code[self.value_dtype]
        return levels

    def produced_levels(self, line: "PrecisionLine", levels: Sequence[int]) -> Ints:
        """The level at which each value is produced, given the level of each node."""
        level_of_node = np.asarray(levels, np.int64)
        return np.where(
            self.value_role == GROUP, level_of_node[self.value_producer], self.levels_held(line)
        )

    def needed_levels(self, line: "PrecisionLine", levels: Sequence[int]) -> Ints:
        """The level that each use needs, by the nodes' levels; undefined for role ANY."""
        level_of_node = np.asarray(levels, np.int64)
        unchanged = np.where(self.use_widened, line.base, self.levels_held(line)[self.use_value])
        return np.where(self.use_role == GROUP, level_of_node[self.use_node], unchanged)


def _mask(count: int, codes: list[int]) -> Bools:
    """Mask of some codes below `count`, for indexing by codes: 30 times as fast as `np.isin`."""
    mask = np.zeros(count, bool)
    mask[codes] = True
    return mask


class UsesByValue:
    """Uses of each value, by value id, in node order; built on access."""

    def __init__(self, columns: Columns) -> None:
        order = np.argsort(columns.use_value, kind="stable")
        self._nodes: list[int] = columns.use_node[order].tolist()
        self._operands: list[int] = columns.use_operand[order].tolist()
        counts = np.bincount(columns.use_value, minlength=len(columns.value_producer))
        self._ends: list[int] = np.cumsum(counts).tolist()

    def __getitem__(self, value: int) -> tuple[Use, ...]:
        return tuple(map(Use, *self._parts(value)))

    def pairs(self, value: int) -> Iterator[tuple[int, int]]:
        """Node and operand of each use, which takes half the time."""
        return zip(*self._parts(value), strict=True)

    def _parts(self, value: int) -> tuple[list[int], list[int]]:
        part = slice(self._ends[value - 1] if value else 0, self._ends[value])
        return self._nodes[part], self._operands[part]


def columns_of(
    nodes: Sequence[Node],
    values: Sequence[Value],
    scopes: Sequence[Scope],
    aliased: Set[Use],
    widened: Set[Use],
) -> Columns:
    """Build the arrays of a graph from its nodes, values and scopes."""
    signatures = [*{id(node.signature): node.signature for node in nodes}.values()]
    codes = {id(signature): code for code, signature in enumerate(signatures)}
    node_signature = np.array([codes[id(node.signature)] for node in nodes], np.int64)
    use_node, use_operand, use_value, use_role = _ports(
        [node.inputs for node in nodes],
        node_signature,
        [signature.inputs for signature in signatures],
    )
    _, _, made_value, made_role = _ports(
        [node.outputs for node in nodes],
        node_signature,
        [signature.outputs for signature in signatures],
    )
    value_role = np.full(len(values), FIXED)
    value_role[made_value] = made_role
    repeats = np.array([scope.repeats for scope in scopes], np.int64)
    is_widened, is_aliased = np.zeros(len(use_node), bool), np.zeros(len(use_node), bool)
    if aliased:
        for at, use in enumerate(zip(use_node.tolist(), use_operand.tolist(), strict=True)):
            is_widened[at], is_aliased[at] = use in widened, use in aliased
    return Columns(
        signatures=tuple(signatures),
        use_value=use_value,
        use_node=use_node,
        use_operand=use_operand,
        use_role=use_role,
        use_widened=is_widened,
        use_aliased=is_aliased,
        value_producer=np.array([v.producer for v in values], np.int64),
        value_role=value_role,
        value_dtype=np.array(
            [_UNKNOWN if v.dtype is None else _DTYPES[v.dtype] for v in values], np.int64
        ),
        value_elements=np.array([v.elements for v in values], np.int64),
        value_repeats=repeats[[v.scope for v in values]],
        node_kind=np.array([_KINDS[n.kind] for n in nodes], np.int64),
        node_signature=node_signature,
        node_repeats=repeats[[n.scope for n in nodes]],
    )


def _ports(
    operands: Sequence[tuple[int | None, ...]], signature: Ints, roles: Sequence[tuple[Role, ...]]
) -> tuple[Ints, Ints, Ints, Ints]:
    """Node, port, value and role of every port with a value."""
    codes = {Role.GROUP: GROUP, Role.FIXED: FIXED, Role.ANY: ANY}
    counts = np.array([len(ports) for ports in operands], np.int64)
    node = np.repeat(np.arange(len(operands)), counts)
    port = np.arange(len(node)) - np.repeat(np.cumsum(counts) - counts, counts)
    value = np.array([-1 if v is None else v for v in chain.from_iterable(operands)], np.int64)
    flat = np.array([codes[role] for role in chain.from_iterable(roles)], np.int64)
    starts = np.cumsum([0, *(len(ports) for ports in roles)])
    role = flat[starts[signature[node]] + port] if len(flat) else flat
    has_value = value >= 0
    return node[has_value], port[has_value], value[has_value], role[has_value]
