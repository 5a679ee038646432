"""Fusion units of a target in the problem: prices and links. Imported only where they matter."""

from collections.abc import Sequence
from dataclasses import replace

from mezzo.analysis.fusion import kernels_of
from mezzo.analysis.fusion.joins import with_joins
from mezzo.analysis.fusion.partition import partition
from mezzo.analysis.fusion.unit import Partition
from mezzo.analysis.fusion.uses import kernels_of_units, links_of_units
from mezzo.analysis.fusion.view import FusionView
from mezzo.contracts.problem import Problem
from mezzo.formats.precision_line import PrecisionLine
from mezzo.ir.graph import Graph
from mezzo.tables.facts import OpFacts
from mezzo.tables.target import Target


def split_for(
    graph: Graph, rows: Sequence[OpFacts | None], target: Target, line: PrecisionLine
) -> Partition | None:
    """Partition a graph into fusion units; None if no unit concerns a level of the line."""
    if not target.fused_formats.intersection(line.other_dtypes):
        return None
    view, kernels = FusionView(graph, tuple(rows)), kernels_of(target)
    joins = [join for kernel in kernels if kernel.joins is not None for join in kernel.joins(view)]
    split = partition(view, kernels, target.fuses_as or target.name)
    return replace(split, joins=tuple(joins))


def with_units(problem: Problem, split: Partition) -> Problem:
    """The problem with the units' cast prices and links between nodes."""
    links = links_of_units(
        split, problem.line, problem.allowed[problem.line.base] | problem.is_absent
    )
    kernels = kernels_of_units(problem.graph, split, problem.line)
    return with_joins(
        replace(problem, kernels=kernels, links=(*problem.links, *links)), split.joins
    )
