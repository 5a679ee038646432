"""Calibrators as people write them: "mse", "percentile=99.9", or "module:function", a function or class of theirs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.contracts.calibrator import Calibrator, Grid, Range, Summary
from mezzo.plugins.discovery import calibrator
from mezzo.plugins.functions import load_function, say

_LONGEST = 80


def calibrator_of(word: str) -> Calibrator:
    """The calibrator that a word asks for.

    Raises InputError: there is none of that name, its setting is none, or the function cannot be had.
    """
    name, equals, setting = word.partition("=")
    if ":" in name:
        loaded = load_function(word, "calibrator", "what was seen of a tensor")
        return _made(word, loaded) if isinstance(loaded, type) else Custom(word, loaded)
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


class Sees(Protocol):
    """What a user's class has."""

    def collect(self, name: str, array: npt.NDArray[np.float32]) -> object: ...

    def choose(self, name: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Collecting(Calibrator):
    """An object of the user's that sees all numbers: `collect(name, array)` for each value of each batch, then
    `choose(name)`, the smallest and the largest number to cover. It keeps what it likes.
    """

    name: ClassVar[str] = "custom"
    summary: ClassVar[str] = "a class of your own, module:class"

    place: str
    own: Sees

    def choose(self, seen: Summary, grid: Grid) -> Range:
        raise AssertionError("asked of what it gives for a name")

    def collect(self, name: str, numbers: npt.NDArray[np.float32]) -> None:
        shown = numbers.view()
        shown.flags.writeable = False
        try:
            self.own.collect(name, shown)
        except Exception as error:
            raise InputError(f"calibrator {self.place!r} failed at value {name!r}: {say(error)}; mend it") from error

    def of(self, name: str) -> Calibrator:
        return Custom(self.place, lambda _: self.own.choose(name))


def _made(place: str, kind: type) -> Collecting:
    """A new object of a user's class. Raises InputError: it cannot be made, or lacks a method."""
    for method in ("collect", "choose"):
        if not callable(getattr(kind, method, None)):
            raise InputError(
                f"calibrator {place!r} is a class without the method {method!r}; it takes collect(name, array) and "
                "choose(name)"
            )
    try:
        return Collecting(place, kind())
    except Exception as error:
        raise InputError(f"calibrator {place!r} cannot be made: {say(error)}; mend it") from error


def _spell(given: object) -> str:
    """What a function gave, short enough for a line."""
    said = " ".join(repr(given).split())  # arrays are spelled over several lines
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."
