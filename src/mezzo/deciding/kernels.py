"""What the target's units mean to a plan: prices, links, and what is said of a node that costs nothing in FP32."""

from collections.abc import Sequence
from dataclasses import replace

from mezzo.core.facts import OpFacts
from mezzo.core.graph import Graph
from mezzo.core.levels import Line
from mezzo.core.nodes import Node
from mezzo.core.plans import Reason
from mezzo.core.problem import Problem
from mezzo.core.target import Target
from mezzo.units import kernels_of
from mezzo.units.partition import partition
from mezzo.units.unit import Partition
from mezzo.units.uses import kernels_of_units, links_of_units
from mezzo.units.view import View

FREE_RULE = "free-in-kernel"
_SHOWN = 2


def split_for(graph: Graph, rows: Sequence[OpFacts | None], target: Target, line: Line) -> Partition | None:
    """Split a graph into the target's units; None where no row of the target speaks of a level of the line."""
    name = target.fuses_as or target.name
    kernels = kernels_of(name)
    if not any(kernel.constraint.named.intersection(line.beside) for _, kernel in kernels):
        return None
    return partition(View(graph, tuple(rows)), kernels, name)


def with_units(problem: Problem, split: Partition | None) -> Problem:
    """The problem with what the units say of conversions and of who has to agree."""
    if split is None:
        return problem
    links = links_of_units(split, problem.line, problem.allowed[problem.line.base] | problem.is_absent)
    kernels = kernels_of_units(problem.graph, split, problem.line)
    return replace(problem, kernels=kernels, links=(*problem.links, *links))


def free_reason(problem: Problem, split: Partition | None, node: Node, level: int) -> Reason | None:
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
