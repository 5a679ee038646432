"""Further figures of how a value differs from the reference's: one file each with a `FIGURE`, found by its name.

Whatever compares tells each of them: a number of accounts, and a column of reports where it has a title.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


class Tally(Protocol):
    """Adds up one figure of one value, piece by piece."""

    def add(self, want: Floats, found: Floats, error: Floats) -> None:
        """Add numbers of the reference, of the candidate, and how far they are apart; all finite, in FP64."""

    def result(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure by its name in accounts. `title` heads its column; None where it has none."""

    name: str
    title: str | None
    begin: Callable[[], Tally]


@cache
def figures() -> tuple[Figure, ...]:
    """Every figure of this folder, by name."""
    modules = (importlib.import_module(f"{__name__}.{file.name}") for file in pkgutil.iter_modules(__path__))
    return tuple(sorted((module.FIGURE for module in modules), key=lambda figure: figure.name))
