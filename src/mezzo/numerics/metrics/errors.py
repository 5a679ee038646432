"""The error of a run against a reference in one figure: the largest relative L2 over the outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Numbers handled at once: what is computed of them stays in a processor's cache.
_PIECE = 1 << 16
# What was wrong with an output, or with a part of it, and the whole of which it is: sums of squares.
Square = tuple[str, float, float]


class ErrorSum:
    """Adds up squared errors over batches, in FP64. The quick measure of a search; `metrics` has the full one."""

    def __init__(self, shares: Mapping[str, float] | None = None) -> None:
        """`shares`: by what an output's error is multiplied, 1 unless given; those of share 0 are not looked at."""
        self._shares = shares or {}
        self._wrong: dict[str, float] = {}
        self._whole: dict[str, float] = {}
        self.is_broken = False

    def add(self, reference: Mapping[str, Any], got: Mapping[str, Any]) -> None:
        """Compare one batch of outputs by name."""
        self.take(squares_of(reference, got, self._shares))

    def take(self, squares: Sequence[Square] | None) -> None:
        """Add what `squares_of` found of one batch. Sums have the same bytes where batches come in the same order."""
        if squares is None:
            self.is_broken = True
            return
        for name, wrong, whole in squares:
            self._wrong[name] = self._wrong.get(name, 0.0) + wrong
            self._whole[name] = self._whole.get(name, 0.0) + whole

    @property
    def error(self) -> float:
        """The largest relative L2 error of an output; infinite where an output is NaN or infinite and should not be,
        or is not zero where the reference is."""
        if self.is_broken:
            return math.inf
        return max(
            (_ratio(wrong, self._whole[name]) * self._shares.get(name, 1.0) for name, wrong in self._wrong.items()),
            default=0.0,
        )


def squares_of(
    reference: Mapping[str, Any], got: Mapping[str, Any], shares: Mapping[str, float]
) -> tuple[Square, ...] | None:
    """Compare one batch of outputs by name; None where an output is broken. Those of share 0 are left out."""
    found = _Squares()
    for name, want in reference.items():
        if shares.get(name, 1.0) > 0.0:
            found.compare(name, want, got.get(name))
    return None if found.is_broken else tuple(found.squares)


def squares_by_row(want: Any, found: Any, rows: int) -> tuple[npt.NDArray[np.float64], float]:
    """The squared error of each of so many rows of floats of one shape, and the square of the whole reference. A row is
    infinite where it is broken: a number in it is NaN or infinite and should not be, or should be and is not.
    """
    want, found = (np.asarray(side).reshape(rows, -1) for side in (want, found))
    squares, whole = np.zeros(rows), 0.0
    for row in range(rows):
        for start in range(0, want.shape[1], _PIECE):
            wrong, size = _squares_of_piece(*(side[row, start : start + _PIECE] for side in (want, found)))
            squares[row] += wrong
            whole += size
    return squares, whole


def _squares_of_piece(want: Array, found: Array) -> tuple[float, float]:
    """The squared error of flat numbers, infinite where one is broken, and that of the finite reference."""
    want, found = want.astype(np.float64), found.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(want)
        if not finite.all():
            if not ((want == found) | (np.isnan(want) & np.isnan(found)))[~finite].all():
                return np.inf, _square(want[finite])
            want, found = want[finite], found[finite]
        wrong = found - want
        square = _square(wrong)
        return square if np.isfinite(found).all() else np.inf, _square(want)


def _square(numbers: Array) -> float:
    return float(np.einsum("i,i->", numbers, numbers))


class _Squares:
    """What one batch shows."""

    def __init__(self) -> None:
        self.squares: list[Square] = []
        self.is_broken = False

    def compare(self, name: str, want: Any, found: Any) -> None:
        if isinstance(want, list):
            if not isinstance(found, list) or len(found) != len(want):
                self.is_broken = True
                return
            for one, other in zip(want, found, strict=True):
                self.compare(name, one, other)
            return
        if want is None or found is None:
            self.is_broken |= want is not found
            return
        want, found = np.asarray(want), np.asarray(found)
        if want.shape != found.shape:
            self.is_broken = True
        elif want.dtype.kind in "fV":
            self._add_floats(name, want, found)
        elif not np.array_equal(want, found):
            # Integers that differ are counted as wrong numbers of size one: an argmax that flips is no broken output.
            self._note(name, float(np.sum(want != found)), float(want.size))

    def _add_floats(self, name: str, want: Any, found: Any) -> None:
        (wrong,), whole = squares_by_row(want, found, 1)
        if np.isinf(wrong):
            self.is_broken = True
            return
        self._note(name, float(wrong), whole)

    def _note(self, name: str, wrong: float, whole: float) -> None:
        self.squares.append((name, wrong, whole))


def _ratio(wrong: float, whole: float) -> float:
    if wrong == 0.0:
        return 0.0
    return math.sqrt(wrong / whole) if whole > 0.0 else math.inf
