"""Puts one operator in place of several, as a runtime of its own dialect has it, into a model that was read."""

from collections.abc import Mapping, Sequence

import onnx
from onnx import helper

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Use
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.normal_form.use_counts import Ledger
from mezzo.onnx.read.origins import copy_origin, name_node, title_of
from mezzo.onnx.read.reading import Reading
from mezzo.onnx.schema.domains import import_domain
from mezzo.onnx.schema.infos import state_own
from mezzo.tables.fused_operators import Attribute, Fused

_VERSION = 1  # of dialects that have but one


def write_fused(reading: Reading, found: Sequence[Fused], blobs: Blobs) -> onnx.ModelProto:
    """The model that was read, with the operators in it; each stands where the last of its nodes stood.

    What stands in a function is left as it is. The reading is spent.
    """
    writer = _Writer(reading, Ledger(reading.handles.model, blobs))
    for fused in found:
        if isinstance(writer.owner_of(fused), onnx.GraphProto):
            writer.write(fused)
    writer.finish()
    return reading.handles.model


class _Writer:
    def __init__(self, reading: Reading, ledger: Ledger) -> None:
        self._graph, self._handles, self._ledger = reading.graph, reading.handles, ledger
        self._gone: dict[int, set[int]] = {}  # by scope: ids of protos, which handles keep alive
        self._dialects: set[str] = set()

    def owner_of(self, fused: Fused) -> onnx.GraphProto | onnx.FunctionProto:
        return self._handles.owners[self._graph.nodes[fused.nodes[-1]].scope]

    def write(self, fused: Fused) -> None:
        """Let the last of some nodes be the operator, and note the others to go."""
        last = self._proto(fused.nodes[-1])
        made = onnx.NodeProto(op_type=fused.op, domain=fused.dialect, output=last.output[:1])
        made.input.extend("" if use is None else self._name_read(use) for use in fused.reads)
        if fused.like is not None:
            made.attribute.extend(self._proto(fused.like).attribute)
        made.attribute.extend(_spell(fused.attributes))
        name_node(made, title_of(last))
        copy_origin(made, [last])
        for number in fused.nodes:
            self._ledger.leave(*self._proto(number).input)
        self._ledger.reads.update(made.input)
        scope = self._graph.nodes[fused.nodes[-1]].scope
        self._gone.setdefault(scope, set()).update(id(self._proto(number)) for number in fused.nodes[:-1])
        self._state(fused, last.output[0])
        last.CopyFrom(made)
        self._dialects.add(fused.dialect)

    def _proto(self, number: int) -> onnx.NodeProto:
        proto = self._handles.protos[number]
        assert proto is not None, "an operator has a node"
        return proto

    def _name_read(self, use: Use) -> str:
        name: str = self._proto(use.node).input[use.operand]
        return name

    def _state(self, fused: Fused, name: str) -> None:
        value = self._graph.nodes[fused.nodes[-1]].outputs[0]
        if value is not None and self._graph.values[value].dtype is DType.FLOAT32:
            state_own(self.owner_of(fused), name, self._graph.shapes.get(value))

    def finish(self) -> None:
        """Take out what went, and what is read no longer."""
        for scope, gone in self._gone.items():
            nodes = self._handles.owners[scope].node
            for position in reversed(range(len(nodes))):
                if id(nodes[position]) in gone:
                    del nodes[position]
        self._ledger.prune()
        for dialect in sorted(self._dialects):
            import_domain(self._handles.model, dialect, _VERSION)


def _spell(attributes: Mapping[str, Attribute]) -> list[onnx.AttributeProto]:
    return [
        helper.make_attribute(name, [*held] if isinstance(held, tuple) else held) for name, held in attributes.items()
    ]
