"""Elements of a graph: nodes with their signatures, values, uses and scopes."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mezzo.formats.dtypes import DType

# Assumed length of a symbolic dimension: sizes only compare casts, and equal symbols stay equal.
NOMINAL_DIM = 16


class Kind(enum.Enum):
    """The kind of a node."""

    OP = "op"
    INPUT = "input"  # produces a graph input; its dtype is part of the model's interface
    OUTPUT = "output"  # uses a graph output; its dtype is part of the model's interface
    # A weight, or a Cast from an integer: each use can have its own dtype at no cost.
    SOURCE = "source"
    CAST = "cast"  # a narrowing Cast of the source model, which is kept: it rounds on purpose
    TIE = "tie"  # loop-carried state, branch merge or scan slice: one dtype, no arithmetic

    __hash__ = object.__hash__


class Role(enum.Enum):
    """How the dtype of a port depends on its node's precision."""

    GROUP = "group"  # has the node's precision
    FIXED = "fixed"  # keeps its dtype of the source model at any precision
    ANY = "any"  # accepts any floating-point dtype (Shape, Cast)

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Port types of an operator at one version, for given input dtypes. Shared by nodes with equal
    signatures.

    `dtype` is that of the compute group, the ports with the role GROUP, in the source model; None
    if no such port is floating-point. `legal` are the dtypes that the dialect's schema allows for
    the compute group, `dtype` included. `attributes` are the operator's, with their defaults; None
    if there is none. `border`, of a tie: dialect, name and version of the operator that owns the
    subgraphs. `is_custom`: the operator has no schema, so its ports keep their dtypes.
    """

    dialect: str
    op: str
    version: int
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]
    dtype: DType | None
    legal: frozenset[DType]
    attributes: Mapping[str, object] = field(default_factory=dict, compare=False)
    border: tuple[str, str, int] | None = None
    is_custom: bool = False

    @property
    def operator(self) -> tuple[str, str, int]:
        """Dialect, name and version, as in target tables; no dialect for non-operators."""
        return self.border or (self.dialect, self.op, self.version)


# NamedTuples, not frozen dataclasses: a model has tens of thousands of these, and creating one
# takes 0.4 us instead of 1.3 us, a fifth of the planning time.
class Node(NamedTuple):
    """One precision decision. `inputs`, `outputs`: value ids, None for omitted operands."""

    id: int
    name: str
    kind: Kind
    signature: Signature
    scope: int
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: Mapping[str, object]

    @property
    def op(self) -> str:
        return self.signature.op

    def operand(self, index: int) -> int | None:
        """The value of an operand; None if it is omitted."""
        return self.inputs[index] if index < len(self.inputs) else None

    def float_attribute(self, name: str) -> float | None:
        """A float attribute; None if absent."""
        number = self.attributes.get(name)
        return number if isinstance(number, float) else None

    @property
    def present_inputs(self) -> list[int]:
        """The values that it reads, without omitted operands."""
        return [value for value in self.inputs if value is not None]

    @property
    def present_outputs(self) -> list[int]:
        """The values that it produces, without omitted outputs."""
        return [value for value in self.outputs if value is not None]

    @property
    def group_inputs(self) -> list[int]:
        """The values that it reads in its compute group."""
        return _of_group(self.inputs, self.signature.inputs)

    @property
    def group_outputs(self) -> list[int]:
        """The values that it produces in its compute group."""
        return _of_group(self.outputs, self.signature.outputs)


def _of_group(values: tuple[int | None, ...], roles: tuple[Role, ...]) -> list[int]:
    ports = zip(values, roles, strict=True)
    return [value for value, role in ports if value is not None and role is Role.GROUP]


def name_port(kind: Kind, port: str) -> str:
    """The name of the node of a graph input or output."""
    return f"{kind.value} {port}"


def port_of(node: Node) -> str:
    """The name of the graph input or output that a node represents."""
    return node.name.removeprefix(name_port(node.kind, ""))


class Value(NamedTuple):
    """One tensor. `elements` is nominal for symbolic shapes; sequences are not castable."""

    name: str
    dtype: DType | None
    producer: int
    scope: int
    elements: int
    is_castable: bool


class SourceLine(NamedTuple):
    """A line of source code. `code` is its text, "" if unknown."""

    file: str
    line: int
    code: str


class Use(NamedTuple):
    """Operand `operand` of node `node`, which reads a value."""

    node: int
    operand: int


class Scope(NamedTuple):
    """A subgraph or a function call. `owner` is the control-flow node, None for the main graph;
    `path` is its name in messages.

    `repeats` is the number of executions, nominal for loops; it weights costs inside against costs
    outside. `is_called`: it is a function's, whose calls share one body where they agree.
    """

    parent: int | None
    owner: int | None
    path: str
    repeats: int
    is_called: bool = False
