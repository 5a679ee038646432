"""The version that a model is planned at: raised where that lets a node run low, and kept only if one then does."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Edit
from mezzo.contracts.reading import Reading
from mezzo.contracts.strategy import Strategy
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.check import check
from mezzo.planner.lower import lower
from mezzo.planner.planner import Judged


@dataclass(frozen=True, slots=True)
class Planned:
    """A reading of a model at one version, what was judged of it, and what a strategy made of that."""

    reading: Reading
    judged: Judged
    levels: Sequence[int]
    edits: Sequence[Edit]


Judge = Callable[[int | None], tuple[Reading, Judged]]


def assign(reading: Reading, judged: Judged, strategy: Strategy) -> Planned:
    """Let a strategy decide."""
    levels = strategy.assign(judged.problem)
    edits, faults = _lower(judged, levels)
    assert not faults, f"strategy {strategy.name} or lower broke a rule: {faults[0]}"
    return Planned(reading, judged, levels, edits)


def settle(model: Model, planned: Planned, strategy: Strategy, judge: Judge) -> Planned:
    """Plan again at smaller versions, as long as all that runs low may do so there. `judge` reads and judges at one.

    So a version above the model's own always has a node that runs low and needs it.
    """
    source = model.version
    if source is None or planned.reading.version == source:
        return planned
    first = judge(source)
    while planned.reading.version not in (None, source):
        nodes = _nodes_beside(planned)
        smaller = model.least_version(planned.reading, first[0], nodes)
        if smaller == planned.reading.version:
            break
        reading, judged = first if smaller == source else judge(smaller)
        if not _are_legal(reading, planned.reading.graph, nodes):
            break
        again = _plan_again(planned, reading, judged, strategy)
        if again is None:
            break
        planned = again
    return planned


def _nodes_beside(planned: Planned) -> dict[DType, list[int]]:
    """Operators that do not run at the base, by what they run in."""
    problem = planned.judged.problem
    levels, line = np.array(planned.levels, np.int64), problem.line
    counts = problem.graph.columns.is_kind(Kind.OP) & ~problem.is_absent
    return {line.dtypes[level]: np.flatnonzero(counts & (levels == level)).tolist() for level in line.others}


def _are_legal(reading: Reading, before: Graph, nodes: Mapping[DType, Sequence[int]]) -> bool:
    """Whether those of the nodes that are there may run so. A node that steps have rewritten is not there."""
    graph = reading.graph
    found = [(dtype, graph.by_name.get(before.nodes[number].name)) for dtype in nodes for number in nodes[dtype]]
    return all(dtype in graph.nodes[number].signature.legal for dtype, number in found if number is not None)


def _plan_again(planned: Planned, reading: Reading, judged: Judged, strategy: Strategy) -> Planned | None:
    """The plan of another reading. Measured costs are of the nodes they were measured on: with them the same nodes run
    low, by name; None where that cannot be.
    """
    if planned.judged.problem.measured is None:
        return assign(reading, judged, strategy)
    before, after = planned.reading.graph, reading.graph
    if any(before.nodes[n].name not in after.by_name for held in _nodes_beside(planned).values() for n in held):
        return None
    held = {node.name: planned.levels[node.id] for node in before.nodes}
    levels = [held.get(node.name, judged.problem.line.base) for node in after.nodes]
    edits, faults = _lower(judged, levels)
    return None if faults else Planned(reading, judged, levels, edits)


def _lower(judged: Judged, levels: Sequence[int]) -> tuple[tuple[Edit, ...], Sequence[str]]:
    edits = lower(judged.problem, levels, judged.limits)
    return edits, check(judged.problem, levels, edits)
