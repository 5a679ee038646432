"""What a target's kernel computes in FP32 from what it reads: run low, it gives what FP32 between two Casts would.

So a policy's suspicion of the operator protects nothing where both Casts would stand: where what it reads is made low
and what it makes is read low. There the suspicion is lifted, and the operator agrees with whoever makes its operand.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from mezzo.analysis.structure import View
from mezzo.ir.nodes import Kind, Node, Role
from mezzo.tables.policy import Category, Policy, Verdict

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition, Unit


def lift_exact(
    view: View, verdicts: list[Verdict], policy: Policy, split: "Partition | None"
) -> tuple[tuple[int, int], ...]:
    """Lift what ranges would lift of operators that a kernel computes in FP32; pairs of nodes that agree for that."""
    pairs = []
    for unit, node in computed_exactly(view, split):
        maker = view.graph.nodes[view.graph.values[node.inputs[0]].producer] if node.inputs[0] is not None else None
        if maker is None or not _may_run_low(view, verdicts, maker, node):
            continue
        key, row, low = (node.signature.dialect, node.signature.op), view.rows[node.id], view.low.dtype
        lifted = policy.judge(key, row, low, lifts=True)
        is_suspected = verdicts[node.id] == policy.judge(key, row, low) and verdicts[node.id].category is Category.DENY
        if is_suspected and lifted.lift is not None and lifted.category is not Category.DENY:
            assert split is not None, "a unit is of a split"
            text = f"computed in fp32 inside its kernel on {split.target} ({unit.source}; {unit.since})"
            verdicts[node.id] = _with_lift(lifted, text)
            pairs.append((maker.id, node.id))
    return tuple(pairs)


def computed_exactly(view: View, split: "Partition | None") -> Iterator[tuple["Unit", Node]]:
    """Operators that a kernel of the target computes in FP32 from what it reads in the format."""
    for unit in () if split is None else split.units:
        if unit.constraint.exact and view.low.dtype in unit.constraint.formats:
            for number in unit.nodes:
                if view.function(view.graph.nodes[number]) in unit.constraint.exact:
                    yield unit, view.graph.nodes[number]


def _may_run_low(view: View, verdicts: list[Verdict], maker: Node, node: Node) -> bool:
    """Whether nothing keeps from running low who makes what a node reads, and who reads what it makes."""
    graph = view.graph
    uses = [use for value in node.outputs if value is not None for use in graph.uses[value]]
    readers = [graph.nodes[use.node] for use in uses]
    if any(graph.nodes[use.node].signature.inputs[use.operand] is Role.FIXED for use in uses):
        return False
    near = (maker, *readers)
    if Role.GROUP not in maker.signature.outputs:
        return False
    return all(
        one.signature.dtype is not None and one.kind is Kind.OP and verdicts[one.id].category is not Category.DENY
        for one in near
    )


def _with_lift(verdict: Verdict, because: str) -> Verdict:
    assert verdict.lift is not None, "asked for"
    return replace(verdict, lift=replace(verdict.lift, because=because))
