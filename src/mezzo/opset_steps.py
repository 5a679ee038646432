"""The opset that a conversion is planned at: raised where that lets a node run low, and kept only if one then does."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mezzo.check import check
from mezzo.frontends.onnx.model import OnnxModel, Reading
from mezzo.graph import Kind
from mezzo.lower import lower
from mezzo.planner import Judged
from mezzo.plans import Edit
from mezzo.strategy import Choice, Strategy


@dataclass(frozen=True, slots=True)
class Planned:
    """A reading of a model at one opset, what was judged of it, and what a strategy made of that."""

    reading: Reading
    judged: Judged
    is_low: Sequence[bool]
    edits: Sequence[Edit]


Judge = Callable[[int | None], tuple[Reading, Judged]]


def assign(reading: Reading, judged: Judged, strategy: Strategy) -> Planned:
    """Let a strategy decide."""
    is_low = strategy.assign(judged.problem)
    edits, faults = _lower(judged, is_low)
    assert not faults, f"strategy {strategy.name} or lower broke a rule: {faults[0]}"
    return Planned(reading, judged, is_low, edits)


def settle(model: OnnxModel, planned: Planned, strategy: Strategy, judge: Judge) -> Planned:
    """Plan again at smaller opsets, as long as all that runs low may do so there. `judge` reads and judges at one.

    So an opset above the model's own always has a node that runs low and needs it.
    """
    source = model.opset
    if source is None or planned.reading.opset == source:
        return planned
    first = judge(source)
    while planned.reading.opset not in (None, source):
        nodes = _low_nodes(planned)
        smaller = model.smallest_opset(planned.reading, first[0], nodes)
        if smaller == planned.reading.opset:
            break
        reading, judged = first if smaller == source else judge(smaller)
        if not _are_legal(reading, [planned.reading.graph.nodes[number].name for number in nodes]):
            break
        again = _plan_again(planned, reading, judged, strategy)
        if again is None:
            break
        planned = again
    return planned


def _low_nodes(planned: Planned) -> list[int]:
    problem = planned.judged.problem
    return [
        node.id
        for node in problem.graph.nodes
        if planned.is_low[node.id] and node.kind is Kind.OP and problem.choices[node.id] is not Choice.ABSENT
    ]


def _are_legal(reading: Reading, names: Sequence[str]) -> bool:
    """Whether those of the nodes that are there may run low. A node that steps have rewritten is not there."""
    graph = reading.graph
    found = [number for name in names if (number := graph.by_name.get(name)) is not None]
    return all(reading.low in graph.nodes[number].signature.legal for number in found)


def _plan_again(planned: Planned, reading: Reading, judged: Judged, strategy: Strategy) -> Planned | None:
    """The plan of another reading. Measured costs are of the nodes they were measured on: with them the same nodes run
    low, by name; None where that cannot be.
    """
    if planned.judged.problem.measured is None:
        return assign(reading, judged, strategy)
    before, after = planned.reading.graph, reading.graph
    if any(before.nodes[number].name not in after.by_name for number in _low_nodes(planned)):
        return None
    low = {node.name for node in before.nodes if planned.is_low[node.id]}
    is_low = [node.name in low for node in after.nodes]
    edits, faults = _lower(judged, is_low)
    return None if faults else Planned(reading, judged, is_low, edits)


def _lower(judged: Judged, is_low: Sequence[bool]) -> tuple[tuple[Edit, ...], Sequence[str]]:
    problem = judged.problem
    edits = lower(problem.graph, problem.high, problem.low, is_low, judged.limits, problem.hands_on_high)
    return tuple(edits), check(problem, is_low, edits)
