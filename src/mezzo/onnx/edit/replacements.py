"""Puts one operator in place of several, into a model that was read."""

from collections.abc import Sequence

import onnx

from mezzo.contracts.replacements import Replacement
from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Use
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.normal_form.use_counts import UseCounts
from mezzo.onnx.read.origins import copy_origin, name_node, title_of
from mezzo.onnx.read.reading import OnnxReading
from mezzo.onnx.schema.infos import state_own


def write_replacements(
    reading: OnnxReading, replacements: Sequence[Replacement], blobs: Blobs
) -> onnx.ModelProto:
    """The model that was read, with the operators in it; each stands where the last of its nodes
    stood.

    What stands in a function is left as it is. The reading is spent.
    """
    writer = _Writer(reading, UseCounts(reading.handles.model, blobs))
    for replacement in replacements:
        if isinstance(writer.owner_of(replacement), onnx.GraphProto):
            writer.write(replacement)
    writer.finish()
    return reading.handles.model


class _Writer:
    def __init__(self, reading: OnnxReading, use_counts: UseCounts) -> None:
        self._graph, self._handles, self._ledger = reading.graph, reading.handles, use_counts
        self._gone: dict[int, set[int]] = {}  # by scope: ids of protos, which handles keep alive

    def owner_of(self, replacement: Replacement) -> onnx.GraphProto | onnx.FunctionProto:
        return self._handles.owners[self._graph.nodes[replacement.nodes[-1]].scope]

    def write(self, replacement: Replacement) -> None:
        """Let the last of some nodes be the operator, and note the others to go."""
        last = self._proto(replacement.nodes[-1])
        node = onnx.NodeProto(op_type=replacement.op, output=last.output[:1])
        node.input.extend(map(self._name_read, replacement.reads))
        name_node(node, title_of(last))
        copy_origin(node, [last])
        for number in replacement.nodes:
            self._ledger.leave(*self._proto(number).input)
        self._ledger.reads.update(node.input)
        scope = self._graph.nodes[replacement.nodes[-1]].scope
        self._gone.setdefault(scope, set()).update(
            id(self._proto(number)) for number in replacement.nodes[:-1]
        )
        self._state(replacement, last.output[0])
        last.CopyFrom(node)

    def _proto(self, number: int) -> onnx.NodeProto:
        proto = self._handles.protos[number]
        assert proto is not None, "an operator has a node"
        return proto

    def _name_read(self, use: Use) -> str:
        name: str = self._proto(use.node).input[use.operand]
        return name

    def _state(self, replacement: Replacement, name: str) -> None:
        value = self._graph.nodes[replacement.nodes[-1]].outputs[0]
        if value is not None and self._graph.values[value].dtype is DType.FLOAT32:
            state_own(self.owner_of(replacement), name, self._graph.shapes.get(value))

    def finish(self) -> None:
        """Take out what went, and what is read no longer."""
        for scope, gone in self._gone.items():
            nodes = self._handles.owners[scope].node
            for position in reversed(range(len(nodes))):
                if id(nodes[position]) in gone:
                    del nodes[position]
        self._ledger.prune()
