"""What a model's inputs take, for whoever has to make something up to feed them: a front end says what reads each."""

import enum
from dataclasses import dataclass

from mezzo.formats.dtypes import DType

# How long an axis is; a name, or an expression of names, where the model leaves it open; None where it is silent.
Length = int | str | None


class Part(enum.Enum):
    """What the numbers of an input are to the model."""

    DATA = "data"
    INDEX = "index"  # whole numbers that pick rows of something, below a bound
    MASK = "mask"  # which places count: hides others, or sums up how many there are
    SIZE = "size"  # how long, how often, along which axis
    SWITCH = "switch"  # which of two branches is run


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One input. `dtype` is None where the front end has no name for it. `lengths` are of its axes, None where not even
    their number is known. `below` bounds an index, where the rows that it picks are counted; `is_list` says that a
    list of such tensors is fed.
    """

    name: str
    dtype: DType | None
    lengths: tuple[Length, ...] | None
    part: Part = Part.DATA
    below: Length = None
    is_list: bool = False
