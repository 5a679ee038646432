"""Operator fusion in a ModelProto: replace groups of operators by one equivalent operator each."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mezzo.contracts.replacements import Filled, Operand, Replacement, Reshaped
from mezzo.formats.dtypes import DType
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.normal_form.use_counts import UseCounts
from mezzo.onnx.protos.entries import remove_where
from mezzo.onnx.read.origins import copy_origin, title_of
from mezzo.onnx.read.reading import OnnxReading


def write_replacements(
    reading: OnnxReading, replacements: Sequence[Replacement], blobs: Blobs
) -> onnx.ModelProto:
    """Apply replacements to the model in place and return it; functions are left unchanged. A new
    operator is at the position of the last one that it replaces.

    The reading must not be used afterwards.
    """
    writer = _Writer(reading, UseCounts(reading.handles.model, blobs))
    for replacement in replacements:
        if isinstance(writer.owner_of(replacement), onnx.GraphProto):
            writer.write(replacement)
    writer.finish()
    return reading.handles.model


class _Writer:
    def __init__(self, reading: OnnxReading, use_counts: UseCounts) -> None:
        self._graph, self._handles, self._use_counts = reading.graph, reading.handles, use_counts
        self._stated: dict[int, set[str]] = {}  # names of values with a type, by scope
        self._gone: dict[int, set[int]] = {}  # protos to remove: ids by scope, alive in handles

    def owner_of(self, replacement: Replacement) -> onnx.GraphProto | onnx.FunctionProto:
        return self._handles.owners[self._graph.nodes[replacement.nodes[-1]].scope]

    def write(self, replacement: Replacement) -> None:
        """Turn the last replaced node into the new operator, and mark the others for removal."""
        last = self._handles.proto(replacement.nodes[-1])
        node = onnx.NodeProto(op_type=replacement.op, output=last.output[:1], name=title_of(last))
        node.attribute.extend(
            helper.make_attribute(name, value) for name, value in replacement.attributes.items()
        )
        copy_origin(node, [last])
        for number in replacement.nodes:
            self._use_counts.leave(*self._handles.proto(number).input)
        node.input.extend(self._name_operand(each, node.name) for each in replacement.reads)
        scope = self._graph.nodes[replacement.nodes[-1]].scope
        self._gone.setdefault(scope, set()).update(
            id(self._handles.proto(number)) for number in replacement.nodes[:-1]
        )
        self._state(replacement, last.output[0])
        last.CopyFrom(node)

    def _name_operand(self, operand: Operand, node: str) -> str:
        """The name of an operand, which gains a use; new constants are named after the node."""
        if isinstance(operand, Filled):
            ones = np.full(operand.shape, operand.number, np.float32)
            return self._add(f"{node}.filled", numpy_helper.from_array(ones))
        if isinstance(operand, Reshaped):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(self._handles.tensors[operand.value])
            del tensor.dims[:]
            tensor.dims.extend(operand.shape)
            return self._add(self._graph.values[operand.value].name, tensor)
        name: str = self._handles.proto(operand.node).input[operand.operand]
        self._use_counts.reads[name] += 1
        return name

    def _add(self, wish: str, tensor: onnx.TensorProto) -> str:
        name: str = self._use_counts.new_initializer(wish, tensor).name
        return name

    def _state(self, replacement: Replacement, name: str) -> None:
        """Declare the result as FP32, with its shape if known, unless it is declared."""
        node, owner = self._graph.nodes[replacement.nodes[-1]], self.owner_of(replacement)
        value = node.outputs[0]
        if value is None or self._graph.values[value].dtype is not DType.FLOAT32:
            return
        if node.scope not in self._stated:
            infos = owner.value_info, owner.output
            self._stated[node.scope] = {info.name for each in infos for info in each}
        if name not in self._stated[node.scope]:
            self._stated[node.scope].add(name)
            dims = self._graph.shapes.get(value)
            info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)
            owner.value_info.append(info)

    def finish(self) -> None:
        """Remove the replaced nodes, and nodes and weights that have no users any more."""
        removed = set[int]().union(*self._gone.values())
        for scope in self._gone:
            remove_where(self._handles.owners[scope].node, lambda node: id(node) in removed)
        self._use_counts.prune()
