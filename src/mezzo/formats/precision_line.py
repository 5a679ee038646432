"""Precisions in an order: what a plan chooses from. Neighbours convert into each other, and nobody else does."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mezzo.formats.dtypes import QUANTIZED, DType, size_bits


class Precision(NamedTuple):
    """The dtypes of one node: of its products, of its sums, and of what it hands on."""

    compute: DType
    accumulate: DType
    output: DType


def uniform(dtype: DType) -> Precision:
    """Everything in one dtype; sums are left to the runtime, which the schema does not type."""
    return Precision(dtype, dtype, dtype)


@dataclass(frozen=True)
class PrecisionLine:
    """The levels of a plan, and which of them models come in. An assignment is the number of a level per node.

    Between levels t and t + 1 stands threshold t, and one conversion. So a value that is made at level 0 and wanted at
    level 2 is wanted at level 1 on the way. Every level hands on a dtype of its own.
    """

    levels: tuple[Precision, ...]
    base: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.base < len(self.levels), "the base is one of the levels"
        assert len(set(self.dtypes)) == len(self.levels), "levels are told apart by what they hand on"

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        """What each level hands on."""
        return tuple(level.output for level in self.levels)

    @property
    def base_dtype(self) -> DType:
        return self.dtypes[self.base]

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The levels beside the base, the nearest to it first, those above it before those below."""
        return (*range(self.base + 1, len(self.levels)), *reversed(range(self.base)))

    @cached_property
    def beside(self) -> tuple[DType, ...]:
        """What the levels beside the base hand on, in the line's order."""
        return tuple(dtype for dtype in self.dtypes if dtype is not self.base_dtype)

    @cached_property
    def quantized(self) -> int | None:
        """The level whose numbers stand for floats by a scale; None where there is none."""
        return next((level for level, dtype in enumerate(self.dtypes) if dtype in QUANTIZED), None)

    @cached_property
    def quantized_format(self) -> DType | None:
        """What that level's numbers are of; None where there is none."""
        return None if self.quantized is None else self.dtypes[self.quantized]

    @property
    def only_other(self) -> DType:
        """What the level beside the base hands on, of a line that has one such."""
        (level,) = self.others
        return self.dtypes[level]

    @cached_property
    def thresholds(self) -> range:
        return range(len(self.levels) - 1)

    def level_of(self, dtype: DType | None) -> int | None:
        """The level that hands on a dtype; None where no level does."""
        return self._by_dtype.get(dtype)

    @cached_property
    def _by_dtype(self) -> dict[DType | None, int]:
        return {dtype: level for level, dtype in enumerate(self.dtypes)}

    def side(self, level: int) -> int:
        """The place of a level among those beside the base, in the line's order."""
        return level if level < self.base else level - 1

    def threshold_of(self, level: int) -> int:
        """The threshold between a level beside the base and the one before it, towards the base."""
        return level - 1 if level > self.base else level

    def narrower(self, level: int) -> int:
        """Bits of one element that a level saves against the base; below 0 where it is wider."""
        return size_bits(self.base_dtype) - size_bits(self.dtypes[level])

    def conversion_bits(self, threshold: int) -> int:
        """Bits that converting one element across a threshold reads and writes."""
        return size_bits(self.dtypes[threshold]) + size_bits(self.dtypes[threshold + 1])


def float_of(line: PrecisionLine) -> DType:
    """The float beside the base, if there is one; else the only level beside it: what a model is read for."""
    floats = [dtype for dtype in line.beside if dtype not in QUANTIZED]
    return floats[0] if floats else line.beside[0]


def line_of(base: DType, *others: DType) -> PrecisionLine:
    """A line from the base on, every level in one dtype throughout."""
    return PrecisionLine(tuple(map(uniform, (base, *others))))


def between(first: int, wanted: Iterable[int]) -> list[int]:
    """The levels that have to be made for a value of level `first` to be had at the levels wanted, nearest first."""
    reached = set(wanted)
    above, below = max(reached, default=first), min(reached, default=first)
    return [*range(first + 1, above + 1), *range(first - 1, below - 1, -1)]
