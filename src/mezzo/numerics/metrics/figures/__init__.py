"""Registry of additional error metrics: each file of this folder defines one `FIGURE`.

Every comparison computes each of them for its record; those with a title are a column of reports.
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


class FigureTally(Protocol):
    """Accumulates one metric of one value, block by block."""

    def add(self, want: Floats, found: Floats, error: Floats) -> None:
        """Add finite FP64 elements of the reference and candidate, and their absolute errors."""

    def result(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric by its name in records. `title`: of its column in reports; None without one."""

    name: str
    title: str | None
    begin: Callable[[], FigureTally]


@cache
def figures() -> tuple[Figure, ...]:
    """All metrics of this folder, by name."""
    modules = (
        importlib.import_module(f"{__name__}.{file.name}")
        for file in pkgutil.iter_modules(__path__)
    )
    return tuple(sorted((module.FIGURE for module in modules), key=lambda figure: figure.name))
