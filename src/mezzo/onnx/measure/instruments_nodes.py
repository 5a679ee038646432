"""The operators that measure one value: extremes, what is not finite, and a sample of its numbers.

A sample is read at places that the caller draws anew for each batch, one in each of as many equal parts as there are
places: no stride that could keep in step with rows and channels, and a tensor no longer than the sample is read whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

# What a value that may be empty or hold NaN and infinities is measured with.
CAREFUL_SINCE = 9
# Bodies in bodies: their samples are thinned inside the graph.
NESTED_SINCE = 11


class Places(NamedTuple):
    """Names of the two feeds that say where to sample: shares of the length (f64 in [0, 1)), and 0, 1, 2, ..."""

    shares: str
    steps: str


class Part(NamedTuple):
    """Names of what measures one value: [lowest], [highest], [sum or count of NaN], [not finite], the
    sample, and the size (i64, no axes).
    """

    lowest: str
    highest: str
    total: str
    infinite: str
    sample: str
    size: str


@dataclass
class Nodes:
    """Makes nodes in order; every name it makes starts with `prefix`, which no name of the model does."""

    prefix: str
    opset: int
    made: list[onnx.NodeProto] = field(default_factory=list)
    count: int = 0

    def name(self) -> str:
        self.count += 1
        return f"{self.prefix}{self.count}"

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        result = self.name()
        self.made.append(helper.make_node(op, inputs, [result], **attributes))
        return result

    def constant(self, value: object, dtype: type[np.generic]) -> str:
        result = self.name()
        tensor = onnx.numpy_helper.from_array(np.array(value, dtype), result)
        self.made.append(helper.make_node("Constant", [], [result], value=tensor))
        return result

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
    """Places to read of a tensor of that size: all of them, then the last one again, where it is not longer than the
    sample. In operators that opset 7 has.
    """
    length = nodes.add("Cast", size, to=TensorProto.DOUBLE)
    wanted = nodes.add("Cast", nodes.add("Size", places.steps), to=TensorProto.DOUBLE)
    is_longer = nodes.add("Cast", nodes.add("Greater", length, wanted), to=TensorProto.DOUBLE)
    one = nodes.constant(1.0, np.float64)
    whole = nodes.add("Min", places.steps, nodes.add("Sub", length, one))
    drawn = nodes.add("Mul", places.shares, length)
    first = nodes.add("Mul", whole, nodes.add("Sub", one, is_longer))
    chosen = nodes.add("Add", nodes.add("Mul", drawn, is_longer), first)
    return nodes.add("Cast", chosen, to=TensorProto.INT64)


def measure(nodes: Nodes, flat: str, size: str, places: str, columns: int | None = None) -> Part:
    """Measure a value of one axis that has at least one number. The sum of its numbers is finite only if all are.

    With `columns`, a divisor of its length, rows of so many numbers are reduced first, which engines do in parallel.
    """
    lowest, highest, total = flat, flat, flat
    if columns is not None:
        rows = nodes.add("Reshape", flat, nodes.constant([-1, columns], np.int64))
        lowest, highest, total = (nodes.reduce(op, rows, 1) for op in ("ReduceMin", "ReduceMax", "ReduceSum"))
    total = nodes.add("ReduceSum", total, keepdims=1)
    return Part(
        nodes.add("ReduceMin", lowest, keepdims=1),
        nodes.add("ReduceMax", highest, keepdims=1),
        total,
        total,
        nodes.add("Gather", flat, places, axis=0),
        size,
    )


def measure_carefully(nodes: Nodes, flat: str, size: str, places: str) -> Part:
    """Measure a value that may be empty or hold NaN and infinities: extremes are of what is finite, infinite the wrong
    way round where nothing is. NaN are counted, and whether there are infinities is 1 or 0.
    """
    padded = nodes.add("Concat", flat, nodes.constant([np.nan], np.float32), axis=0)
    is_nan = nodes.add("IsNaN", padded)
    is_odd = nodes.add("IsNaN", nodes.add("Sub", padded, padded))
    is_infinite = nodes.add("And", is_odd, nodes.add("Not", is_nan))
    above, below = nodes.constant(np.inf, np.float32), nodes.constant(-np.inf, np.float32)
    nans = nodes.add("ReduceSum", nodes.add("Cast", is_nan, to=TensorProto.FLOAT), keepdims=1)
    return Part(
        nodes.add("ReduceMin", nodes.add("Where", is_odd, above, padded), keepdims=1),
        nodes.add("ReduceMax", nodes.add("Where", is_odd, below, padded), keepdims=1),
        nodes.add("Sub", nans, nodes.constant(1.0, np.float32)),
        nodes.add("ReduceMax", nodes.add("Cast", is_infinite, to=TensorProto.FLOAT), keepdims=1),
        nodes.add("Gather", padded, places, axis=0),
        size,
    )


class Record(NamedTuple):
    """Names of what measures the V values of a body in one run: `extremes` [V, 2] as lowest and minus highest,
    `oddness` [V, 2] as sum, or count of NaN, and infinities, `samples` [V, length] and `counts` [V] (i64).
    """

    extremes: str
    oddness: str
    samples: str
    counts: str


def join(nodes: Nodes, parts: Sequence[Part | Record]) -> Record:
    """One record of the parts and records of a body, in order."""
    rows = [_as_record(nodes, part) if isinstance(part, Part) else part for part in parts]
    if len(rows) == 1:
        return rows[0]
    return Record(*(nodes.add("Concat", *column, axis=0) for column in zip(*rows, strict=True)))


def _as_record(nodes: Nodes, part: Part) -> Record:
    extremes = nodes.add("Concat", part.lowest, nodes.add("Neg", part.highest), axis=0)
    oddness = nodes.add("Concat", part.total, part.infinite, axis=0)
    return Record(nodes.lift(extremes, 0), nodes.lift(oddness, 0), nodes.lift(part.sample, 0), nodes.lift(part.size, 0))


def neutral(nodes: Nodes, values: int, places: Places) -> Record:
    """The record of values that were not computed."""
    blank = nodes.lift(nodes.add("Cast", places.steps, to=TensorProto.FLOAT), 0)
    return Record(
        nodes.constant(np.full((values, 2), np.inf), np.float32),
        nodes.constant(np.zeros((values, 2)), np.float32),
        nodes.add("Tile", blank, nodes.constant([values, 1], np.int64)),
        nodes.constant(np.zeros(values), np.int64),
    )


def fold(nodes: Nodes, record: Record, values: int, places: Places) -> Record:
    """One record of the records of T runs, which are its rows; T may be 0. Of the samples as many are kept."""
    empty = neutral(nodes, values, places)
    rows = Record(*(nodes.add("Concat", nodes.lift(e, 0), r, axis=0) for e, r in zip(empty, record, strict=True)))
    counts = nodes.lift(nodes.add("Cast", rows.counts, to=TensorProto.DOUBLE), 2)
    given = nodes.add("Cast", nodes.add("Less", places.steps, counts), to=TensorProto.DOUBLE)  # [T, V, length]
    shape = nodes.constant([values, -1], np.int64)
    flat = nodes.add("Reshape", nodes.add("Transpose", rows.samples, perm=[1, 0, 2]), shape)
    is_given = nodes.add("Reshape", nodes.add("Transpose", given, perm=[1, 0, 2]), shape)
    # Which of them stay is drawn by the fractions of multiples of the golden ratio, which repeat no pattern.
    length = nodes.add("Size", nodes.add("Gather", flat, nodes.constant(0, np.int64), axis=0))
    steps = nodes.add("Range", nodes.constant(0, np.int64), length, nodes.constant(1, np.int64))
    turns = nodes.add(
        "Mul", nodes.add("Cast", steps, to=TensorProto.DOUBLE), nodes.constant(0.6180339887498949, np.float64)
    )
    luck = nodes.add("Add", nodes.constant(1.0, np.float64), nodes.add("Sub", turns, nodes.add("Floor", turns)))
    best = nodes.name()
    kept = nodes.add("Size", places.steps)
    key = nodes.add("Mul", is_given, luck)
    nodes.made.append(helper.make_node("TopK", [key, nodes.lift(kept, 0)], [nodes.name(), best], axis=1))
    return Record(
        nodes.reduce("ReduceMin", rows.extremes, 0),
        nodes.reduce("ReduceSum", rows.oddness, 0),
        nodes.add("GatherElements", flat, best, axis=1),
        nodes.reduce("ReduceSum", rows.counts, 0),
    )


def gather_sequence(nodes: Nodes, record: Record, values: int, places: Places) -> Record:
    """Stack the records that SequenceMap collects, each in a sequence, behind a neutral one."""
    empty = neutral(nodes, values, places)
    first = nodes.constant(0, np.int64)
    return Record(
        *(
            nodes.add("ConcatFromSequence", nodes.add("SequenceInsert", r, e, first), axis=0, new_axis=1)
            for e, r in zip(empty, record, strict=True)
        )
    )
