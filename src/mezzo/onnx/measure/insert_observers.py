"""Insertion of observer operators (min, max, sum, sample) into a model and its subgraphs."""

from collections.abc import Collection
from copy import deepcopy

import onnx
from onnx import TensorProto, helper

from mezzo.ir.graph import Graph
from mezzo.onnx.measure.instruments_nodes import Places, StatisticRecord
from mezzo.onnx.measure.instruments_sizes import Size, spread_sizes
from mezzo.onnx.measure.instruments_values import PlannedValues
from mezzo.onnx.measure.observed_graphs import (
    DOUBLE_TEXT,
    FLOAT_TEXT,
    IS_DOUBLE,
    LOW_TEXTS,
    RECORD_TYPES,
    Insertion,
    InstrumentedModel,
    ObservedGraph,
    SubgraphGroup,
    ValueFacts,
    VectorSlot,
)
from mezzo.onnx.protos.graphs import replace_nodes
from mezzo.onnx.protos.names import free_prefix, numbered
from mezzo.onnx.schema.domains import DEFAULT, imported_opsets
from mezzo.onnx.schema.value_types import TypedScope


class ObserverInserter:
    """Inserts observers into copies of one model; its nodes are tagged, its floats FP32."""

    def __init__(self, graph: Graph, model: onnx.ModelProto, scope: TypedScope) -> None:
        self._model = model
        self._scope = scope
        self._planned = PlannedValues(graph)
        self._prefix = free_prefix(model.graph, "range_")
        self._opset = imported_opsets(model).get("", 1)

    def insert(self, careful: Collection[int] | None, facts: ValueFacts) -> InstrumentedModel:
        """Instrument a copy. `careful` values may be empty or not finite; None means all."""
        prefix = self._prefix
        result = InstrumentedModel(
            model=deepcopy(self._model),
            places=Places(f"{prefix}shares", f"{prefix}steps"),
            body_places=Places(f"{prefix}body_shares", f"{prefix}body_steps"),
        )
        insertion = Insertion(
            planned=self._planned,
            opset=self._opset,
            fresh=numbered(prefix),
            careful=careful,
            result=result,
        )
        del result.model.graph.output[:]
        _MainGraph(insertion, self._scope, facts, result.model.graph).observe()
        return result


class _MainGraph(ObservedGraph):
    def __init__(
        self, insertion: Insertion, scope: TypedScope, facts: ValueFacts, graph: onnx.GraphProto
    ) -> None:
        sizes = spread_sizes(graph.node, facts.sizes, {})
        super().__init__(insertion, scope, 0, sizes, insertion.result.places)
        self._facts, self._graph, self._result = facts, graph, insertion.result
        self._positions: dict[Size, int] = {}  # of sizes in the vector of element counts
        self._size_names: list[str] = []
        self._parts: list[str] = []

    def observe(self) -> None:
        """Instrument the graph in place."""
        graph, result = self._graph, self._result
        for port in graph.input:
            self._take_input(port)
        self._observe_nodes(graph)
        if self._size_names:
            result.sizes = self.nodes.add("Concat", *self._size_names, axis=0)
            graph.output.append(
                helper.make_tensor_value_info(result.sizes, TensorProto.INT64, None)
            )
        for places in (result.places, result.body_places):
            length = f"{places.shares}_n"
            for name in places:
                graph.input.append(
                    helper.make_tensor_value_info(name, TensorProto.DOUBLE, [length])
                )
        if self._parts:
            # The first output: a runtime that schedules backwards from it computes the statistics
            # of each value right after the value, and frees the value before it computes the next.
            result.vector = self.nodes.add("Concat", *self._parts, axis=0)
            graph.output.insert(
                0, helper.make_tensor_value_info(result.vector, TensorProto.FLOAT, None)
            )
        replace_nodes(graph, self.nodes.nodes)

    def _take_input(self, port: onnx.ValueInfoProto) -> None:
        value = self._insertion.planned.find_input(port.name)
        if value is None:
            return
        text = self._scope.types.get(port.name, "")
        if text in (FLOAT_TEXT, *LOW_TEXTS):
            self._insertion.visited.add(value)
            self._take(value, port.name, None)
        elif text == DOUBLE_TEXT:
            self._insertion.skip(f"input {port.name!r}: {IS_DOUBLE}")
        elif "float" in text:
            self._insertion.skip(f"input {port.name!r}: is no plain tensor")

    def _take(self, value: int, name: str, maker: onnx.NodeProto | None) -> None:
        size = self._sizes.get(name, name)
        is_whole = self._facts.is_small(size)
        if not is_whole and maker is not None and self._is_rectified(value, maker):
            return
        self.measured[name] = value
        flat = self._flatten(name)
        self._result.slots.append(VectorSlot(value, size, self._position(size, flat), is_whole))
        if is_whole:
            self._parts.append(flat)
            return
        part = self._measure(value, flat, size, self._facts.columns.get(name))
        # One Concat per value, so that a runtime computes its statistics together.
        header = (part.lowest, part.highest, part.total, part.infinite)
        self._parts.append(self.nodes.add("Concat", *header, part.sample, axis=0))

    def _position(self, size: Size, flat: str) -> int:
        """Position of a size in the vector of element counts."""
        if size not in self._positions:
            self._positions[size] = len(self._positions)
            self._size_names.append(self.nodes.lift(self._count(size, flat), 0))
        return self._positions[size]

    def _is_rectified(self, value: int, maker: onnx.NodeProto) -> bool:
        """Whether a value is the Relu of a measured one that has been finite; records the pair."""
        careful, rectified = self._insertion.careful, self._result.rectified
        if maker.op_type != "Relu" or maker.domain not in DEFAULT or careful is None:
            return False
        source = self.measured.get(maker.input[0])
        if source is None or source in careful or source in rectified:
            return False
        rectified[value] = source
        return True

    def _take_subgraphs(
        self, node: onnx.NodeProto, values: tuple[int, ...], record: StatisticRecord
    ) -> None:
        """Add the records of a control-flow node to the outputs of the model."""
        declare = (
            helper.make_tensor_sequence_value_info
            if node.op_type == "SequenceMap"
            else helper.make_tensor_value_info
        )
        for name, kind in zip(record, RECORD_TYPES, strict=True):
            self._graph.output.append(declare(name, kind, None))
        self._result.groups.append(SubgraphGroup(values, record))
