"""Two floats in one plan: the second takes what the first may not, for its range."""

from mezzo.contracts.problem import Choice, LevelChoices
from mezzo.formats.dtypes import DType
from mezzo.tables.policy import Category, NodeVerdict


def taken_by_first(first: LevelChoices, second: LevelChoices) -> list[int]:
    """Nodes that the policy wants in the first float, and that the second could run too, by id. Not
    among them are nodes that follow their neighbours: they may follow into either.
    """
    return [
        number
        for number, choice in enumerate(second.choices)
        if choice is Choice.FREE
        and first.choices[number] in (Choice.FREE, Choice.LOW)
        and first.categories[number] is Category.ALLOW
    ]


def deny_second(first: DType, second: DType) -> NodeVerdict:
    """The verdict on the second float of nodes that the first takes."""
    because = f"runs in {first}, which has more digits; {second} is for what leaves its range"
    return NodeVerdict(category=Category.DENY, rule="first-float", because=because)
