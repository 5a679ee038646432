"""Attention masks that may run low without changing the softmax: bounds and links."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from mezzo.analysis.structure import StructureView
from mezzo.analysis.structure.exact_masks import exact_masks, linked_by_masks, takes_masks
from mezzo.contracts.problem import Choice
from mezzo.ir.nodes import Node
from mezzo.planner.verdicts.exact import computed_exactly
from mezzo.tables.policy import Category, NodeVerdict, Policy

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition


def trusted_masks(view: StructureView, policy: Policy, split: "Partition | None") -> frozenset[int]:
    """Value ids of masks that may run low. A softmax that stays in FP32 for another reason keeps
    its masks in FP32.
    """
    if not policy.trusts_exact_masks:
        return frozenset()
    exact = {node.id for _, node in computed_exactly(view, split)}

    def may_run_low(node: Node) -> bool:
        key, row = (node.signature.dialect, node.signature.op), view.rows[node.id]
        return (
            node.id in exact or policy.judge(key, row, view.low.dtype).category is not Category.DENY
        )

    return exact_masks(view, may_run_low)


def bounds_of_masks(view: StructureView, masks: Set[int]) -> Mapping[int, float]:
    """Clamp bounds of masks past the range: the largest finite value."""
    limit = view.low.max_finite
    return {value: limit for value in sorted(masks) if view.graph.constants[value].largest > limit}


def agreeing_on_masks(
    view: StructureView,
    bounded: Collection[int],
    verdicts: Sequence[NodeVerdict],
    choices: Sequence[Choice],
) -> tuple[tuple[int, int], ...]:
    """Pairs of nodes that must have one level, because a mask clamped for one is clamped for the
    other. Exempt: a denied softmax, which computes in FP32 on low inputs, and nodes required to run
    low.
    """
    return tuple(
        (producer.id, user.id)
        for producer, user in linked_by_masks(view, bounded)
        if Choice.LOW not in (choices[producer.id], choices[user.id])
        and (not takes_masks(view, user) or verdicts[user.id].category is not Category.DENY)
    )
