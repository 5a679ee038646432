"""Power-of-two scales of a model's values: constants and attributes are scaled, and operands are
multiplied where a value has another exponent than its reader takes. Decides nothing.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from mezzo.contracts.plans import Rescaling
from mezzo.ir.nodes import Kind, Use
from mezzo.onnx.edit.placement import Placement
from mezzo.onnx.files.factors import Factors
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.protos.attributes import find, own_tensor
from mezzo.onnx.protos.graphs import nodes_of, subgraphs_of
from mezzo.onnx.protos.metadata import EXPONENT, exponent_of, set_number
from mezzo.onnx.protos.names import UsedNames
from mezzo.onnx.read.handles import OperandPlace, ResultPlace
from mezzo.onnx.read.reading import OnnxReading

Places = Mapping[Use, int]


def rescale(reading: OnnxReading, changes: Rescaling, source: ModelSource) -> ModelSource:
    """The model of a reading, which is spent, with power-of-two scales. Nodes are marked with the
    exponents of their results, for comparisons with other models.
    """
    writer = _Rescaler(reading, source)
    for (node, name), exponent in changes.attributes.items():
        writer.scale_attribute(node, name, exponent)
    for value, exponent in changes.exponents.items():
        writer.mark(value, exponent)
    by_value: dict[int, dict[Use, int]] = {}
    for use, exponent in changes.operands.items():
        read = reading.graph.nodes[use.node].inputs[use.operand]
        assert read is not None, "an operand that is scaled is there"
        by_value.setdefault(read, {})[use] = exponent
    for value, places in by_value.items():
        if reading.graph.producer(value).kind is Kind.SOURCE and value in reading.handles.tensors:
            writer.scale_constant(value, places)
        else:
            writer.multiply(value, places)
    writer.placement.place(set())
    if writer.is_unsorted:
        writer.placement.sort()
    return replace(source, model=reading.handles.model)


class _Rescaler:
    def __init__(self, reading: OnnxReading, source: ModelSource) -> None:
        self._graph, self._handles, self._blobs = reading.graph, reading.handles, source.blobs
        self._names = UsedNames(self._graph, self._handles)
        self._factors: dict[int, str] = {}  # names of constants that are powers of two
        self._renamed: dict[int, str] = {}  # values whose names graph outputs keep
        self.placement = Placement(self._graph, self._handles)
        if len(self._graph.scopes) > 1:
            _ = self.placement.control_protos  # cache it before outputs are renamed
        self.is_unsorted = False

    def scale_attribute(self, node: int, name: str, exponent: int) -> None:
        proto, origin = self._handles.proto(node), self._graph.nodes[node]
        number = origin.attributes.get(name, origin.signature.attributes.get(name))
        assert isinstance(number, float), "an attribute that is scaled is a number"
        attribute = find(proto, name)
        if attribute is None:
            attribute = proto.attribute.add(name=name, type=onnx.AttributeProto.FLOAT)
        attribute.f = float(np.ldexp(np.float32(number), exponent))

    def mark(self, value: int, exponent: int) -> None:
        """Write a value's exponent into its node's metadata, added to an earlier one's."""
        producer = self._graph.producer(value)
        proto = self._handles.protos[producer.id]
        if proto is not None and producer.kind is Kind.OP:
            index = producer.outputs.index(value)
            set_number(proto, EXPONENT.format(index), exponent_of(proto, index) + exponent)

    def scale_constant(self, value: int, places: Places) -> None:
        """Scale a constant for its readers: in place for one exponent if all of them change, a copy
        for each other one.
        """
        tensor = self._handles.tensors[value]
        exponents = sorted(set(places.values()))
        is_left = places.keys() != {*self._graph.uses[value]}
        for exponent in exponents if is_left else exponents[1:]:
            copy = self._handles.model.graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = self._fresh(value)
            self._scale(copy, exponent)
            for use in places:
                if places[use] == exponent:
                    self._write(use, copy.name)
        if not is_left:
            proto = self._handles.protos[self._graph.values[value].producer]
            self._scale(tensor if proto is None else own_tensor(proto, tensor), exponents[0])

    def _scale(self, tensor: onnx.TensorProto, exponent: int) -> None:
        self._blobs.scale(tensor, Factors(np.ldexp(np.ones(1, np.float32), exponent), 1))

    def multiply(self, value: int, places: Places) -> None:
        """Multiply a value once for each exponent that its readers take."""
        for exponent in sorted(set(places.values())):
            readers = [use for use in places if places[use] == exponent]
            outputs = [use for use in readers if self._graph.nodes[use.node].kind is Kind.OUTPUT]
            result = self._fresh(value) if len(outputs) < len(readers) else ""
            if result:
                self._add(
                    value,
                    self._renamed.get(value, self._graph.values[value].name),
                    result,
                    exponent,
                )
            for use in readers:
                if use not in outputs:
                    self._write(use, result)
            for use in outputs:
                self._multiply_output(value, use, exponent)

    def _multiply_output(self, value: int, use: Use, exponent: int) -> None:
        """Give a graph output's name to the product, and its former producer another one."""
        place = self._handles.places[use]
        assert isinstance(place, ResultPlace), "a graph output is in the graph's list"
        graph = self._handles.model.graph
        public, inner = graph.output[place.position].name, self._fresh(value)
        if public == self._graph.values[value].name:
            self._renamed[value] = inner
        else:  # a Cast without effect makes it, after the producer
            self.is_unsorted = True
        for node in nodes_of(self._handles.model):
            for names in (node.input, node.output):
                for at, name in enumerate(names):
                    if name == public:
                        names[at] = inner
            for subgraph in subgraphs_of(node):
                for port in subgraph.output:
                    if port.name == public:
                        port.name = inner
        for queued in self.placement.queued(self._graph.values[value].scope):
            queued.input[:] = [inner if name == public else name for name in queued.input]
        self._add(value, inner, public, exponent)

    def _add(self, value: int, operand: str, result: str, exponent: int) -> None:
        origin = self._graph.values[value]
        name = self._names.fresh_node(self._handles.containers[origin.scope], f"{result}_mul")
        node = helper.make_node("Mul", [operand, self._factor(exponent)], [result], name=name)
        self.placement.add(origin.scope, self.placement.behind(value), node)

    def _factor(self, exponent: int) -> str:
        if exponent not in self._factors:
            container = self._handles.containers[0]
            name = self._names.fresh(container, f"two_to_the_{exponent}".replace("-", "minus_"))
            number = np.ldexp(np.ones((), np.float32), exponent)
            self._handles.model.graph.initializer.append(numpy_helper.from_array(number, name))
            self._factors[exponent] = name
        return self._factors[exponent]

    def _fresh(self, value: int) -> str:
        origin = self._graph.values[value]
        return self._names.fresh(self._handles.containers[origin.scope], f"{origin.name}_scaled")

    def _write(self, use: Use, name: str) -> None:
        place = self._handles.places.get(use)
        if place is None:
            self._handles.proto(use.node).input[use.operand] = name
        else:
            assert isinstance(place, OperandPlace), "outputs get another producer"
            place.proto.input[place.position] = name
