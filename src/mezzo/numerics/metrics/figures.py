"""Table of additional error metrics; those with a title are a column of reports."""

from collections.abc import Callable
from dataclasses import dataclass
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


# Sorted by name. Every comparison computes each of them for its record.
FIGURES: tuple[Figure, ...] = ()
