"""Data types of a partition: units, fusion patterns, and the precision constraints of a target's
fused kernels.
"""

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mezzo.analysis.fusion.joins import Join
from mezzo.analysis.fusion.selector import Make
from mezzo.analysis.fusion.view import FusionView
from mezzo.formats.dtypes import DType
from mezzo.tables.facts import Function


class Inside(enum.Enum):
    """Which dtypes the values between a unit's nodes may have at no cost."""

    ONE_TYPE = "one type"  # the result's; a conversion between its nodes prevents the fusion
    FLOAT32 = "fp32"  # the kernel computes in FP32 internally, so its nodes may stay in FP32


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraint:
    """Type constraints of a kernel, for the formats that it names; other formats have ordinary
    costs.

    `formats`: those in which its nodes are fused. `is_linked`: only if all have one type, so the
    nodes agree on a level. `exact`: functions computed in FP32 from the inputs, bit for bit,
    regardless of types. `reads_free`, `writes_free`: formats that the kernel converts to FP32 while
    reading, and from FP32 while writing, at no cost.
    """

    inside: Inside = Inside.ONE_TYPE
    formats: frozenset[DType] = frozenset()
    is_linked: bool = False
    exact: frozenset[Function] = frozenset()
    reads_free: frozenset[DType] = frozenset()
    writes_free: frozenset[DType] = frozenset()

    @property
    def named(self) -> frozenset[DType]:
        """All formats that the constraint names."""
        return self.formats | self.reads_free | self.writes_free


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """A pattern as one target's fused kernel.

    `order`: patterns of a target are matched in ascending order, and each node is taken once.
    `source` and `since`: the document or runtime graph, and the version, that show the fusion.
    `starts_at_end`: seeds are tried from the outputs, for selectors that grow towards the inputs.
    `least`: minimum number of nodes. `joins`: finds the fusions across Casts that require one type.
    """

    target: str
    order: int
    make: Make
    source: str
    since: str
    constraint: Constraint = Constraint()
    starts_at_end: bool = False
    least: int = 2
    joins: Callable[[FusionView], Sequence[Join]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A fusion pattern: its name, a summary, and a row for each target with such a kernel."""

    name: str
    summary: str
    kernels: tuple[FusedKernel, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Nodes that a target runs as one kernel, by id in graph order. `number` counts from 1 in graph
    order.

    `inputs` are values read from outside, without constants; `outputs` are values read outside.
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
    """A graph partitioned for a target: each operator is in one unit, alone, or constant-folded.

    Units are disjoint and convex; with units contracted to nodes the graph is acyclic. `joins` are
    the target's additional fusions across Casts, which require one type.
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
