"""What a graph is made of: nodes with their signatures, values, uses and scopes."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from mezzo.formats.dtypes import DType


class Kind(enum.Enum):
    """What a node stands for."""

    OP = "op"
    INPUT = "input"  # produces a graph input; its dtype is the caller's contract
    OUTPUT = "output"  # uses a graph output; its dtype is the caller's contract
    SOURCE = "source"  # a weight, or a Cast from an integer: every dtype costs the same, so each use picks its own
    CAST = "cast"  # a narrowing Cast the model came with; it rounds on purpose and stays
    TIE = "tie"  # carried state, branch join or scan slice: its uses and values share one dtype, no arithmetic

    __hash__ = object.__hash__


class Role(enum.Enum):
    """How the dtype of a port hangs on its node's precision."""

    GROUP = "group"  # has the node's precision
    FIXED = "fixed"  # has the dtype it has today, whatever the node does
    ANY = "any"  # takes any floating dtype as it comes (Shape, Cast)

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """Types of one operator at one version with given input dtypes. Shared by all nodes alike.

    `dtype` is what the compute group holds today; None where the node has no floating compute group.
    `legal` are the dtypes the dialect's schema lets the compute group hold, today's included. `attributes` are those
    the operator has, with their defaults; None where there is none. `border`, of a tie: dialect, name and version of
    what has those bodies. `is_custom`: no schema tells what the operator takes, so its ports only hold what they do.
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
        """Dialect, name and version under which a target's table may name it; no dialect where it is no operator."""
        return self.border or (self.dialect, self.op, self.version)


# NamedTuples where the style asks for frozen dataclasses: a model has tens of thousands of these, and making a frozen
# dataclass takes 1.3 us against 0.4 us, a fifth of the whole planning time.
class Node(NamedTuple):
    """One decision. `inputs` and `outputs` are value ids; None marks an operand that is left out."""

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


def name_port(kind: Kind, port: str) -> str:
    """What the node of a graph input or output is called."""
    return f"{kind.value} {port}"


def port_of(node: Node) -> str:
    """The input or output that a node stands for, by its own name."""
    return node.name.removeprefix(name_port(node.kind, ""))


class Value(NamedTuple):
    """One tensor. `elements` is nominal where shapes are symbolic; `is_castable` is False for sequences and
    optionals.
    """

    name: str
    dtype: DType | None
    producer: int
    scope: int
    elements: int
    is_castable: bool


class SourceLine(NamedTuple):
    """Where in a program something was written. `code` is the text of the line, "" where it is not known."""

    file: str
    line: int
    code: str


class Use(NamedTuple):
    """Operand `operand` of node `node` reads the value."""

    node: int
    operand: int


class Scope(NamedTuple):
    """A body or a function call. `owner` is the control node, None for the main graph; `path` names it for people.

    `repeats` is how often it runs, nominal for loops: it weighs what happens inside against what happens outside.
    """

    parent: int | None
    owner: int | None
    path: str
    repeats: int
