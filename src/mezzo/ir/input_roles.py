"""Roles of a model's inputs, from which synthetic inputs are generated. A front end derives them
from the operators that read each input.
"""

import enum
from dataclasses import dataclass

from mezzo.formats.dtypes import DType

# Length of an axis: a number, a symbolic name or expression, or None if unknown.
Length = int | str | None


class Part(enum.Enum):
    """The meaning of an input's numbers."""

    DATA = "data"
    INDEX = "index"  # integer row indices, below a bound
    MASK = "mask"  # which positions are valid, or their number
    SIZE = "size"  # a length, a count or an axis
    SWITCH = "switch"  # the condition of an If


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One input. `dtype` is None if mezzo has no name for it. `lengths` are of its axes; None if
    the rank is unknown. `below` is the exclusive bound of an index, if the number of rows is known;
    `is_list`: the input is a list of such tensors.
    """

    name: str
    dtype: DType | None
    lengths: tuple[Length, ...] | None
    part: Part = Part.DATA
    below: Length = None
    is_list: bool = False
