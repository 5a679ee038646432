"""Two floats in one plan: the second takes what the first may not, for its range."""

from dataclasses import replace

from mezzo.contracts.problem import Choice, LevelChoices
from mezzo.formats.dtypes import DType
from mezzo.tables.policy import Category, NodeVerdict


def without_preferred(
    side: LevelChoices,
    verdicts: tuple[NodeVerdict, ...],
    preferred: LevelChoices,
    first: DType,
    second: DType,
) -> tuple[LevelChoices, tuple[NodeVerdict, ...]]:
    """Choices and verdicts of the second float, without nodes that the policy wants in the first.
    Nodes that follow their neighbours may follow into either.
    """
    because = f"runs in {first}, which has more digits; {second} is for what leaves its range"
    denied = NodeVerdict(category=Category.DENY, rule="first-float", because=because)
    is_taken = [
        choice is Choice.FREE and wanted in (Choice.FREE, Choice.LOW) and category is Category.ALLOW
        for choice, wanted, category in zip(
            side.choices, preferred.choices, preferred.categories, strict=True
        )
    ]
    choices = tuple(
        Choice.HIGH if taken else choice
        for choice, taken in zip(side.choices, is_taken, strict=True)
    )
    categories = tuple(
        Category.DENY if taken else category
        for category, taken in zip(side.categories, is_taken, strict=True)
    )
    return replace(side, choices=choices, categories=categories), tuple(
        denied if taken else verdict for verdict, taken in zip(verdicts, is_taken, strict=True)
    )
