"""The decision for one model: reading, plan and levels; refusal of out-of-range weights."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.constants import out_of_range as find_out_of_range
from mezzo.common.errors import ContractError
from mezzo.common.machine import find_machine
from mezzo.common.message_style import setting
from mezzo.contracts.plans import Plan
from mezzo.contracts.problem import Problem
from mezzo.contracts.reading import Reading
from mezzo.contracts.rounding import RoundedWeights
from mezzo.formats.dtypes import FORMATS
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.plan_options import PlanningOptions
from mezzo.planner.planner import rows_of

if TYPE_CHECKING:
    from mezzo.analysis.fusion.quantized import QuantizedUnit


@dataclass(frozen=True, kw_only=True)
class Decided:
    """A reading with its plan. `levels` are indices into the problem's dtypes, one per node.

    `units` are candidates for quantization; a replayed plan has none. `may_overflow`: whether
    estimates keep a node in the base.
    """

    reading: Reading
    plan: Plan
    problem: Problem
    levels: Sequence[int]
    units: "Sequence[QuantizedUnit]" = ()
    may_overflow: bool = False
    spell_record: Callable[[], str] | None = (
        None  # the metadata record; call after the edits are applied
    )

    def with_rounded(self, rounded: RoundedWeights | None) -> "Decided":
        """The same, whose plan has weights that its search has rounded on data."""
        return replace(self, plan=replace(self.plan, rounded=rounded))

    @property
    def may_gain(self) -> bool:
        """Whether a node runs low, or a weight is stored in blocks, and the target may be faster
        with it on this machine.
        """
        gain = self.plan.gain
        return (
            bool(self.count_nodes()[0] or self.problem.in_blocks or self.problem.stored_floats)
            and gain is not None
            and gain.is_faster_on(find_machine()) is not False
        )

    @property
    def is_quantized(self) -> bool:
        return self.problem.line.quantized in self.levels

    @property
    def quantized_units(self) -> "list[QuantizedUnit]":
        """The units that run quantized, in graph order."""
        quantized = self.problem.line.quantized
        return [
            unit
            for unit in self.units
            if quantized is not None and self.levels[unit.nodes[0]] == quantized
        ]

    def count_nodes(self) -> tuple[int, int]:
        """Counts of operators at a low level, and of those at the base that could be low."""
        counts = self.problem.graph.columns.is_kind(Kind.OP) & ~self.problem.is_absent
        is_low = np.array(self.levels, np.int64) != self.problem.line.base
        return int((counts & is_low).sum()), int((counts & ~is_low).sum())


def refuse_out_of_range(graph: Graph, planning: PlanningOptions, nodes: Container[int]) -> None:
    """Raises ContractError: a node reads a weight outside the low format's range."""
    view = StructureView(graph=graph, rows=rows_of(graph), low=FORMATS[planning.low])
    for detection in find_out_of_range(view):
        node = detection.node
        if node.id not in nodes:
            continue
        raise ContractError(
            f"node {node.name!r}: {detection.because}; use {setting('out_of_range', 'protect')} or "
            f"{setting('out_of_range', 'clamp')}, or mend the weights"
        )
