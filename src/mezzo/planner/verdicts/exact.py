"""Lifted denials for operators that the target's kernel computes in FP32 internally.

In low precision they give the same result as in FP32 between two Casts. So where the producer and
the users run low, a policy's denial has no effect on accuracy: it is lifted, and the operator is
linked with its producer.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.analysis.structure import StructureView
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.policy import Category, NodeVerdict, Policy

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition, Unit


def lift_exact(
    view: StructureView, verdicts: list[NodeVerdict], policy: Policy, split: "Partition | None"
) -> tuple[tuple[int, int], ...]:
    """Lift denials of operators computed in FP32. Returns the pairs of nodes to link."""
    pairs = []
    for unit, node in computed_exactly(view, split):
        producer = (
            view.graph.nodes[view.graph.values[node.inputs[0]].producer]
            if node.inputs[0] is not None
            else None
        )
        if producer is None or not _may_run_low(view, verdicts, producer, node):
            continue
        key, row, low = (
            (node.signature.dialect, node.signature.op),
            view.rows[node.id],
            view.low.dtype,
        )
        lifted = policy.judge(key, row, low, lifts=True)
        is_suspected = (
            verdicts[node.id] == policy.judge(key, row, low)
            and verdicts[node.id].category is Category.DENY
        )
        if is_suspected and lifted.lift is not None and lifted.category is not Category.DENY:
            assert split is not None, "a unit is of a split"
            text = (
                f"computed in fp32 inside its kernel on {split.target} ({unit.source};"
                f" {unit.since})"
            )
            verdicts[node.id] = _with_lift(lifted, text)
            pairs.append((producer.id, node.id))
    return tuple(pairs)


def computed_exactly(
    view: StructureView, split: "Partition | None"
) -> Iterator[tuple["Unit", Node]]:
    """Operators that a kernel computes in FP32 from low inputs, with their units."""
    for unit in () if split is None else split.units:
        if unit.constraint.exact and view.low.dtype in unit.constraint.formats:
            for number in unit.nodes:
                if view.function(view.graph.nodes[number]) in unit.constraint.exact:
                    yield unit, view.graph.nodes[number]


def _may_run_low(
    view: StructureView, verdicts: list[NodeVerdict], producer: Node, node: Node
) -> bool:
    """Whether a node's producer and users may run low."""
    graph = view.graph
    uses = [use for value in node.outputs if value is not None for use in graph.uses[value]]
    users = [graph.nodes[use.node] for use in uses]
    if any(graph.nodes[use.node].signature.inputs[use.operand] is Role.FIXED for use in uses):
        return False
    neighbours = (producer, *users)
    if Role.GROUP not in producer.signature.outputs:
        return False
    return all(
        neighbour.signature.dtype is not None
        and neighbour.kind is Kind.OP
        and verdicts[neighbour.id].category is not Category.DENY
        for neighbour in neighbours
    )


def _with_lift(verdict: NodeVerdict, because: str) -> NodeVerdict:
    assert verdict.lift is not None, "asked for"
    return replace(verdict, lift=replace(verdict.lift, because=because))
