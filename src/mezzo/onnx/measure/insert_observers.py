"""Insertion of observer operators (min, max, sum, sample) into a model and its subgraphs."""

from collections import ChainMap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from mezzo.ir.graph import Graph
from mezzo.onnx.measure import instruments_nodes as made
from mezzo.onnx.measure.instruments_nodes import Nodes, Places, StatisticNames, StatisticRecord
from mezzo.onnx.measure.instruments_sizes import Size, spread_sizes
from mezzo.onnx.measure.instruments_values import BODIES, PlannedValues
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.value_types import TypedScope

_LOW_TEXTS = ("tensor(float16)", "tensor(bfloat16)")
_FLOAT = "tensor(float)"
_IS_DOUBLE = "is f64, and only f32, f16 and bf16 are measured"
# Operators whose output has the elements of their first operand.
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


class VectorSlot(NamedTuple):
    """A value of the main graph in the output vector: its whole tensor, or four statistics and a
    sample. `size` is a position in the vector of element counts.
    """

    value: int
    size: int
    is_whole: bool


class SubgraphGroup(NamedTuple):
    """The values in one control-flow node's subgraphs, and the outputs that hold their records."""

    values: tuple[int, ...]
    outputs: StatisticRecord


@dataclass(kw_only=True)
class Woven:
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
    slot_sizes: list[Size] = field(default_factory=list)
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


class _Found(NamedTuple):
    """A graph's measured values, and their statistics (parts, records) in that order."""

    values: tuple[int, ...]
    parts: tuple[StatisticNames | StatisticRecord, ...]


class Weaver:
    """Inserts observers into copies of one model; its nodes are tagged, its floats FP32."""

    def __init__(self, graph: Graph, model: onnx.ModelProto, scope: TypedScope) -> None:
        self._model = model
        self._scope = scope
        self._planned = PlannedValues(graph)
        self._prefix = free_prefix(model.graph, "range_")
        opsets = {entry.domain: entry.version for entry in model.opset_import}
        self._opset = opsets.get("", opsets.get("ai.onnx", 1))

    def weave(self, careful: Collection[int] | None, known: ValueFacts) -> Woven:
        """Instrument a copy. `careful` values may be empty or not finite; None means all."""
        return _Weaving(self._planned, self._prefix, self._opset, careful).weave(
            self._model, self._scope, known
        )


class _Weaving:
    def __init__(
        self, planned: PlannedValues, prefix: str, opset: int, careful: Collection[int] | None
    ) -> None:
        self._planned, self._prefix, self._opset = planned, prefix, opset
        self._careful = careful
        self._count = 0
        places = [f"{prefix}{name}" for name in ("shares", "steps", "body_shares", "body_steps")]
        self._woven = Woven(
            model=onnx.ModelProto(), places=Places(*places[:2]), body_places=Places(*places[2:])
        )
        self._seen: set[int] = set()

    def weave(self, source: onnx.ModelProto, scope: TypedScope, facts: ValueFacts) -> Woven:
        model = self._woven.model
        model.CopyFrom(source)
        graph = model.graph
        del graph.output[:]
        nodes, parts = self._main(graph, scope, facts)
        for places in (self._woven.places, self._woven.body_places):
            graph.input.append(
                helper.make_tensor_value_info(
                    places.shares, TensorProto.DOUBLE, [f"{places.shares}_n"]
                )
            )
            graph.input.append(
                helper.make_tensor_value_info(
                    places.steps, TensorProto.DOUBLE, [f"{places.shares}_n"]
                )
            )
        if parts:
            # The first output: a runtime that schedules backwards from it computes the statistics
            # of each value right after the value, and frees the value before it computes the next.
            self._woven.vector = nodes.add("Concat", *parts, axis=0)
            graph.output.insert(
                0, helper.make_tensor_value_info(self._woven.vector, TensorProto.FLOAT, None)
            )
        del graph.node[:]
        graph.node.extend(nodes.made)
        return self._woven

    # -- the main graph ----------------------------------------------------------------------------

    def _main(
        self, graph: onnx.GraphProto, scope: TypedScope, facts: ValueFacts
    ) -> tuple[Nodes, list[str]]:
        nodes = self._nodes()
        all_sizes = spread_sizes(graph.node, facts.sizes, {})
        counts: dict[Size, tuple[str, int]] = {}  # name of the count, and its position in `sizes`
        places: dict[Size, str] = {}
        parts: list[str] = []
        size_names: list[str] = []

        measured: dict[str, int] = {}  # by name

        def take(value: int, name: str, maker: onnx.NodeProto | None = None) -> None:
            if self._is_moved(value, name, maker, measured):
                return
            size = all_sizes.get(name, name)
            if not facts.is_small(size) and self._is_rectified(value, maker, measured):
                return
            measured[name] = value
            flat = self._flatten(nodes, name, scope.types.get(name, ""))
            if size not in counts:
                count = nodes.add("Size", flat)
                size_names.append(nodes.lift(count, 0))
                counts[size] = (count, len(size_names) - 1)
            count, position = counts[size]
            is_whole = facts.is_small(size)
            self._woven.slots.append(VectorSlot(value, position, is_whole))
            self._woven.slot_sizes.append(size)
            if is_whole:
                parts.append(flat)
                return
            if size not in places:
                places[size] = made.add_places(nodes, self._woven.places, count)
            part = self._measure(nodes, value, flat, count, places[size], facts.columns.get(name))
            # One Concat per value, so that a runtime computes its statistics together.
            parts.append(
                nodes.add(
                    "Concat",
                    part.lowest,
                    part.highest,
                    part.total,
                    part.infinite,
                    part.sample,
                    axis=0,
                )
            )

        for port in graph.input:
            self._take_input(port, scope, take)
        for index, node in enumerate(graph.node):
            subgraphs = self._bodies(node, index, scope, all_sizes, 0, depth=0)
            nodes.made.append(node)
            if subgraphs is not None and subgraphs.values:
                self._hand_out(node, subgraphs, graph)
            for value, name in self._values_of(node, scope, 0):
                take(value, name, node)
        if size_names:
            self._woven.sizes = nodes.add("Concat", *size_names, axis=0)
            graph.output.append(
                helper.make_tensor_value_info(self._woven.sizes, TensorProto.INT64, None)
            )
        return nodes, parts

    def _take_input(
        self, port: onnx.ValueInfoProto, scope: TypedScope, take: Callable[[int, str], None]
    ) -> None:
        value = self._planned.find_input(port.name)
        if value is None:
            return
        text = scope.types.get(port.name, "")
        if text in (_FLOAT, *_LOW_TEXTS):
            self._seen.add(value)
            take(value, port.name)
        elif text == "tensor(double)":
            self._skip(f"input {port.name!r}: {_IS_DOUBLE}")
        elif "float" in text:
            self._skip(f"input {port.name!r}: is no plain tensor")

    def _hand_out(self, node: onnx.NodeProto, subgraphs: _Found, graph: onnx.GraphProto) -> None:
        """Add the records of a control-flow node to the outputs of the model."""
        outputs = self._append_outputs(node, subgraphs)
        kinds = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64)
        for name, kind in zip(outputs, kinds, strict=True):
            if node.op_type == "SequenceMap":
                graph.output.append(helper.make_tensor_sequence_value_info(name, kind, None))
            else:
                graph.output.append(helper.make_tensor_value_info(name, kind, None))
        self._woven.groups.append(SubgraphGroup(subgraphs.values, outputs))

    # -- bodies ------------------------------------------------------------------------------------

    def _bodies(
        self,
        node: onnx.NodeProto,
        index: int,
        scope: TypedScope,
        sizes: Mapping[str, Size],
        planned: int | None,
        depth: int,
    ) -> _Found | None:
        """Instrument a node's subgraphs; the last outputs of each are one record of its values.

        None for a node without subgraphs, or with subgraphs that cannot be measured.
        """
        attributes = [a for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
        if not attributes:
            return None
        title = node.name or (node.output[0] if node.output else "")
        names = BODIES.get(node.op_type) if node.domain in DEFAULT else None
        if names is None:
            self._skip(
                f"bodies of node {title!r} ({node.op_type}): mezzo knows no such control operator"
            )
            return None
        if node.op_type == "Scan" and self._opset < 9:
            self._skip(
                f"body of node {title!r} (Scan): opset {self._opset} has another Scan; raise the"
                " opset to 9"
            )
            return None
        if depth and self._opset < made.NESTED_SINCE and node.op_type != "If":
            self._skip(
                f"body of node {title!r} ({node.op_type}): it stands in a body; raise the opset"
                " to 11"
            )
            return None
        inner = self._planned.scopes_of(node)
        by_name = {a.name: a for a in attributes}
        subgraphs, makers, bodies = [], [], []
        for position, name in enumerate(names):
            body = by_name[name].g
            planned_inner = inner[position] if position < len(inner) else None
            nodes = self._nodes()
            subgraphs.append(
                self._body(nodes, body, scope.bodies[index, name], sizes, planned_inner, depth + 1)
            )
            makers.append(nodes)
            bodies.append(body)
        values = tuple(value for subgraph in subgraphs for value in subgraph.values)
        for position, (body, nodes, subgraph) in enumerate(
            zip(bodies, makers, subgraphs, strict=True)
        ):
            if values:
                parts: list[StatisticNames | StatisticRecord] = []
                for branch_position, branch in enumerate(subgraphs):
                    if branch_position == position:
                        parts += subgraph.parts
                    elif branch.values:
                        parts.append(
                            made.neutral(nodes, len(branch.values), self._woven.body_places)
                        )
                self._end_body(body, made.join(nodes, parts), len(values))
            del body.node[:]
            body.node.extend(nodes.made)
        return _Found(values, ())

    def _body(
        self,
        nodes: Nodes,
        body: onnx.GraphProto,
        scope: TypedScope,
        outer: Mapping[str, Size],
        planned: int | None,
        depth: int,
    ) -> _Found:
        sizes = spread_sizes(body.node, {port.name: port.name for port in body.input}, outer)
        visible: Mapping[str, Size] = ChainMap(sizes, dict(outer))
        counts: dict[Size, tuple[str, str]] = {}
        values: list[int] = []
        parts: list[StatisticNames | StatisticRecord] = []

        measured: dict[str, int] = {}

        def take(value: int, name: str, maker: onnx.NodeProto | None = None) -> None:
            if self._is_moved(value, name, maker, measured):
                return
            measured[name] = value
            flat = self._flatten(nodes, name, scope.types.get(name, ""))
            size = visible.get(name, name)
            if size not in counts:
                count = nodes.add("Size", flat)
                counts[size] = (count, made.add_places(nodes, self._woven.body_places, count))
            values.append(value)
            parts.append(self._measure(nodes, value, flat, *counts[size]))

        for port in body.input:
            value = None if planned is None else self._planned.find_name(planned, port.name)
            if value is not None and scope.types.get(port.name) == _FLOAT and self._is_new(value):
                take(value, port.name)
        for index, node in enumerate(body.node):
            subgraphs = self._bodies(node, index, scope, visible, planned, depth)
            nodes.made.append(node)
            if subgraphs is not None and subgraphs.values:
                record = self._append_outputs(node, subgraphs)
                if node.op_type == "SequenceMap":
                    record = made.gather_sequence(
                        nodes, record, len(subgraphs.values), self._woven.body_places
                    )
                if node.op_type != "If":
                    record = made.fold(
                        nodes, record, len(subgraphs.values), self._woven.body_places
                    )
                values += subgraphs.values
                parts.append(record)
            for value, name in self._values_of(node, scope, planned):
                take(value, name, node)
        return _Found(tuple(values), tuple(parts))

    def _is_moved(
        self, value: int, name: str, maker: onnx.NodeProto | None, measured: dict[str, int]
    ) -> bool:
        """Whether a value is a reshape or transpose of a measured one; records the pair."""
        if maker is None or maker.op_type not in _MOVES or maker.domain not in DEFAULT:
            return False
        if maker.input[0] not in measured:
            return False
        measured[name] = self._woven.same[value] = measured[maker.input[0]]
        return True

    def _is_rectified(
        self, value: int, maker: onnx.NodeProto | None, measured: Mapping[str, int]
    ) -> bool:
        """Whether a value is the Relu of a measured one that has been finite; records the pair."""
        if (
            maker is None
            or maker.op_type != "Relu"
            or maker.domain not in DEFAULT
            or self._careful is None
        ):
            return False
        source = measured.get(maker.input[0])
        if source is None or source in self._careful or source in self._woven.rectified:
            return False
        self._woven.rectified[value] = source
        return True

    def _measure(
        self,
        nodes: Nodes,
        value: int,
        flat: str,
        size: str,
        places: str,
        columns: int | None = None,
    ) -> StatisticNames:
        if self._careful is None or value in self._careful:
            return made.measure_carefully(nodes, flat, size, places)
        return made.measure(nodes, flat, size, places, columns)

    def _append_outputs(self, node: onnx.NodeProto, subgraphs: _Found) -> StatisticRecord:
        """Add to a control-flow node the outputs that were added to its subgraphs."""
        body = next(a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
        hidden = 1 if node.op_type == "Loop" else 0
        record = StatisticRecord(*(self._fresh() for _ in StatisticRecord._fields))
        output_count = len(body.output) - hidden - len(record)
        names = [name or self._fresh() for name in node.output]
        names += [self._fresh() for _ in range(output_count - len(names))]
        node.output[:] = [*names, *record]
        if node.op_type == "Scan":
            for attribute in node.attribute:
                if attribute.name in ("scan_output_axes", "scan_output_directions"):
                    attribute.ints.extend([0] * len(record))
        return record

    def _end_body(self, body: onnx.GraphProto, record: StatisticRecord, count: int) -> None:
        kinds = (TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.FLOAT, TensorProto.INT64)
        shapes: tuple[list[int | str], ...] = (
            [count, 2],
            [count, 2],
            [count, f"{self._prefix}length"],
            [count],
        )
        for name, kind, shape in zip(record, kinds, shapes, strict=True):
            body.output.append(helper.make_tensor_value_info(name, kind, shape))

    # -- values ------------------------------------------------------------------------------------

    def _values_of(
        self, node: onnx.NodeProto, scope: TypedScope, planned: int | None
    ) -> list[tuple[int, str]]:
        """Float outputs of a node: the planner's ids and their names in the instrumented model."""
        if node.op_type == "Constant" and node.domain in DEFAULT:
            return []
        values = []
        for position, name in enumerate(node.output):
            text = scope.types.get(name, "") if name else ""
            if text not in (_FLOAT, *_LOW_TEXTS):
                if text == "tensor(double)":
                    self._skip_double(node, position, planned)
                continue
            value = self._planned.find(node, position, planned)
            if value is not None and self._is_new(value):
                values.append((value, name))
        return values

    def _skip_double(self, node: onnx.NodeProto, position: int, planned: int | None) -> None:
        value = self._planned.find(node, position, planned)
        if value is not None and self._is_new(value):
            self._skip(f"value {self._planned.name(value)!r}: {_IS_DOUBLE}")

    def _is_new(self, value: int) -> bool:
        is_new = value not in self._seen
        self._seen.add(value)
        return is_new

    def _flatten(self, nodes: Nodes, name: str, text: str) -> str:
        if text in _LOW_TEXTS:
            name = nodes.add("Cast", name, to=TensorProto.FLOAT)
        return nodes.add("Reshape", name, nodes.constant([-1], np.int64))

    def _nodes(self) -> Nodes:
        return Nodes(self._fresh() + "_", self._opset)

    def _fresh(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _skip(self, reason: str) -> None:
        if reason not in self._woven.skipped:
            self._woven.skipped.append(reason)
