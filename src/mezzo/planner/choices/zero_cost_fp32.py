"""What is said of a node that costs nothing in FP32, as the target's kernel computes there whatever it reads."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mezzo.contracts.plans import Reason
from mezzo.contracts.problem import Problem
from mezzo.ir.nodes import Node

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition

FREE_RULE = "free-in-kernel"
_SHOWN = 2


def free_reason(problem: Problem, split: "Partition | None", node: Node, level: int) -> Reason | None:
    """Why a node runs at the base and not at a level, where its kernel computes at the base and it gains nothing."""
    unit = None if split is None else split.unit_of.get(node.id)
    if split is None or unit is None or not problem.computes_base[level, node.id]:
        return None
    if problem.gains[level, node.id] > 0:
        return None
    base = problem.line.base_dtype
    others = [problem.graph.nodes[other].name for other in unit.nodes if other != node.id]
    with_them = f"inside one kernel with {_some(others)}, which" if others else "its kernel"
    text = f"at no cost on {split.target}: {with_them} computes in {base} whatever it reads"
    return Reason(FREE_RULE, f"{text} ({unit.source}; {unit.since})")


def _some(names: Sequence[str]) -> str:
    """The first names, and how many more."""
    more = len(names) - _SHOWN
    return " and ".join(map(repr, names[:_SHOWN])) + (f" and {more} more" if more > 0 else "")
