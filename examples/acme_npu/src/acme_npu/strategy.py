"""A strategy: a pure function of a problem, here of one threshold at a time."""

from collections.abc import Sequence

from mezzo.contracts.coloring import ColouringStrategy
from mezzo.contracts.problem import Choice, Split


class Everything(ColouringStrategy):
    """Runs low whatever is allowed to, casts or not; nodes that must agree stay high if one of them has to."""

    name = "acme-all"
    summary = "low whatever may be, at any number of casts"
    because = "it may run low"

    def colour(self, split: Split) -> Sequence[bool]:
        held = {split.linked[node] for node, choice in enumerate(split.choices) if choice is Choice.HIGH}
        return [
            choice is Choice.LOW or (choice is Choice.FREE and split.linked[node] not in held)
            for node, choice in enumerate(split.choices)
        ]
