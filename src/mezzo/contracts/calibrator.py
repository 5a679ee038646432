"""Calibrator contract: observed statistics of a tensor and a quantized grid in, a clipping range
out.
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


# The option value for dynamic quantization, in place of a calibrator's name.
NO_CALIBRATOR = "none"


@dataclass(frozen=True, slots=True)
class Range:
    """A closed interval from `low` to `high`."""

    low: float
    high: float

    def __post_init__(self) -> None:
        assert -float("inf") < self.low <= self.high < float("inf"), "ends are finite and in order"

    @property
    def largest(self) -> float:
        """Largest magnitude in the range."""
        return max(abs(self.low), abs(self.high))

    def union(self, other: "Range") -> "Range":
        """The smallest range that contains both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def with_zero(self) -> "Range":
        """The smallest range that contains this one and zero."""
        return Range(min(self.low, 0.0), max(self.high, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Quantized values that a tensor may take. `is_symmetric`: zero is in the middle, at 0 for
    signed types. `is_narrow`: the smallest integer is unused if its negative does not exist, as in
    -127 to 127.
    """

    dtype: DType
    is_symmetric: bool = False
    is_narrow: bool = False

    @property
    def span(self) -> tuple[int, int]:
        """Smallest and largest quantized value."""
        low, high = storage_span(self.dtype)
        return max(low, -high) if self.is_narrow else low, high

    @property
    def is_even(self) -> bool:
        """Whether all steps have the same size, as for integers."""
        return integer_span(self.dtype) is not None

    @property
    def steps(self) -> int:
        """Number of steps between the smallest and the largest integer. U8: 255."""
        low, high = self.span
        return high - low

    @property
    def middle(self) -> int:
        """Zero point of a symmetric grid. S8: 0, U8: 128."""
        low, high = self.span
        return 0 if low < 0 else (low + high + 1) // 2

    def covered(self, wanted: Range) -> Range:
        """The range that the grid covers to represent a range: extended to zero, and symmetric on a
        symmetric grid.
        """
        extended = wanted.with_zero()
        return Range(-extended.largest, extended.largest) if self.is_symmetric else extended


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Statistics of a tensor, or of one slice of it.

    `extremes`: of all finite elements, None if there are none. `counts`: a histogram of odd length;
    the middle bin counts magnitudes below `width`, a power of two, and the n-th bin above or below
    it those from n to n + 1 widths with that sign. It counts `samples` elements of `count`, `zeros`
    of them exactly zero, without NaN and infinities.
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
        """Number of elements left out: NaN and infinities."""
        return self.nans + self.infinities


class Calibrator(ABC):
    """One way to choose a clipping range. `name`: its option; `summary`: its line in the table;
    `also`: aliases; `needs_even`: it requires a grid with steps of one size.

    A subclass may be a frozen dataclass with a setting, parsed by `setting`: "percentile=99.9".
    Those shipped with mezzo are stateless: `collect` and `of` are for calibrators of users.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    also: ClassVar[tuple[str, ...]] = ()
    needs_even: ClassVar[bool] = False

    @abstractmethod
    def choose(self, seen: Summary, grid: Grid) -> Range:
        """Choose the range that a grid covers; values beyond it are clipped.

        Called only for tensors with non-zero elements. The result is limited to the observed range.
        """

    def collect(self, name: str, numbers: "npt.NDArray[np.float32]") -> None:  # noqa: B027  nothing is a fine default
        """Observe a value on one batch, for calibrators that need more than a summary. The default
        does nothing.
        """

    def of(self, name: str) -> "Calibrator":
        """The calibrator for a value of that name."""
        return self

    def setting(self, text: str) -> "Calibrator":
        """A calibrator with a setting, parsed from text. Raises InputError: it takes none, or not
        this.
        """
        raise InputError(
            f"calibrator {self.name!r} takes no setting, and {text!r} was given; write {self.name}"
        )
