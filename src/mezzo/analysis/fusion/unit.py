"""What a partition is made of: units, the patterns that find them, and what a pattern's kernel means on a target."""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mezzo.analysis.fusion.joins import Join
from mezzo.analysis.fusion.selector import Make
from mezzo.analysis.fusion.view import View
from mezzo.formats.dtypes import DType
from mezzo.tables.facts import Function


class Inside(enum.Enum):
    """What types the values between a unit's nodes may have at no price."""

    ONE_TYPE = "one type"  # that of the unit's result; a conversion between its nodes takes the kernel apart
    FLOAT32 = "fp32"  # the kernel computes in FP32 whatever its ports hold: its nodes may as well be kept in FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """What a kernel asks of types, in the formats that it names; of any other it says nothing, and prices are as ever.

    `formats`: those in which its nodes become this kernel. `is_linked`: they do only where all have one type, so they
    agree. `exact`: what it computes in FP32 from what that reads, bit for bit, wherever its types are. `reads_free`,
    `writes_free`: those that it turns into FP32, and FP32 into, as it reads and as it writes.
    """

    inside: Inside = Inside.ONE_TYPE
    formats: frozenset[DType] = frozenset()
    is_linked: bool = False
    exact: frozenset[Function] = frozenset()
    reads_free: frozenset[DType] = frozenset()
    writes_free: frozenset[DType] = frozenset()

    @property
    def named(self) -> frozenset[DType]:
        """Every format that it says anything of."""
        return self.formats | self.reads_free | self.writes_free


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A pattern as one target's kernel does it.

    `order`: a target's patterns are tried from low to high, and each takes nodes that none before it took.
    `source` and `since`: the document, or the runtime graph, and the version that say so. `starts_at_end`: seeds are
    tried from the outputs on, for selectors that grow towards the inputs. `least`: units of fewer nodes are none.
    `joins`: finds what the runtime joins over conversions where its kernels have one type alone, in a unit or not.
    """

    target: str
    order: int
    make: Make
    source: str
    since: str
    constraint: Constraint = Constraint()
    starts_at_end: bool = False
    least: int = 2
    joins: Callable[[View], Sequence[Join]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A fusion: its name, what it joins, and a row for each target whose kernels do it."""

    name: str
    summary: str
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Nodes that a target runs as one kernel, by id in graph order. `number` counts from 1 in graph order.

    `inputs` are the values it reads from outside, constants apart; `outputs` those that something outside reads.
    """

    number: int
    pattern: str
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constraint: Constraint
    source: str
    since: str


@dataclass(frozen=True, kw_only=True)
class Partition:
    """How a target splits a graph: each operator is in one unit, alone, or folded, which is worked out before it runs.

    Units do not overlap; each is convex, and with every unit taken as one node the graph has no cycle. `joins` are
    beside them: what the target joins over conversions, and has in one type alone.
    """

    target: str
    units: tuple[Unit, ...]
    alone: tuple[int, ...]
    folded: tuple[int, ...] = field(default=())
    joins: tuple[Join, ...] = field(default=())

    @cached_property
    def unit_of(self) -> Mapping[int, Unit]:
        """The unit of each node that is in one."""
        return {node: unit for unit in self.units for node in unit.nodes}
