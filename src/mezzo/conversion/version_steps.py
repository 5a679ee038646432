"""Choice of a model's opset version: raised only if a node then runs in low precision."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mezzo.contracts.frontend import Model
from mezzo.contracts.plans import Edit
from mezzo.contracts.reading import Reading
from mezzo.contracts.strategy import Strategy
from mezzo.conversion.judged_model import least_for_weights
from mezzo.formats.dtypes import DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.planner.check import check
from mezzo.planner.choices.block_weights import with_scales
from mezzo.planner.lower import lower
from mezzo.planner.planner import Judged


@dataclass(frozen=True, slots=True)
class PlannedAtVersion:
    """A model read at one version, with its verdicts, the strategy's levels and the edits."""

    reading: Reading
    judged: Judged
    levels: Sequence[int]
    edits: Sequence[Edit]


Judge = Callable[[int | None], tuple[Reading, Judged]]


def assign(reading: Reading, judged: Judged, strategy: Strategy) -> PlannedAtVersion:
    """Assign levels with a strategy, if there are several, and lower them."""
    problem = judged.problem
    levels = strategy.assign(problem) if problem.line.others else problem.given_levels
    if problem.in_blocks:
        judged = replace(judged, problem=with_scales(problem, levels))
    edits, faults = _lower(judged, levels)
    assert not faults, f"strategy {strategy.name} or lower broke a rule: {faults[0]}"
    return PlannedAtVersion(reading, judged, levels, edits)


def settle(
    model: Model, planned: PlannedAtVersion, strategy: Strategy, judge: Judge
) -> PlannedAtVersion:
    """Plan at smaller versions as long as all low nodes remain legal there.

    A version above the source model's therefore always has a low node that needs it. `judge` reads
    and judges the model at a version.
    """
    source = model.version
    if source is None or planned.reading.version == source:
        return planned
    at_source = judge(source)
    while planned.reading.version not in (None, source):
        nodes = _nodes_beside(planned)
        smaller = max(
            model.least_version(planned.reading, at_source[0], nodes) if nodes else source,
            least_for_weights(model, planned.judged) or source,
        )
        if smaller == planned.reading.version:
            break
        reading, judged = at_source if smaller == source else judge(smaller)
        if not _are_legal(reading, planned.reading.graph, nodes):
            break
        replanned = _plan_again(planned, reading, judged, strategy)
        if replanned is None:
            break
        planned = replanned
    return planned


def _nodes_beside(planned: PlannedAtVersion) -> dict[DType, list[int]]:
    """Operators at a level other than the base, by dtype."""
    problem = planned.judged.problem
    levels, line = np.array(planned.levels, np.int64), problem.line
    counts = problem.graph.columns.is_kind(Kind.OP) & ~problem.is_absent
    return {
        line.dtypes[level]: np.flatnonzero(counts & (levels == level)).tolist()
        for level in line.others
    }


def _are_legal(reading: Reading, before: Graph, nodes: Mapping[DType, Sequence[int]]) -> bool:
    """Whether the schema allows the nodes these dtypes; replaced nodes do not count."""
    graph = reading.graph
    present = [
        (dtype, graph.by_name.get(before.nodes[number].name))
        for dtype in nodes
        for number in nodes[dtype]
    ]
    return all(
        dtype in graph.nodes[number].signature.legal
        for dtype, number in present
        if number is not None
    )


def _plan_again(
    planned: PlannedAtVersion, reading: Reading, judged: Judged, strategy: Strategy
) -> PlannedAtVersion | None:
    """Plan another reading of the same model.

    With measured costs, which belong to the nodes of the first reading, the same nodes by name run
    low; None if a node is absent or the levels are illegal.
    """
    if planned.judged.problem.measured is None:
        return assign(reading, judged, strategy)
    before, after = planned.reading.graph, reading.graph
    if any(
        before.nodes[n].name not in after.by_name
        for ids in _nodes_beside(planned).values()
        for n in ids
    ):
        return None
    level_of = {node.name: planned.levels[node.id] for node in before.nodes}
    levels = [level_of.get(node.name, judged.problem.line.base) for node in after.nodes]
    edits, faults = _lower(judged, levels)
    return None if faults else PlannedAtVersion(reading, judged, levels, edits)


def _lower(judged: Judged, levels: Sequence[int]) -> tuple[tuple[Edit, ...], Sequence[str]]:
    edits = lower(judged.problem, levels, judged.limits)
    return edits, check(judged.problem, levels, edits)
