"""Lifted denials for operators that the target's kernel computes in FP32 internally: its softmax
does not take attention apart.

In low precision they give the same result as in FP32 between two Casts. So where the producer and
the users run low, a policy's denial has no effect on accuracy: it is lifted, and the operator is
linked with its producer.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.analysis.structure import StructureView
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.facts import Cost
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


def lifted_by_kernels(
    view: StructureView, policy: Policy, split: "Partition | None"
) -> frozenset[int]:
    """Operators computed in FP32 inside a kernel, whose denial by the policy this can lift: those
    of units, and attention in one operator.
    """
    trusts = policy.trusts_exact_masks
    operators = view.nodes_where(lambda row: trusts and row.cost is Cost.ATTENTION)
    return frozenset(
        node.id
        for node in (*(node for _, node in computed_exactly(view, split)), *operators)
        if policy.judge(
            (node.signature.dialect, node.signature.op),
            view.rows[node.id],
            view.low.dtype,
            lifts=True,
        ).category
        is not Category.DENY
    )


def computed_exactly(
    view: StructureView, split: "Partition | None"
) -> Iterator[tuple["Unit", Node]]:
    """Operators that a kernel computes in FP32 from low inputs, with their units."""
    for unit in () if split is None else split.units:
        if unit.constraint.exact and view.low.dtype in unit.constraint.formats:
            for node in (view.graph.nodes[number] for number in unit.nodes):
                is_exact = view.function(node) in unit.constraint.exact
                if is_exact and _has_few_keys(view, node, unit.constraint.most_keys):
                    yield unit, node


def _has_few_keys(view: StructureView, node: Node, most: int | None) -> bool:
    """Whether a softmax over the last axis is over at most so many elements; an axis of unknown
    length counts as one.
    """
    shape = None if node.inputs[0] is None else view.graph.shapes.get(node.inputs[0])
    keys = shape[-1] if shape else None
    return most is None or keys is None or keys <= most


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
