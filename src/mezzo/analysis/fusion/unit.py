"""Data types of a partition: fusion patterns, a target's fused kernels, and units."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from mezzo.analysis.fusion.joins import Join
from mezzo.analysis.fusion.selector import Form, Make
from mezzo.analysis.fusion.view import FusionView
from mezzo.tables.fusions import Constraint, Fusion


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A fusion pattern: its name, a summary, and its forms by name, "" for the usual one.

    `starts_at_end`: seeds are tried from the outputs, for selectors that grow towards the inputs.
    `joins`: finds the fusions across Casts that require one type, of targets that absorb Casts.
    """

    name: str
    summary: str
    forms: Mapping[str, Form]
    starts_at_end: bool = False
    joins: Callable[[FusionView], Sequence[Join]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedKernel:
    """A target's fusion with the selectors of its pattern. The fields are those of both."""

    fusion: Fusion
    make: Make
    starts_at_end: bool = False
    joins: Callable[[FusionView], Sequence[Join]] | None = None


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
