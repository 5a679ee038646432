"""Error of a run against a reference: the largest relative L2 error over the outputs."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

# Elements per block, so that intermediate arrays fit into a processor's cache.
_PIECE = 1 << 16
# Name of an output or a part of it, and the sums of squares of its error and of the reference.
Square = tuple[str, float, float]


class ErrorSum:
    """Sums squared errors over batches, in FP64: a fast error measure for searches."""

    def __init__(self, shares: Mapping[str, float] | None = None) -> None:
        """`shares`: a weight per output, 1 by default; outputs of weight 0 are skipped."""
        self._shares = shares or {}
        self._wrong: dict[str, float] = {}
        self._whole: dict[str, float] = {}
        self.is_broken = False

    def add(self, reference: Mapping[str, Any], got: Mapping[str, Any]) -> None:
        """Add one batch of outputs by name."""
        self.take(squares_of(reference, got, self._shares))

    def take(self, squares: Sequence[Square] | None) -> None:
        """Add one batch's `squares_of`. Batches in the same order give bit-identical sums."""
        if squares is None:
            self.is_broken = True
            return
        for name, wrong, whole in squares:
            self._wrong[name] = self._wrong.get(name, 0.0) + wrong
            self._whole[name] = self._whole.get(name, 0.0) + whole

    @property
    def error(self) -> float:
        """The largest relative L2 error of an output; infinite if an output is NaN or infinite
        where the reference is finite, or nonzero although the reference is all zero.
        """
        if self.is_broken:
            return math.inf
        return max(
            (
                _ratio(wrong, self._whole[name]) * self._shares.get(name, 1.0)
                for name, wrong in self._wrong.items()
            ),
            default=0.0,
        )


def squares_of(
    reference: Mapping[str, Any],
    got: Mapping[str, Any],
    shares: Mapping[str, float],
    steps: int | None = None,
) -> tuple[Square, ...] | None:
    """Compare one batch of outputs; None if one is broken. Those of weight 0 are skipped. `steps`:
    of a sequence, whose worst step counts as all of them.
    """
    comparison = _Squares(steps)
    for name, want in reference.items():
        if shares.get(name, 1.0) > 0.0:
            comparison.compare(name, want, got.get(name))
    return None if comparison.is_broken else tuple(comparison.squares)


def squares_by_row(want: Any, found: Any, rows: int) -> tuple[npt.NDArray[np.float64], float]:
    """The squared error of each row of two float arrays of equal shape, and the sum of squares of
    the whole reference. A row is infinite if it has a NaN or infinity that the reference lacks, or
    lacks one.
    """
    want, found = (np.asarray(side).reshape(rows, -1) for side in (want, found))
    squares, whole = np.zeros(rows), 0.0
    for row in range(rows):
        for start in range(0, want.shape[1], _PIECE):
            wrong, size = _squares_of_piece(
                *(side[row, start : start + _PIECE] for side in (want, found))
            )
            squares[row] += wrong
            whole += size
    return squares, whole


def _squares_of_piece(want: Array, actual: Array) -> tuple[float, float]:
    """The squared error of a flat block, infinite if broken, and the reference's."""
    want, actual = want.astype(np.float64), actual.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        finite = np.isfinite(want)
        if not finite.all():
            if not ((want == actual) | (np.isnan(want) & np.isnan(actual)))[~finite].all():
                return np.inf, _square(want[finite])
            want, actual = want[finite], actual[finite]
        wrong = actual - want
        square = _square(wrong)
        return square if np.isfinite(actual).all() else np.inf, _square(want)


def _square(numbers: Array) -> float:
    return float(np.einsum("i,i->", numbers, numbers))


class _Squares:
    """The squared errors of one batch."""

    def __init__(self, steps: int | None) -> None:
        self._steps = steps
        self.squares: list[Square] = []
        self.is_broken = False

    def compare(self, name: str, want: Any, actual: Any) -> None:
        if isinstance(want, list):
            if not isinstance(actual, list) or len(actual) != len(want):
                self.is_broken = True
                return
            for want_part, actual_part in zip(want, actual, strict=True):
                self.compare(name, want_part, actual_part)
            return
        if want is None or actual is None:
            self.is_broken |= want is not actual
            return
        want, actual = np.asarray(want), np.asarray(actual)
        if want.shape != actual.shape:
            self.is_broken = True
        elif want.dtype.kind in "fV":
            self._add_floats(name, want, actual)
        elif not np.array_equal(want, actual):
            # Integers count as wrong by one each: a flipped argmax is an error, not a broken
            # output.
            self._note(name, float(np.sum(want != actual)), float(want.size))

    def _add_floats(self, name: str, want: Any, actual: Any) -> None:
        rows = self._steps if self._steps is not None and want.shape[:1] == (self._steps,) else 1
        squares, whole = squares_by_row(want, actual, rows)
        if np.isinf(squares).any():
            self.is_broken = True
            return
        self._note(name, float(squares.max()) * rows, whole)

    def _note(self, name: str, wrong: float, whole: float) -> None:
        self.squares.append((name, wrong, whole))


def _ratio(wrong: float, whole: float) -> float:
    if wrong == 0.0:
        return 0.0
    return math.sqrt(wrong / whole) if whole > 0.0 else math.inf
