"""The graph the planner sees: nodes, values, uses and scopes of any dialect, without its weights.

Everything that holds a precision is a node: an operator, but also a graph input, a graph output, a constant and a tie.
So a strategy, `lower` and `check` walk one list and know no special cases. Nodes stand in an order in which every value
is produced before it is used, bodies and functions included; an id is a position in that order. One exception: a tie
that carries loop state stands before its body and uses a value made inside.

Casts that change nothing, or only widen, are not nodes: their users use the value itself. `aliased` says which operands
read through such a Cast today, and `widened` which of them read it in FP32.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node, Scope, SourceLine, Use, Value

if TYPE_CHECKING:
    from mezzo.ir.columns import Columns, UsesByValue


class ConstantFacts(NamedTuple):
    """What a constant holds, without its numbers. Magnitudes skip zeros, infinities and NaN; 0.0 where none is left.

    `values` is the full content of a constant of at most 8 elements, else None. `mean`, `rms`, `minimum` and `maximum`
    are of all finite numbers, zeros included; `rms` is None where the front end has not measured them. `faint`: the
    magnitude that a quarter of the numbers, zeros apart, stay below, where it is far below `rms`; else None. All are
    whole numbers if `is_whole`. `level_gain`: by what a small kernel multiplies a level signal, root mean square of the
    sums over all axes but the first; None where it has fewer than three.
    """

    elements: int
    largest: float
    smallest: float
    has_infinity: bool
    has_nan: bool
    has_negative: bool
    values: tuple[float, ...] | None
    mean: float = 0.0
    rms: float | None = None
    minimum: float = 0.0
    maximum: float = 0.0
    faint: float | None = None
    is_whole: bool = False
    level_gain: float | None = None


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model as the planner sees it. Immutable."""

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    scopes: tuple[Scope, ...]
    constants: Mapping[int, ConstantFacts]  # by value id; of an input, what it holds where the caller feeds nothing
    widened: frozenset[Use]  # operands that read their value through a widening Cast of the model
    aliased: frozenset[Use]
    # Casts the model came with: the value exists in this dtype too, made by this node (None: by a cast that is no
    # node).
    forms: Mapping[tuple[int, DType], int | None]
    notes: tuple[str, ...] = field(default=())  # what reading could not resolve, for people
    # Asked for by rules of a policy and by reports only, so a front end may work them out when first looked at. By node
    # id: the path of the module that the node was exported from, "" for the model itself. By value id: the shape, None
    # per unknown dimension.
    modules: Mapping[int, str] = field(default_factory=dict, compare=False)
    shapes: Mapping[int, tuple[int | None, ...]] = field(default_factory=dict, compare=False)
    # By node id: the line of the program that the node was exported from. Worked out anew at each look.
    lines: Mapping[int, SourceLine] = field(default_factory=dict, compare=False)
    # By node id: the precision that the program itself asks of a node; None: that it is written in.
    marks: Mapping[int, DType | None] = field(default_factory=dict, compare=False)
    # By value id inside a function: the operand it stands for, of those that no tie carries.
    entered: Mapping[int, int] = field(default_factory=dict, compare=False)
    # By value id: what constants in FP64 hold, and the numbers of an integer constant of few elements.
    wide_constants: Mapping[int, ConstantFacts] = field(default_factory=dict, compare=False)
    integers: Mapping[int, tuple[int, ...]] = field(default_factory=dict, compare=False)

    @cached_property
    def uses(self) -> "UsesByValue":
        """Uses of each value, by value id, in node order."""
        from mezzo.ir.columns import UsesByValue

        return UsesByValue(self.columns)

    @cached_property
    def columns(self) -> "Columns":
        """Uses, values and nodes as arrays."""
        from mezzo.ir.columns import columns_of

        return columns_of(self.nodes, self.values, self.scopes, self.aliased, self.widened)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the structure does; the weights' numbers and the values' sizes do not enter."""
        digest = hashlib.sha256()
        for node in self.nodes:
            line = (
                node.name,
                node.kind.value,
                node.op,
                node.inputs,
                node.outputs,
                node.scope,
                str(node.signature.dtype),
            )
            digest.update(repr(line).encode())  # repr spells what is no text
        return digest.hexdigest()[:32]

    @cached_property
    def content(self) -> str:
        """Changes with what constants hold too, as far as their facts tell it."""
        facts = repr([(value, *self.constants[value]) for value in sorted(self.constants)])
        return hashlib.sha256(f"{self.fingerprint} {facts}".encode()).hexdigest()[:32]

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """Node ids by name; names are unique."""
        return {node.name: node.id for node in self.nodes}
