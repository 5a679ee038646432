"""Exit codes: of verdicts 0 yes, 1 no, 3 cannot tell; of errors 2 bad input, 1 any other."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from mezzo.numerics.measures import Ruling

NO = REFUSED = 1
BAD_INPUT = 2
CANNOT_TELL = 3


def end_with(ruling: "Ruling | None") -> None:
    """Exit with a verdict's code; return if it is yes, or None for no verdict."""
    if ruling is None or ruling.value == "same":
        return
    raise typer.Exit(CANNOT_TELL if ruling.is_open else NO)


def end_with_worst(several: "Iterable[Ruling | None]") -> None:
    """Exit with the code of the worst verdict: different before cannot tell.

    An undecided verdict returns: the samples are within the budget, although too few to be sure.
    """
    rulings = [ruling for ruling in several if ruling is not None]
    for worst in ("different", "cannot tell"):
        end_with(next((ruling for ruling in rulings if ruling.value == worst), None))


def end_if_unknown(unknown: Iterable[str]) -> None:
    """Exit with `CANNOT_TELL` if there are any unknowns."""
    if any(True for _ in unknown):
        raise typer.Exit(CANNOT_TELL)
