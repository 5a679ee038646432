"""Calibrators by name: "mse", "percentile=99.9", or a user's "module:function"."""

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
    """The calibrator that a text names.

    Raises InputError: unknown name, invalid setting, or the function cannot be loaded.
    """
    name, equals, setting = word.partition("=")
    if ":" in name:
        loaded = load_function(word, "calibrator", "what was seen of a tensor")
        return _made(word, loaded) if isinstance(loaded, type) else Custom(word, loaded)
    named = calibrator(name)
    return named.setting(setting) if equals else named


@dataclass(frozen=True, slots=True)
class Custom(Calibrator):
    """A user's function from a tensor's `Summary` to the smallest and largest number to cover."""

    name: ClassVar[str] = "custom"
    summary: ClassVar[str] = "a function of your own, module:function"

    place: str
    function: Callable[[Summary], Any]

    def choose(self, seen: Summary, grid: Grid) -> Range:
        try:
            value = self.function(seen)
            ends = np.asarray(value, np.float64)
        except Exception as error:
            raise InputError(f"calibrator {self.place!r} failed: {say(error)}; mend it") from error
        if ends.shape != (2,) or not np.isfinite(ends).all() or ends[0] > ends[1]:
            raise InputError(
                f"calibrator {self.place!r} gave {_spell(value)}, wanted the smallest and the"
                " largest number to cover; mend it"
            )
        low, high = ends.tolist()
        return Range(low, high)


class Sees(Protocol):
    """The interface of a user's calibrator class."""

    def collect(self, name: str, array: npt.NDArray[np.float32]) -> object: ...

    def choose(self, name: str) -> object: ...


@dataclass(frozen=True, slots=True)
class Collecting(Calibrator):
    """A user's object that observes all elements: `collect(name, array)` for each value of each
    batch, then `choose(name)`, which returns the smallest and largest number to cover.
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
            raise InputError(
                f"calibrator {self.place!r} failed at value {name!r}: {say(error)}; mend it"
            ) from error

    def of(self, name: str) -> Calibrator:
        return Custom(self.place, lambda _: self.own.choose(name))


def _made(place: str, kind: type) -> Collecting:
    """An instance of a user's class. Raises InputError: it cannot be created, or lacks a method."""
    for method in ("collect", "choose"):
        if not callable(getattr(kind, method, None)):
            raise InputError(
                f"calibrator {place!r} is a class without the method {method!r}; it takes"
                " collect(name, array) and choose(name)"
            )
    try:
        return Collecting(place, kind())
    except Exception as error:
        raise InputError(f"calibrator {place!r} cannot be made: {say(error)}; mend it") from error


def _spell(value: object) -> str:
    """The result of a user's function, shortened to one line."""
    text = " ".join(repr(value).split())  # NumPy prints arrays on several lines
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
