"""Records of an instrumented model: its outputs, and the values that they describe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx

from mezzo.onnx.measure.instruments_nodes import Places, StatisticRecord
from mezzo.onnx.measure.instruments_sizes import Size


class VectorSlot(NamedTuple):
    """A value of the main graph in the output vector: its whole tensor, or four statistics and a
    sample. `position` is that of its size in the vector of element counts.
    """

    value: int
    size: Size
    position: int
    is_whole: bool


class SubgraphGroup(NamedTuple):
    """The values in one control-flow node's subgraphs, and the outputs that hold their records."""

    values: tuple[int, ...]
    outputs: StatisticRecord


@dataclass(kw_only=True)
class InstrumentedModel:
    """An instrumented model. `vector` and `sizes` name its first outputs; None if empty.

    Two kinds of values need no observer: `same` maps a value to a measured one with equal elements,
    `rectified` maps the output of a Relu to its measured input.
    """

    model: onnx.ModelProto
    places: Places
    body_places: Places
    vector: str | None = None
    sizes: str | None = None
    slots: list[VectorSlot] = field(default_factory=list)
    groups: list[SubgraphGroup] = field(default_factory=list)
    same: dict[int, int] = field(default_factory=dict)
    rectified: dict[int, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)


class ValueFacts(NamedTuple):
    """Static facts about values of the main graph: their sizes, which sizes are small enough to be
    output whole (cheaper than observers), and the row lengths of large values.
    """

    sizes: Mapping[str, Size]
    is_small: Callable[[Size], bool]
    columns: Mapping[str, int]
