"""What a target runs as one kernel, as columns of a problem: where a conversion is free, and where dear."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mezzo.ir.columns import GROUP, Bools, Columns, Ints

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

    reads_free: Bools
    writes_free: Bools
    takes_apart: Bools
    computes_base: Bools
    hidden: Bools

    def shared_prices(self, cast_prices: Ints) -> Ints:
        """What one conversion costs that its users share, by threshold and value."""
        found: Ints = np.where(self.writes_free, np.minimum(cast_prices, FREE_CONVERSION), cast_prices)
        return found

    def use_prices(self, cast_prices: Ints) -> Ints:
        """What a conversion costs beside that, by threshold and use, given what a cast of each use's value does.

        A kernel that is taken apart is one more to launch, and what it kept inside is written and read: a cast's price.
        """
        found: Ints = np.where(self.takes_apart, cast_prices, np.where(self.reads_free, FREE_CONVERSION, 0))
        return found

    def elements_staying(
        self, columns: Columns, level: int, threshold: int, counts: Sequence[bool]
    ) -> tuple[Ints, Ints]:
        """Elements that each node reads in its group, and that it makes in it, which move alike whatever it runs in:
        those that stay inside its kernel, and those that its kernel converts by itself. `counts`: of which nodes.
        """
        hidden, size = self.hidden[level], len(columns.node_kind)
        stays = (columns.use_role == GROUP) & (hidden[columns.use_value] | self.reads_free[threshold])
        read = np.zeros(size, np.int64)
        np.add.at(read, columns.use_node[stays], columns.value_elements[columns.use_value[stays]])
        stays = (columns.value_role == GROUP) & (hidden | self.writes_free[threshold])
        made = np.zeros(size, np.int64)
        np.add.at(made, columns.value_producer[stays], columns.value_elements[stays])
        return read * np.array(counts), made * np.array(counts)

    def losses(self, level: int) -> Ints:
        """What each node loses by running at a level for nothing."""
        found: Ints = NO_GAIN * self.computes_base[level]
        return found
