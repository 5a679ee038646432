"""Calibrators as people write them: "mse", "percentile=99.9", or "module:function", a function of their own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mezzo.core.calibrator import Calibrator, Grid, Range, Summary
from mezzo.errors import InputError
from mezzo.plugins.discovery import calibrator
from mezzo.plugins.functions import load_function, say

_LONGEST = 80


def calibrator_of(word: str) -> Calibrator:
    """The calibrator that a word asks for.

    Raises InputError: there is none of that name, its setting is none, or the function cannot be had.
    """
    name, equals, setting = word.partition("=")
    if ":" in name:
        return Custom(word, load_function(word, "calibrator", "what was seen of a tensor"))
    found = calibrator(name)
    return found.setting(setting) if equals else found


@dataclass(frozen=True, slots=True)
class Custom(Calibrator):
    """A function of the user's: of what was seen of a tensor, to the smallest and the largest number to cover."""

    name: ClassVar[str] = "custom"
    summary: ClassVar[str] = "a function of your own, module:function"

    place: str
    function: Callable[[Summary], Any]

    def choose(self, seen: Summary, grid: Grid) -> Range:
        try:
            given = self.function(seen)
            ends = np.asarray(given, np.float64)
        except Exception as error:
            raise InputError(f"calibrator {self.place!r} failed: {say(error)}; mend it") from error
        if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] > ends[1]:
            raise InputError(
                f"calibrator {self.place!r} gave {_spell(given)}, wanted the smallest and the largest number to cover; "
                "mend it"
            )
        low, high = ends.tolist()
        return Range(low, high)


def _spell(given: object) -> str:
    """What a function gave, short enough for a line."""
    said = " ".join(repr(given).split())  # arrays are spelled over several lines
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
