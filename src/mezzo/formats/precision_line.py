"""Ordered precision levels of a plan. Only neighbouring levels convert into each other."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from mezzo.formats.dtypes import LOW_DTYPES, QUANTIZED, DType, size_bits


class Precision(NamedTuple):
    """The dtypes of one node: multiplication inputs, accumulation, and output."""

    compute: DType
    accumulate: DType
    output: DType


def uniform(dtype: DType) -> Precision:
    """One dtype throughout; the ONNX schema does not type the accumulation."""
    return Precision(dtype, dtype, dtype)


@dataclass(frozen=True)
class PrecisionLine:
    """The levels of a plan, and the index of the base, the precision of the source model. An
    assignment is a level index per node.

    Threshold t is the conversion between levels t and t + 1. A value that is produced at level 0
    and used at level 2 is converted to level 1 on the way. Each level has its own output dtype.
    """

    levels: tuple[Precision, ...]
    base: int = 0

    def __post_init__(self) -> None:
        assert 0 <= self.base < len(self.levels), "the base is one of the levels"
        assert len(set(self.dtypes)) == len(self.levels), (
            "levels are distinguished by their output types"
        )

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        """The output dtype of each level."""
        return tuple(level.output for level in self.levels)

    @property
    def base_dtype(self) -> DType:
        return self.dtypes[self.base]

    @cached_property
    def others(self) -> tuple[int, ...]:
        """The levels except the base, nearest to it first, those above it before those below."""
        return (*range(self.base + 1, len(self.levels)), *reversed(range(self.base)))

    @cached_property
    def other_dtypes(self) -> tuple[DType, ...]:
        """The output dtypes of the levels except the base, in level order."""
        return tuple(dtype for dtype in self.dtypes if dtype is not self.base_dtype)

    @cached_property
    def quantized(self) -> int | None:
        """The level with a quantized format; None if there is none."""
        return next((level for level, dtype in enumerate(self.dtypes) if dtype in QUANTIZED), None)

    @cached_property
    def quantized_format(self) -> DType | None:
        """The quantized format; None if no level has one."""
        return None if self.quantized is None else self.dtypes[self.quantized]

    @property
    def only_other(self) -> DType:
        """The output dtype of the level that is not the base, for a line of two levels."""
        (level,) = self.others
        return self.dtypes[level]

    @cached_property
    def thresholds(self) -> range:
        return range(len(self.levels) - 1)

    def level_of(self, dtype: DType | None) -> int | None:
        """The level with this output dtype; None if there is none."""
        return self._by_dtype.get(dtype)

    @cached_property
    def _by_dtype(self) -> dict[DType | None, int]:
        return {dtype: level for level, dtype in enumerate(self.dtypes)}

    def side(self, level: int) -> int:
        """The index of a level among the levels except the base."""
        return level if level < self.base else level - 1

    def threshold_of(self, level: int) -> int:
        """The threshold between a level and its neighbour towards the base."""
        return level - 1 if level > self.base else level

    def narrower(self, level: int) -> int:
        """Bits per element that a level saves compared with the base; negative if it is wider."""
        return size_bits(self.base_dtype) - size_bits(self.dtypes[level])

    def conversion_bits(self, threshold: int) -> int:
        """Bits read and written to convert one element across a threshold."""
        return size_bits(self.dtypes[threshold]) + size_bits(self.dtypes[threshold + 1])


def float_of(line: PrecisionLine) -> DType:
    """The first of `floats_of`."""
    return floats_of(line)[0]


def floats_of(line: PrecisionLine) -> tuple[DType, ...]:
    """The low-precision floats of a line that a model can be converted to, the preferred one first:
    among equal costs a strategy takes the last level. Without one, the first other level; the base
    of a line of one level.
    """
    others = tuple(line.dtypes[level] for level in line.others)
    floats = tuple(dtype for dtype in others if dtype in LOW_DTYPES.values())
    return floats or others[:1] or (line.base_dtype,)


def line_of(base: DType, *others: DType) -> PrecisionLine:
    """A line of uniform levels, from the base on."""
    return PrecisionLine(tuple(map(uniform, (base, *others))))


def between(first: int, wanted: Iterable[int]) -> list[int]:
    """The levels that a value produced at level `first` has to be converted to, to be available at
    the levels `wanted`, nearest first.
    """
    reached = set(wanted)
    above, below = max(reached, default=first), min(reached, default=first)
    return [*range(first + 1, above + 1), *range(first - 1, below - 1, -1)]
