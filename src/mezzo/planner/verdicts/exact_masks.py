"""Masks that cost no softmax its exactness: what is trusted of them, how they are stored, and who agrees for that."""

from collections.abc import Collection, Mapping, Sequence, Set
from typing import TYPE_CHECKING

from mezzo.analysis.structure import View
from mezzo.analysis.structure.exact_masks import exact_masks, held_together
from mezzo.contracts.problem import Choice
from mezzo.ir.nodes import Node
from mezzo.planner.verdicts.exact import computed_exactly
from mezzo.tables.facts import Function
from mezzo.tables.policy import Category, Policy, Verdict

if TYPE_CHECKING:
    from mezzo.analysis.fusion.unit import Partition


def trusted_masks(view: View, policy: Policy, split: "Partition | None") -> frozenset[int]:
    """Constants, by value id, that a policy lets run low with the softmaxes that they reach. Where one of those stays
    in FP32 for its own sake, nothing would be won.
    """
    if not policy.trusts_exact_masks:
        return frozenset()
    exact = {node.id for _, node in computed_exactly(view, split)}

    def may_run_low(node: Node) -> bool:
        key, row = (node.signature.dialect, node.signature.op), view.rows[node.id]
        return node.id in exact or policy.judge(key, row, view.low.dtype).category is not Category.DENY

    return exact_masks(view, may_run_low)


def bounds_of_masks(view: View, masks: Set[int]) -> Mapping[int, float]:
    """How masks past the range are stored: as the largest number. Two of those pass the range, as two of FP32's do."""
    most = view.low.max_finite
    return {value: most for value in sorted(masks) if view.graph.constants[value].largest > most}


def agreeing_on_masks(
    view: View, bounded: Collection[int], verdicts: Sequence[Verdict], choices: Sequence[Choice]
) -> tuple[tuple[int, int], ...]:
    """Pairs of nodes that agree, as a mask that is stored within bounds for one of them is for the other. A softmax
    that is denied reads in FP32 what others made low; who is asked to run low does so whatever others do.
    """
    return tuple(
        (maker.id, reader.id)
        for maker, reader in held_together(view, bounded)
        if Choice.LOW not in (choices[maker.id], choices[reader.id])
        and (view.function(reader) is not Function.SOFTMAX or verdicts[reader.id].category is not Category.DENY)
    )
