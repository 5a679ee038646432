"""Graph of the planner: nodes, values, uses and scopes of any dialect, without weights.

Everything with a precision is a node: operators, graph inputs and outputs, constants and ties.
Strategies, `lower` and `check` thus iterate over one list without special cases. Nodes are in
topological order, subgraphs and functions included, and an id is a position in that order. The one
exception: a tie of loop-carried state precedes its body and uses a value produced inside.

Casts that change nothing or only widen are not nodes: their users use the input of the Cast.
`aliased` has the operands that read through such a Cast in the source model, and `widened` those of
them that read it in FP32.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Node, Scope, SourceLine, Use, Value

if TYPE_CHECKING:
    from mezzo.ir.columns import Columns, UsesByValue


class ConstantFacts(NamedTuple):
    """Statistics of a constant. Magnitudes skip zeros, infinities and NaN; 0.0 if no number
    remains.

    `values` is the full content of a constant of at most 8 elements, else None. `mean`, `rms`,
    `minimum` and `maximum` are of all finite numbers, zeros included; `rms` is None if the front
    end has not measured it. `faint`: the first quartile of the nonzero magnitudes if it is far
    below `rms`, else None. `is_whole`: all numbers are integers. `level_gain`: the gain of a small
    kernel on a constant signal, the root mean square of its sums over all axes but the first; None
    with fewer than three axes.
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

    @property
    def number(self) -> float | None:
        """The value of a constant of one element; else None."""
        return self.values[0] if self.values is not None and len(self.values) == 1 else None

    def times_two_to_the(self, exponent: int) -> "ConstantFacts":
        """Statistics of the constant times 2^exponent."""
        if not exponent:
            return self
        factor = 2.0**exponent
        optional = (self.rms, self.faint, self.level_gain)
        rms, faint, level_gain = (None if each is None else each * factor for each in optional)
        return self._replace(
            largest=self.largest * factor,
            smallest=self.smallest * factor,
            values=None if self.values is None else tuple(each * factor for each in self.values),
            mean=self.mean * factor,
            rms=rms,
            minimum=self.minimum * factor,
            maximum=self.maximum * factor,
            faint=faint,
            is_whole=self.is_whole and exponent > 0,
            level_gain=level_gain,
        )


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model as the planner sees it. Immutable."""

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    scopes: tuple[Scope, ...]
    constants: Mapping[int, ConstantFacts]  # by value id; for a graph input, its default value
    widened: frozenset[Use]  # operands that read their value through a widening Cast of the model
    aliased: frozenset[Use]
    # Casts of the source model: the value also exists in this dtype, produced by this node (None:
    # by a Cast that is not a node).
    forms: Mapping[tuple[int, DType], int | None]
    # Messages about what the front end could not resolve.
    notes: tuple[str, ...] = field(default=())
    # Only policy rules and reports need these, so a front end may compute them lazily. `modules`,
    # by node id: path of the module that the node was exported from, "" for the model itself.
    # `shapes`, by value id: None per unknown dimension.
    modules: Mapping[int, str] = field(default_factory=dict, compare=False)
    shapes: Mapping[int, tuple[int | None, ...]] = field(default_factory=dict, compare=False)
    # By node id: the source line that the node was exported from. Computed at each access.
    lines: Mapping[int, SourceLine] = field(default_factory=dict, compare=False)
    # By node id: the precision that the program demands; None: the dtype of the source model.
    marks: Mapping[int, DType | None] = field(default_factory=dict, compare=False)
    # By id of a function's formal input: the operand bound to it, for those not carried by a tie.
    entered: Mapping[int, int] = field(default_factory=dict, compare=False)
    # Constants whose elements are also those of another one, times a power of two.
    shared: frozenset[int] = field(default=frozenset(), compare=False)
    # By value id: statistics of FP64 constants, and the elements of small integer constants.
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

    def producer(self, value: int) -> Node:
        """The node that produces a value."""
        return self.nodes[self.values[value].producer]

    def producers(self, values: Iterable[int]) -> list[Node]:
        """The node that produces each value."""
        nodes, all_values = self.nodes, self.values
        return [nodes[all_values[value].producer] for value in values]

    def readers(self, value: int) -> list[Node]:
        """The nodes that read a value, one per use, in node order."""
        return [self.nodes[use.node] for use in self.uses[value]]

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the structure; independent of weights and sizes of values."""
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
            digest.update(repr(line).encode())  # repr escapes names that are not valid text
        return digest.hexdigest()[:32]

    @cached_property
    def content(self) -> str:
        """Hash of the structure and of the statistics of constants."""
        facts = repr([(value, *self.constants[value]) for value in sorted(self.constants)])
        return hashlib.sha256(f"{self.fingerprint} {facts}".encode()).hexdigest()[:32]

    @cached_property
    def by_name(self) -> Mapping[str, int]:
        """Node ids by name; names are unique."""
        return {node.name: node.id for node in self.nodes}
