"""Fused kernels of a target as columns of a problem: free conversions and broken fusions."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mezzo.ir.columns import GROUP, Bools, Columns, Ints

# Price of a conversion inside a kernel. It takes no time, but has the smallest price, so that no
# plan contains useless ones.
FREE_CONVERSION = 1
# Penalty of an operator that gains nothing outside the base: below every real price, above the free
# conversions around an operator. So the base, the most accurate level, is chosen where it costs
# nothing.
NO_GAIN = 16


@dataclass(frozen=True, kw_only=True, eq=False)
class Kernels:
    """Columns by threshold, or by level, parallel to a graph's columns; all False where the
    target's table has no row.

    `reads_free`: by threshold and use, the use's kernel converts the operand for free.
    `writes_free`: by threshold and value, the producer's kernel outputs either form, or both, for
    free. `takes_apart`: by threshold and use, a conversion there splits a fused kernel in two.
    `computes_base`: by level and node, the kernel computes at the base whatever the node's level.
    `hidden`: by level and value, all uses are inside the producer's kernel: the value never reaches
    memory. `ignores_traffic`: by level and node, the bytes that the kernel moves are worth no
    conversion. `is_wrapped`: by level and node, the runtime converts before and after it,
    at the cost of Casts.
    """

    reads_free: Bools
    writes_free: Bools
    takes_apart: Bools
    computes_base: Bools
    hidden: Bools
    ignores_traffic: Bools
    is_wrapped: Bools

    def shared_prices(self, cast_prices: Ints) -> Ints:
        """Price of a conversion shared by its uses, by threshold and value."""
        prices: Ints = np.where(
            self.writes_free, np.minimum(cast_prices, FREE_CONVERSION), cast_prices
        )
        return prices

    def use_prices(self, cast_prices: Ints) -> Ints:
        """Further price of a conversion, by threshold and use: a cast's price if it splits a
        kernel, which costs a launch, a write and a read.
        """
        prices: Ints = np.where(
            self.takes_apart, cast_prices, np.where(self.reads_free, FREE_CONVERSION, 0)
        )
        return prices

    def elements_staying(
        self, columns: Columns, level: int, threshold: int, counts: Sequence[bool]
    ) -> tuple[Ints, Ints]:
        """Elements read and written by each node whose traffic is the same at every level: inside a
        kernel, or converted by it. `counts`: which nodes to count.
        """
        hidden, size = self.hidden[level], len(columns.node_kind)
        is_ignored = self.ignores_traffic[level]
        stays = (columns.use_role == GROUP) & (
            hidden[columns.use_value] | self.reads_free[threshold] | is_ignored[columns.use_node]
        )
        read = np.zeros(size, np.int64)
        np.add.at(read, columns.use_node[stays], columns.value_elements[columns.use_value[stays]])
        stays = (columns.value_role == GROUP) & (
            hidden | self.writes_free[threshold] | is_ignored[columns.value_producer]
        )
        written = np.zeros(size, np.int64)
        np.add.at(written, columns.value_producer[stays], columns.value_elements[stays])
        return read * np.array(counts), written * np.array(counts)

    def losses(self, columns: Columns, level: int, cast_prices: Ints) -> Ints:
        """Penalty of each node for running at a level without a gain, or between conversions of the
        runtime's own. `cast_prices`: by value, at the level's threshold.
        """
        penalties: Ints = NO_GAIN * self.computes_base[level]
        is_wrapped = self.is_wrapped[level]
        uses = (columns.use_role == GROUP) & is_wrapped[columns.use_node]
        np.add.at(penalties, columns.use_node[uses], cast_prices[columns.use_value[uses]])
        values = (columns.value_role == GROUP) & is_wrapped[columns.value_producer]
        np.add.at(penalties, columns.value_producer[values], cast_prices[values])
        return penalties
