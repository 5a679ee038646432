"""A strategy: a pure function of a problem."""

from collections.abc import Sequence

from mezzo.strategy import Choice, Problem, Strategy


class Everything(Strategy):
    """Runs low whatever is allowed to, casts or not; nodes that must agree stay high if one of them has to."""

    name = "acme-all"
    summary = "low whatever may be, at any number of casts"
    because = "it may run low"

    def assign(self, problem: Problem) -> Sequence[bool]:
        held = {problem.linked[node] for node, choice in enumerate(problem.choices) if choice is Choice.HIGH}
        return [
            choice is Choice.LOW or (choice is Choice.FREE and problem.linked[node] not in held)
            for node, choice in enumerate(problem.choices)
        ]
