"""Reasons for nodes that cost nothing in FP32, as their kernel computes in FP32 anyway."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Problem
from mezzo.ir.nodes import Node

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition

FREE_RULE = "free-in-kernel"
_SHOWN = 2


def free_reason(
    problem: Problem, split: "Partition | None", node: Node, level: int
) -> Reason | None:
    """Why a node stays at the base: its kernel computes there, so `level` gains nothing."""
    unit = None if split is None else split.unit_of.get(node.id)
    if split is None or unit is None or not problem.computes_base[level, node.id]:
        return None
    if problem.gains[level, node.id] > 0:
        return None
    base = problem.line.base_dtype
    neighbours = [problem.graph.nodes[member].name for member in unit.nodes if member != node.id]
    with_them = f"inside one kernel with {_some(neighbours)}, which" if neighbours else "its kernel"
    text = f"at no cost on {split.target}: {with_them} computes in {base} whatever it reads"
    return Reason(FREE_RULE, f"{text} ({unit.source}; {unit.since})")


def _some(names: Sequence[str]) -> str:
    """The first names, and the number of the rest."""
    more = len(names) - _SHOWN
    return " and ".join(map(repr, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
