"""What a calibrator is given and gives back: what was seen of a tensor, the integers that are to hold it, and the range
that they cover.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mezzo.common.errors import InputError
from mezzo.formats.dtypes import DType, integer_span, storage_span

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from mezzo.ir.columns import Ints


# What is asked for in place of a calibrator where ranges are to be found as the model runs.
NO_CALIBRATOR = "none"


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both with it."""

    low: float
    high: float

    def __post_init__(self) -> None:
        assert -float("inf") < self.low <= self.high < float("inf"), "ends are finite and in order"

    @property
    def largest(self) -> float:
        """The largest magnitude in it."""
        return max(abs(self.low), abs(self.high))

    def union(self, other: "Range") -> "Range":
        """The smallest range that holds both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def with_zero(self) -> "Range":
        """The smallest range that holds this one and zero."""
        return Range(min(self.low, 0.0), max(self.high, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The numbers that a tensor may be held in. `is_symmetric`: zero stands in the middle, at 0 where they have a sign.
    `is_narrow`: the smallest integer is left out where no largest answers it, as in -127 to 127.
    """

    dtype: DType
    is_symmetric: bool = False
    is_narrow: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Smallest and largest number."""
        low, high = storage_span(self.dtype)
        return max(low, -high) if self.is_narrow else low, high

    @property
    def is_even(self) -> bool:
        """Whether all steps are of one size, as those of integers are."""
        return integer_span(self.dtype) is not None

    @property
    def steps(self) -> int:
        """How many steps lie between the smallest and the largest integer. U8: 255."""
        low, high = self.span
        return high - low

    @property
    def middle(self) -> int:
        """What stands for zero on a symmetric grid. S8: 0, U8: 128."""
        low, high = self.span
        return 0 if low < 0 else (low + high + 1) // 2

    def covered(self, wanted: Range) -> Range:
        """The range that integers cover at the least if they are to hold a range: zero with it, and as far to both
        sides on a symmetric grid.
        """
        held = wanted.with_zero()
        return Range(-held.largest, held.largest) if self.is_symmetric else held


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What was seen of a tensor, or of one slice of it.

    `extremes` are of all finite numbers, None where there was none. `counts` has an odd length: the one in the middle
    counts magnitudes below `width`, a power of two, and the n-th above or below it those from n to n + 1 widths, on
    their side of zero. Counted are `samples`, each of which stands for as many numbers as its tensor had per sample;
    `zeros` of those in the middle are exactly zero. NaN and infinities are in neither.
    """

    count: int
    nans: int
    infinities: int
    zeros: int
    samples: int
    extremes: Range | None
    width: float
    counts: "Ints"

    @property
    def strangers(self) -> int:
        """How many numbers were left out, as they are no finite numbers."""
        return self.nans + self.infinities


class Calibrator(ABC):
    """One way to choose a range. `name` is its option, `summary` its line in the table; `also` are other words for it.
    `needs_even`: it takes the steps of a grid to be of one size.

    A subclass may be a frozen dataclass with a setting, which `setting` reads: "percentile=99.9". One that is shipped
    keeps nothing: `collect` and `of` are for what a user brings.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    needs_even: ClassVar[bool] = False

    @abstractmethod
    def choose(self, seen: Summary, grid: Grid) -> Range:
        """Choose the range that a grid is to cover; numbers beyond it are clipped.

        Called only where numbers other than zero were seen. What it gives is cut to what was seen.
        """

    def collect(self, name: str, numbers: "npt.NDArray[np.float32]") -> None:  # noqa: B027  nothing is a fine default
        """See what a value holds on one batch, for who chooses by more than a summary. Nothing is kept by default."""

    def of(self, name: str) -> "Calibrator":
        """What chooses for a value of that name."""
        return self

    def setting(self, text: str) -> "Calibrator":
        """The same with its setting as written. Raises InputError: it has none, or not this."""
        raise InputError(f"calibrator {self.name!r} takes no setting, and {text!r} was given; write {self.name}")
