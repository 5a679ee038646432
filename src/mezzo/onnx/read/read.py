"""Reading of a ModelProto as the planner's Graph. The only parser of ONNX models."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import FLOATING, HIGH, DType
from mezzo.ir.graph import ConstantFacts, Graph
from mezzo.ir.nodes import Kind, Signature
from mezzo.onnx.protos.attributes import dtype_of
from mezzo.onnx.protos.expansion import MOST_DEPTH
from mezzo.onnx.read import control, interface, loops, sources
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import Env, FactsOf, Frame
from mezzo.onnx.read.handles import Container, Handles
from mezzo.onnx.read.lookups import ConstantIntegers, Modules, Shapes
from mezzo.onnx.read.source_lines import lines_of
from mezzo.onnx.schema.domains import imported_opsets
from mezzo.onnx.schema.infos import stated_infos
from mezzo.onnx.schema.schema import (
    can_convert,
    custom_signature,
    frozen,
    home_of_operator,
    solve,
    stated_type,
)
from mezzo.onnx.schema.shapes import KnownShapes
from mezzo.onnx.schema.special import SPECIAL, TYPED_BY_ATTRIBUTE
from mezzo.onnx.schema.types import UNKNOWN, ValueType, from_type_proto

_LONGEST_PATH = 120


class Reader(GraphBuilder):
    """Reads a model: the main graph, and the nodes of every subgraph and function."""

    # -- the main graph ----------------------------------------------------------------------------

    def read(self) -> tuple[Graph, Handles]:
        graph = self.model.graph
        opsets = imported_opsets(self.model)
        container = Container(graph)
        scope = self.add_scope(None, "", graph, container, None)
        frame = Frame(Env(), scope, "", opsets, container)
        frame.declared = stated_infos(graph)
        weights = {t.name for t in graph.initializer} | {
            t.values.name for t in graph.sparse_initializer
        }
        is_fixed_input = self.model.ir_version >= 4
        inputs = {info.name: info for info in graph.input}
        for info in graph.input:
            if info.name not in weights or is_fixed_input:
                interface.read_input(self, frame, info)
        if is_fixed_input:
            interface.read_defaults(
                self, frame, [tensor for tensor in graph.initializer if tensor.name in inputs]
            )
        self.read_initializers(
            frame, graph, inputs, skip=inputs.keys() if is_fixed_input else set()
        )
        self.read_nodes(frame, graph.node)
        for index, info in enumerate(graph.output):
            interface.read_output(self, frame, graph, index, info)
        self._check_names()
        for low in self.lows:
            if not can_convert(low, opsets.get("")):
                self._keep_types(low)
        return (
            Graph(
                nodes=tuple(self.nodes),
                values=tuple(self.values),
                scopes=tuple(self.scopes),
                constants=self.constants,
                widened=frozenset(self.widened),
                aliased=frozenset(self.aliased | self.widened),
                forms=self.form_makers,
                notes=tuple(self.notes),
                modules=Modules(self.handles.protos),
                lines=lines_of(self.handles.protos),
                shapes=Shapes(self.shapes, self.values, self.handles.tensors),
                entered=self.entered,
                wide_constants=self.wide_constants,
                integers=ConstantIntegers(
                    self.values, self.handles.tensors, self.nodes, self.handles.protos
                ),
            ),
            self.handles,
        )

    def _check_names(self) -> None:
        """Raise ModelError for a name that is not UTF-8, which protobuf returns as bytes."""
        if {type(value.name) for value in self.values} <= {str}:
            return
        strange = next(value.name for value in self.values if type(value.name) is not str)
        raise ModelError(f"a value's name is not UTF-8: {strange!r}; export the model again")

    def _keep_types(self, low: DType) -> None:
        """Remove the low dtype from all signatures, as this opset has no conversion to it."""
        narrowed: dict[int, Signature] = {}
        for number, node in enumerate(self.nodes):
            old = node.signature
            if low in old.legal and old.dtype is not low:
                if id(old) not in narrowed:
                    narrowed[id(old)] = replace(old, legal=old.legal - {low})
                self.nodes[number] = node._replace(signature=narrowed[id(old)])
        lacking = (
            "QuantizeLinear that takes an axis"
            if low is DType.QUANTIZED8
            else f"QuantizeLinear to {low}"
        )
        lacking = f"Cast to {low}" if low in FLOATING else lacking
        self.notes.append(f"this opset has no {lacking}, so nothing runs in it")

    # -- nodes -------------------------------------------------------------------------------------

    def read_nodes(self, frame: Frame, protos: Iterable[onnx.NodeProto]) -> None:
        if frame.depth > MOST_DEPTH:
            path = (
                frame.path
                if len(frame.path) <= _LONGEST_PATH
                else f"{frame.path[:_LONGEST_PATH]}..."
            )
            raise ModelError(
                f"{path!r}: bodies or functions nest deeper than {MOST_DEPTH}; flatten the model"
            )
        for proto in protos:
            domain = proto.domain
            if domain == "ai.onnx":
                domain = ""
            op, name = proto.op_type, proto.name
            if type(op) is not str or type(domain) is not str or type(name) is not str:
                raise ModelError(
                    f"a node's name, operator or domain is not UTF-8: {name!r}, {op!r}; export the"
                    " model again"
                )
            reader = _READERS.get(op) if not domain else None
            if reader is not None:
                reader(self, frame, proto)
            elif self.functions and (domain, op, proto.overload) in self.functions:
                control.read_call(self, frame, proto, self.functions[domain, op, proto.overload])
            else:
                self.read_operator(frame, proto, domain, op, name)

    def read_operator(
        self, frame: Frame, proto: onnx.NodeProto, domain: str, op: str, title: str
    ) -> None:
        """Read an operator without subgraphs, not Cast or Constant. `title`: name or empty."""
        number = len(self.nodes)
        opset = frame.opsets.get(domain, 1)
        domain = home_of_operator(domain, op, opset)
        inputs: list[int | None] = []
        types: list[ValueType] = []
        values, value_types, names = self.values, self.types, frame.env.names
        for name in proto.input:
            value = names.get(name)
            if value is None or value < 0 or values[value].name != name:
                value, value_type = self.operand(frame, proto, len(inputs), number)
                types.append(UNKNOWN if value is not None and value_type is None else value_type)
            else:
                value_type = value_types[value]
                types.append(UNKNOWN if value_type is None else value_type)
            inputs.append(value)
        attribute = None
        if op in TYPED_BY_ATTRIBUTE:
            row = SPECIAL.get((domain, op))
            if row is not None and row.dtype_attribute is not None:
                attribute = dtype_of(proto, row.dtype_attribute, frame.attributes)
                sources.note_generated(self, frame, proto, len(values))
        outputs = proto.output
        solved = solve(domain, op, opset, tuple(types), len(outputs), attribute)
        results: list[int | None] = []
        for name, output_type in zip(outputs, solved.outputs, strict=True):
            if not name:
                results.append(None)
                continue
            if output_type is None:
                output_type = stated_type(proto) or self._declared_type(frame, name)
            elements = self.counts.get(name)
            if elements is None:
                elements = self.elements(name, inputs)
            names[name] = output = self.add_value(name, output_type, number, frame.scope, elements)
            results.append(output)
        signature = solved.signature
        if signature.is_custom:
            output_types = [
                None if v is None else UNKNOWN if value_types[v] is None else value_types[v]
                for v in results
            ]
            signature = custom_signature(domain, op, tuple(types), tuple(output_types))
        if (
            signature.dtype is not None
            and signature.dtype is not HIGH
            and signature.dtype not in self.lows
        ):
            signature = frozen(signature)
        title = self.unique(frame, title or f"{op}:{outputs[0] if outputs else ''}")
        self.add_node(title, Kind.OP, signature, frame.scope, tuple(inputs), tuple(results), proto)

    def _declared_type(self, frame: Frame, name: str) -> ValueType:
        info = frame.declared.get(name)
        return None if info is None else from_type_proto(info.type)


def no_facts(_: onnx.TensorProto) -> ConstantFacts:
    """Placeholder facts of a weight, where only types are inferred."""
    return _NO_FACTS


_NO_FACTS = ConstantFacts(0, 0.0, 0.0, False, False, False, None)


_READERS: dict[str, Callable[[Reader, Frame, onnx.NodeProto], None]] = {
    "Cast": sources.read_cast,
    "Constant": sources.read_constant,
    "If": control.read_if,
    "Loop": loops.read_loop,
    "Scan": loops.read_scan,
    "SequenceMap": loops.read_sequence_map,
}


def read(
    model: onnx.ModelProto, lows: Sequence[DType], sizes: KnownShapes, facts_of: FactsOf
) -> tuple[Graph, Handles]:
    """Read a model with sorted nodes. Values already in a dtype of `lows` are planned like FP32
    ones.

    Raises:
        ModelError: an undefined name, an unknown element type, or subgraphs nested too deep.
    """
    return Reader(model, lows, sizes, facts_of).read()
