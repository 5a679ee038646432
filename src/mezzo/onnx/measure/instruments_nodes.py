"""Observer operators of one value: min, max, NaN and infinity, and a stratified random sample.

The caller draws new sample positions for each batch, one in each of N equal parts of the tensor. A
fixed stride could fall in step with rows or channels. A tensor of at most N elements is read whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from onnx import TensorProto, helper

from mezzo.onnx.protos.node_builder import NodeBuilder

# The opset of `fold`, which nested subgraphs need: Range, TopK with a variable K, GatherElements.
NESTED_SINCE = 11


class Places(NamedTuple):
    """Names of the two position inputs: shares of the length (f64 in [0, 1)), and 0, 1, 2, ..."""

    shares: str
    steps: str


class StatisticNames(NamedTuple):
    """Names of one value's statistics: min [1], max [1], sum or count of NaN [1], infinity [1], the
    sample, and the number of elements (i64, a scalar).
    """

    lowest: str
    highest: str
    total: str
    infinite: str
    sample: str
    size: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Nodes(NodeBuilder):
    """A builder of observers, for a model of that opset."""

    opset: int

    def reduce(self, op: str, value: str, axis: int) -> str:
        """Reduce one axis away."""
        since = 13 if op == "ReduceSum" else 18
        if self.opset >= since:
            return self.add(op, value, self.constant([axis], np.int64), keepdims=0)
        return self.add(op, value, axes=[axis], keepdims=0)

    def lift(self, value: str, axis: int) -> str:
        """Insert an axis of length 1."""
        if self.opset >= 13:
            return self.add("Unsqueeze", value, self.constant([axis], np.int64))
        return self.add("Unsqueeze", value, axes=[axis])


def add_places(nodes: Nodes, places: Places, size: str) -> str:
    """Sample positions in a tensor of that size, by operators of opset 7. A tensor no longer than
    the sample is read whole, and then its last element repeatedly.
    """
    length = nodes.cast(size, TensorProto.DOUBLE)
    sample_size = nodes.cast(nodes.add("Size", places.steps), TensorProto.DOUBLE)
    is_longer = nodes.cast(nodes.add("Greater", length, sample_size), TensorProto.DOUBLE)
    unit = nodes.constant(1.0, np.float64)
    in_order = nodes.add("Min", places.steps, nodes.add("Sub", length, unit))
    random_positions = nodes.add("Mul", places.shares, length)
    unsampled = nodes.add("Mul", in_order, nodes.add("Sub", unit, is_longer))
    chosen = nodes.add("Add", nodes.add("Mul", random_positions, is_longer), unsampled)
    return nodes.cast(chosen, TensorProto.INT64)


def measure(
    nodes: Nodes, flat: str, size: str, places: str, columns: int | None = None
) -> StatisticNames:
    """Statistics of a flat, non-empty value. Its sum is finite only if all elements are.

    With `columns`, a divisor of its length, rows of that length are reduced first, which runtimes
    do in parallel.
    """
    lowest, highest, total = flat, flat, flat
    if columns is not None:
        rows = nodes.add("Reshape", flat, nodes.constant([-1, columns], np.int64))
        lowest, highest, total = (
            nodes.reduce(op, rows, 1) for op in ("ReduceMin", "ReduceMax", "ReduceSum")
        )
    total = nodes.add("ReduceSum", total, keepdims=1)
    return StatisticNames(
        nodes.add("ReduceMin", lowest, keepdims=1),
        nodes.add("ReduceMax", highest, keepdims=1),
        total,
        total,
        nodes.add("Gather", flat, places, axis=0),
        size,
    )


def measure_carefully(nodes: Nodes, flat: str, size: str, places: str) -> StatisticNames:
    """Statistics of a flat value that may be empty or hold NaN and infinities.

    Min and max are of the finite elements, +inf and -inf if there are none. `total` counts NaN;
    `infinite` is 1 if an element is infinite, else 0.
    """
    padded = nodes.add("Concat", flat, nodes.constant([np.nan], np.float32), axis=0)
    is_nan = nodes.add("IsNaN", padded)
    is_odd = nodes.add("IsNaN", nodes.add("Sub", padded, padded))
    is_infinite = nodes.add("And", is_odd, nodes.add("Not", is_nan))
    above, below = nodes.constant(np.inf, np.float32), nodes.constant(-np.inf, np.float32)
    nans = nodes.add("ReduceSum", nodes.cast(is_nan, TensorProto.FLOAT), keepdims=1)
    return StatisticNames(
        nodes.add("ReduceMin", nodes.add("Where", is_odd, above, padded), keepdims=1),
        nodes.add("ReduceMax", nodes.add("Where", is_odd, below, padded), keepdims=1),
        nodes.add("Sub", nans, nodes.constant(1.0, np.float32)),
        nodes.add("ReduceMax", nodes.cast(is_infinite, TensorProto.FLOAT), keepdims=1),
        nodes.add("Gather", padded, places, axis=0),
        size,
    )


class StatisticRecord(NamedTuple):
    """Names of the statistics of a subgraph's V values in one run: `extremes` [V, 2] (min, -max),
    `oddness` [V, 2] (sum or count of NaN, infinity), `samples` [V, length] and `counts` [V] (i64).
    """

    extremes: str
    oddness: str
    samples: str
    counts: str


def join(nodes: Nodes, parts: Sequence[StatisticNames | StatisticRecord]) -> StatisticRecord:
    """Concatenate the parts and records of a subgraph, in order, to one record."""
    rows = [_as_record(nodes, part) if isinstance(part, StatisticNames) else part for part in parts]
    if len(rows) == 1:
        return rows[0]
    return StatisticRecord(
        *(nodes.add("Concat", *column, axis=0) for column in zip(*rows, strict=True))
    )


def _as_record(nodes: Nodes, part: StatisticNames) -> StatisticRecord:
    extremes = nodes.add("Concat", part.lowest, nodes.add("Neg", part.highest), axis=0)
    oddness = nodes.add("Concat", part.total, part.infinite, axis=0)
    return StatisticRecord(
        nodes.lift(extremes, 0),
        nodes.lift(oddness, 0),
        nodes.lift(part.sample, 0),
        nodes.lift(part.size, 0),
    )


def neutral(nodes: Nodes, values: int, places: Places) -> StatisticRecord:
    """The record of values that were not computed: the neutral element of `fold`."""
    blank = nodes.lift(nodes.cast(places.steps, TensorProto.FLOAT), 0)
    return StatisticRecord(
        nodes.constant(np.full((values, 2), np.inf), np.float32),
        nodes.constant(np.zeros((values, 2)), np.float32),
        nodes.add("Tile", blank, nodes.constant([values, 1], np.int64)),
        nodes.constant(np.zeros(values), np.int64),
    )


def fold(nodes: Nodes, record: StatisticRecord, values: int, places: Places) -> StatisticRecord:
    """Reduce the records of T runs (axis 0) to one; T may be 0. Of all samples, a random subset of
    one run's length is kept.
    """
    empty = neutral(nodes, values, places)
    rows = StatisticRecord(
        *(
            nodes.add("Concat", nodes.lift(e, 0), r, axis=0)
            for e, r in zip(empty, record, strict=True)
        )
    )
    counts = nodes.lift(nodes.cast(rows.counts, TensorProto.DOUBLE), 2)
    # [T, V, length].
    is_sampled = nodes.cast(nodes.add("Less", places.steps, counts), TensorProto.DOUBLE)
    shape = nodes.constant([values, -1], np.int64)
    flat = nodes.add("Reshape", nodes.add("Transpose", rows.samples, perm=[1, 0, 2]), shape)
    flat_is_sampled = nodes.add(
        "Reshape", nodes.add("Transpose", is_sampled, perm=[1, 0, 2]), shape
    )
    # Quasi-random choice: fractional parts of multiples of the golden ratio (Weyl sequence) as
    # priority.
    length = nodes.add("Size", nodes.add("Gather", flat, nodes.constant(0, np.int64), axis=0))
    steps = nodes.add("Range", nodes.constant(0, np.int64), length, nodes.constant(1, np.int64))
    multiples = nodes.add(
        "Mul",
        nodes.cast(steps, TensorProto.DOUBLE),
        nodes.constant(0.6180339887498949, np.float64),
    )
    priority = nodes.add(
        "Add",
        nodes.constant(1.0, np.float64),
        nodes.add("Sub", multiples, nodes.add("Floor", multiples)),
    )
    best = nodes.fresh()
    sample_size = nodes.add("Size", places.steps)
    key = nodes.add("Mul", flat_is_sampled, priority)
    outputs = [nodes.fresh(), best]
    nodes.nodes.append(helper.make_node("TopK", [key, nodes.lift(sample_size, 0)], outputs, axis=1))
    return StatisticRecord(
        nodes.reduce("ReduceMin", rows.extremes, 0),
        nodes.reduce("ReduceSum", rows.oddness, 0),
        nodes.add("GatherElements", flat, best, axis=1),
        nodes.reduce("ReduceSum", rows.counts, 0),
    )


def gather_sequence(
    nodes: Nodes, record: StatisticRecord, values: int, places: Places
) -> StatisticRecord:
    """Stack the records that SequenceMap returns as sequences, after a neutral one."""
    empty = neutral(nodes, values, places)
    front = nodes.constant(0, np.int64)
    return StatisticRecord(
        *(
            nodes.add(
                "ConcatFromSequence", nodes.add("SequenceInsert", r, e, front), axis=0, new_axis=1
            )
            for e, r in zip(empty, record, strict=True)
        )
    )
