"""What a target runs as one kernel, as columns of a problem: where a conversion is free, and where dear."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mezzo.core.columns import Bools

# A conversion that a kernel makes as it reads or writes costs nothing. It has the least price there is, so that no
# plan makes one for nothing.
FREE_CONVERSION = 1
# What gains nothing beside the base pays this for being there: less than anything that has a price, and more than the
# free conversions around an operator. So the base, which errs least, is taken where it costs nothing.
NO_GAIN = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernels:
    """Columns by threshold, or by level, of what stands in a graph's columns; all False where a table says nothing.

    `reads_free`: by threshold and use, the use's kernel converts what it reads, at no price.
    `writes_free`: by threshold and value, the kernel that makes it hands on either form, or both, at no price.
    `takes_apart`: by threshold and use, a conversion there makes two kernels of one.
    `computes_base`: by level and node, its kernel computes at the base whatever the node runs in.
    `hidden`: by level and value, nobody outside the kernel that makes it reads it: it never reaches memory.
    """

    reads_free: "Bools"
    writes_free: "Bools"
    takes_apart: "Bools"
    computes_base: "Bools"
    hidden: "Bools"
