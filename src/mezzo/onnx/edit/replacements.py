"""Operator fusion in a ModelProto: replace groups of operators by one equivalent operator each."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mezzo.contracts.replacements import (
    Computed,
    Filled,
    Integers,
    Operand,
    Replacement,
    Reshaped,
)
from mezzo.formats.dtypes import DType
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.normal_form.use_counts import UseCounts
from mezzo.onnx.protos.entries import remove_where
from mezzo.onnx.protos.names import fresh_name
from mezzo.onnx.read.origins import copy_origin, title_of
from mezzo.onnx.read.reading import OnnxReading


def write_replacements(
    reading: OnnxReading, replacements: Sequence[Replacement], blobs: Blobs
) -> onnx.ModelProto:
    """Apply replacements to the model in place and return it; functions are left unchanged. A new
    operator is at the position of the last one that it replaces.

    The reading must not be used afterwards.
    """
    model = reading.handles.model
    writer = _Writer(reading, UseCounts(model, blobs, model))
    for replacement in replacements:
        if isinstance(writer.owner_of(replacement), onnx.GraphProto):
            writer.write(replacement)
    writer.finish()
    return model


class _Writer:
    def __init__(self, reading: OnnxReading, use_counts: UseCounts) -> None:
        self._graph, self._handles, self._use_counts = reading.graph, reading.handles, use_counts
        self._stated: dict[int, set[str]] = {}  # names of values with a type, by scope
        self._gone: dict[int, set[int]] = {}  # protos to remove: ids by scope, alive in handles
        self._integers: dict[tuple[int, ...], str] = {}  # names of new constants
        # New nodes by scope, in order; each is computed once, and names its result.
        self._computed: dict[int, dict[tuple[object, ...], onnx.NodeProto]] = {}

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
        scope = self._graph.nodes[replacement.nodes[-1]].scope
        for number in replacement.nodes:
            self._use_counts.leave(*self._handles.proto(number).input)
        node.input.extend(self._name_operand(each, node.name, scope) for each in replacement.reads)
        self._gone.setdefault(scope, set()).update(
            id(self._handles.proto(number)) for number in replacement.nodes[:-1]
        )
        self._state(replacement, last.output[0])
        last.CopyFrom(node)

    def _name_operand(self, operand: Operand, node: str, scope: int) -> str:
        """The name of an operand, which gains a use; what is new is named after the node."""
        if isinstance(operand, Filled):
            ones = np.full(operand.shape, operand.number, np.float32)
            return self._add(f"{node}.filled", numpy_helper.from_array(ones))
        if isinstance(operand, Reshaped):
            tensor = onnx.TensorProto()
            tensor.CopyFrom(self._handles.tensors[operand.value])
            del tensor.dims[:]
            tensor.dims.extend(operand.shape)
            return self._add(self._graph.values[operand.value].name, tensor)
        if isinstance(operand, Integers):
            return self._add_integers(operand.numbers, node)
        if isinstance(operand, Computed):
            return self._compute(operand, node, scope)
        name: str = self._handles.proto(operand.node).input[operand.operand]
        self._use_counts.reads[name] += 1
        return name

    def _compute(self, operand: Computed, node: str, scope: int) -> str:
        """The name of a new operator's result."""
        names = [self._name_operand(read, node, scope) for read in operand.reads]
        nodes = self._computed.setdefault(scope, {})
        key = (operand.op, *names, *operand.attributes.items())
        if key in nodes:
            for name in names:
                self._use_counts.reads[name] -= 1
        else:
            name = fresh_name(self._use_counts.taken, f"{node}.{operand.op}")
            nodes[key] = helper.make_node(operand.op, names, [name], name)
            nodes[key].attribute.extend(
                helper.make_attribute(*pair) for pair in operand.attributes.items()
            )
        result: str = nodes[key].output[0]
        self._use_counts.reads[result] += 1
        return result

    def _add_integers(self, numbers: tuple[int, ...], node: str) -> str:
        if numbers in self._integers:
            self._use_counts.reads[self._integers[numbers]] += 1
        else:
            tensor = numpy_helper.from_array(np.array(numbers, np.int64))
            self._integers[numbers] = self._add(f"{node}.sizes", tensor)
        return self._integers[numbers]

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
        for scope, nodes in self._computed.items():
            _insert(self._handles.owners[scope], {node.output[0]: node for node in nodes.values()})
        self._use_counts.prune()


def _insert(graph: onnx.GraphProto | onnx.FunctionProto, new: dict[str, onnx.NodeProto]) -> None:
    """Insert nodes, each before the first that reads its result."""
    first: dict[str, int] = {}
    for position, node in enumerate(graph.node):
        for name in node.input:
            if name in new:
                first.setdefault(name, position)
    latest = list(new)[::-1]
    for name in latest:  # what one of them reads comes before it
        for read in new[name].input:
            if read in new:
                first[read] = min(first.get(read, first[name]), first[name])
    # Of those before one node, the latest comes first, and is pushed behind by the others.
    for name in sorted(latest, key=lambda name: -first[name]):
        graph.node.insert(first[name], new[name])
