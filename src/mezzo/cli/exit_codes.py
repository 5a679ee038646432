"""The exit code that a command ends with for what it found: 0 yes, 1 no, 3 when nobody can tell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from mezzo.numerics.measures import Measured, Ruling

NO = 1
CANNOT_TELL = 3


def end_with(ruling: "Ruling | None") -> None:
    """End the command as its verdict says. None, as where nothing was judged, and yes go on."""
    if ruling is None or ruling.value == "same":
        return
    raise typer.Exit(CANNOT_TELL if ruling.is_open else NO)


def end_with_worst(several: "Iterable[Measured | None]") -> None:
    """End the command as the worst of the checks of several models says: no comes before what cannot be told.

    A conversion that is within its budget on the samples that there are is done; more of them would say more.
    """
    known = [measured for measured in several if measured is not None]
    if any(measured.runtime is not None and measured.runtime.is_wrong for measured in known):
        raise typer.Exit(NO)
    rulings = [measured.comparison.verdict.ruling for measured in known if measured.comparison is not None]
    for worst in ("different", "cannot tell"):
        end_with(next((ruling for ruling in rulings if ruling.value == worst), None))


def end_unless_told(unknown: Iterable[str]) -> None:
    """End the command where the data could not tell what was asked."""
    if any(True for _ in unknown):
        raise typer.Exit(CANNOT_TELL)
