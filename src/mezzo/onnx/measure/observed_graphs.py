"""Insertion of observer operators (min, max, sum, sample) into a graph and its subgraphs."""

import abc
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from mezzo.onnx.measure import instruments_nodes as observers
from mezzo.onnx.measure.instruments_nodes import Nodes, Places, StatisticNames, StatisticRecord
from mezzo.onnx.measure.instruments_sizes import Size, spread_sizes
from mezzo.onnx.measure.instruments_values import BODIES, PlannedValues
from mezzo.onnx.protos.graphs import replace_nodes, subgraphs_of
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.value_types import TypedScope

FLOAT_TEXT = "tensor(float)"
LOW_TEXTS = ("tensor(float16)", "tensor(bfloat16)")
DOUBLE_TEXT = "tensor(double)"
IS_DOUBLE = "is f64, and only f32, f16 and bf16 are measured"
# Element types of a record's parts.
RECORD_TYPES = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64)
# Operators whose output has the elements of their first operand.
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


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


@dataclass(kw_only=True)
class Insertion:
    """What all graphs of one model share. `careful` values may be empty or not finite; None means
    all. `fresh` returns unused names.
    """

    planned: PlannedValues
    opset: int
    fresh: Callable[[], str]
    careful: Collection[int] | None
    result: InstrumentedModel
    visited: set[int] = field(default_factory=set)

    def is_new(self, value: int) -> bool:
        """Whether a value is seen for the first time, now."""
        is_new = value not in self.visited
        self.visited.add(value)
        return is_new

    def skip(self, reason: str) -> None:
        if reason not in self.result.skipped:
            self.result.skipped.append(reason)

    def values_of(
        self, node: onnx.NodeProto, scope: TypedScope, planned: int | None
    ) -> list[tuple[int, str]]:
        """Float outputs of a node: the planner's ids and their names in the instrumented model."""
        if node.op_type == "Constant" and node.domain in DEFAULT:
            return []
        values = []
        for position, name in enumerate(node.output):
            text = scope.types.get(name, "") if name else ""
            if text not in (FLOAT_TEXT, DOUBLE_TEXT, *LOW_TEXTS):
                continue
            value = self.planned.find(node, position, planned)
            if value is None or not self.is_new(value):
                continue
            if text == DOUBLE_TEXT:
                self.skip(f"value {self.planned.name(value)!r}: {IS_DOUBLE}")
            else:
                values.append((value, name))
        return values


class ObservedGraph(abc.ABC):
    """A graph whose values get observers. `nodes` are its own, each followed by the observers of
    its results; `measured` are the ids of measured values by name.
    """

    def __init__(
        self,
        insertion: Insertion,
        scope: TypedScope,
        planned: int | None,
        sizes: Mapping[str, Size],
        places: Places,
    ) -> None:
        """`planned` is the planner's scope of the graph, if known."""
        self._insertion, self._scope, self._planned = insertion, scope, planned
        self._sizes, self._places = sizes, places
        self.nodes = Nodes(insertion.fresh, opset=insertion.opset)
        self.measured: dict[str, int] = {}
        self._counts: dict[Size, str] = {}
        self._sample_positions: dict[Size, str] = {}

    depth = 0

    @abc.abstractmethod
    def _take(self, value: int, name: str, maker: onnx.NodeProto | None) -> None:
        """Measure a value. `maker` is the node that computes it; None for an input."""

    @abc.abstractmethod
    def _take_subgraphs(
        self, node: onnx.NodeProto, values: tuple[int, ...], record: StatisticRecord
    ) -> None:
        """Pass on the record of the values in a node's subgraphs."""

    def _observe_nodes(self, graph: onnx.GraphProto) -> None:
        for index, node in enumerate(graph.node):
            values = self._observe_subgraphs(node, index)
            self.nodes.nodes.append(node)
            if values:
                self._take_subgraphs(node, values, self._append_outputs(node))
            for value, name in self._insertion.values_of(node, self._scope, self._planned):
                if not self._is_moved(value, name, node):
                    self._take(value, name, node)

    # -- subgraphs ---------------------------------------------------------------------------------

    def _observe_subgraphs(self, node: onnx.NodeProto, index: int) -> tuple[int, ...]:
        """Instrument a node's subgraphs in place; the last outputs of each are one record of the
        returned values. None are returned if the subgraphs cannot be measured.
        """
        bodies = {a.name: a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH}
        if not bodies:
            return ()
        obstacle = self._find_obstacle(node)
        if obstacle is not None:
            self._insertion.skip(obstacle)
            return ()
        planned_scopes = (*self._insertion.planned.scopes_of(node), None, None)
        branches = []
        for name, planned in zip(BODIES[node.op_type], planned_scopes, strict=False):
            scope = self._scope.bodies[index, name]
            branches.append(ObservedSubgraph(self, bodies[name], scope, planned))
        values = tuple(value for branch in branches for value in branch.values)
        for branch in branches:
            if values:
                branch.end(branches)
            replace_nodes(branch.graph, branch.nodes.nodes)
        return values

    def _find_obstacle(self, node: onnx.NodeProto) -> str | None:
        """Why a node's subgraphs cannot be measured; None if they can."""
        opset = self._insertion.opset
        title = node.name or (node.output[0] if node.output else "")
        if node.op_type not in BODIES or node.domain not in DEFAULT:
            return (
                f"bodies of node {title!r} ({node.op_type}): mezzo knows no such control operator"
            )
        if node.op_type == "Scan" and opset < 9:
            return (
                f"body of node {title!r} (Scan): opset {opset} has another Scan; raise the opset"
                " to 9"
            )
        if self.depth and opset < observers.NESTED_SINCE and node.op_type != "If":
            return (
                f"body of node {title!r} ({node.op_type}): it is in a subgraph; raise the opset"
                " to 11"
            )
        return None

    def _append_outputs(self, node: onnx.NodeProto) -> StatisticRecord:
        """Add to a control-flow node the outputs that were added to its subgraphs."""
        fresh, body = self._insertion.fresh, next(subgraphs_of(node))
        hidden = 1 if node.op_type == "Loop" else 0
        record = StatisticRecord(*(fresh() for _ in StatisticRecord._fields))
        output_count = len(body.output) - hidden - len(record)
        names = [name or fresh() for name in node.output]
        names += [fresh() for _ in range(output_count - len(names))]
        node.output[:] = [*names, *record]
        if node.op_type == "Scan":
            for attribute in node.attribute:
                if attribute.name in ("scan_output_axes", "scan_output_directions"):
                    attribute.ints.extend([0] * len(record))
        return record

    # -- one value ---------------------------------------------------------------------------------

    def _is_moved(self, value: int, name: str, maker: onnx.NodeProto) -> bool:
        """Whether a value is a reshape or transpose of a measured one; records the pair."""
        if maker.op_type not in _MOVES or maker.domain not in DEFAULT:
            return False
        if maker.input[0] not in self.measured:
            return False
        source = self.measured[maker.input[0]]
        self.measured[name] = self._insertion.result.same[value] = source
        return True

    def _flatten(self, name: str) -> str:
        """The value in FP32, as a vector."""
        flat = name
        if self._scope.types.get(name, "") in LOW_TEXTS:
            flat = self.nodes.cast(name, TensorProto.FLOAT)
        return self.nodes.add("Reshape", flat, self.nodes.constant([-1], np.int64))

    def _count(self, size: Size, flat: str) -> str:
        """The number of elements of a vector, the same for all of one size."""
        if size not in self._counts:
            self._counts[size] = self.nodes.add("Size", flat)
        return self._counts[size]

    def _measure(
        self, value: int, flat: str, size: Size, columns: int | None = None
    ) -> StatisticNames:
        nodes, count = self.nodes, self._count(size, flat)
        if size not in self._sample_positions:
            self._sample_positions[size] = observers.add_places(nodes, self._places, count)
        positions, careful = self._sample_positions[size], self._insertion.careful
        if careful is None or value in careful:
            return observers.measure_carefully(nodes, flat, count, positions)
        return observers.measure(nodes, flat, count, positions, columns)


class ObservedSubgraph(ObservedGraph):
    """A subgraph of a control-flow node: its measured `values`, and their statistics (`parts`)."""

    def __init__(
        self, outer: ObservedGraph, graph: onnx.GraphProto, scope: TypedScope, planned: int | None
    ) -> None:
        insertion, own = outer._insertion, {port.name: port.name for port in graph.input}
        visible = {**outer._sizes, **spread_sizes(graph.node, own, outer._sizes)}
        super().__init__(insertion, scope, planned, visible, insertion.result.body_places)
        self.depth = outer.depth + 1
        self.graph = graph
        self.values: list[int] = []
        self.parts: list[StatisticNames | StatisticRecord] = []
        for port in graph.input:
            value = None if planned is None else insertion.planned.find_name(planned, port.name)
            is_float = scope.types.get(port.name) == FLOAT_TEXT
            if value is not None and is_float and insertion.is_new(value):
                self._take(value, port.name, None)
        self._observe_nodes(graph)

    def _take(self, value: int, name: str, maker: onnx.NodeProto | None) -> None:
        self.measured[name] = value
        self.values.append(value)
        self.parts.append(self._measure(value, self._flatten(name), self._sizes.get(name, name)))

    def _take_subgraphs(
        self, node: onnx.NodeProto, values: tuple[int, ...], record: StatisticRecord
    ) -> None:
        if node.op_type == "SequenceMap":
            record = observers.gather_sequence(self.nodes, record, len(values), self._places)
        if node.op_type != "If":
            record = observers.fold(self.nodes, record, len(values), self._places)
        self.values += values
        self.parts.append(record)

    def end(self, branches: Sequence["ObservedSubgraph"]) -> None:
        """Output one record of the values of all branches; those of the others did not run."""
        parts: list[StatisticNames | StatisticRecord] = []
        for branch in branches:
            if branch is self:
                parts += self.parts
            elif branch.values:
                parts.append(observers.neutral(self.nodes, len(branch.values), self._places))
        record = observers.join(self.nodes, parts)
        count = sum(len(branch.values) for branch in branches)
        length = f"{self._places.steps}_length"
        shapes: tuple[list[int | str], ...] = ([count, 2], [count, 2], [count, length], [count])
        for name, kind, shape in zip(record, RECORD_TYPES, shapes, strict=True):
            self.graph.output.append(helper.make_tensor_value_info(name, kind, shape))
