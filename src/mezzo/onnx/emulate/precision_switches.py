"""Precision switches in a tagged FP32 simulation: boolean inputs select each node's format.

Every operator with a floating compute group becomes an If on its own flag: one branch rounds the
operands and results of the group to a format, the other is the unchanged operator. So only the
selected branch costs time. Ties, graph inputs and graph outputs round the values that they pass.
Weights are rounded once, when the switch is built. A cast from FP64 or a wide integer rounds once,
directly to the format of its consumer, as in a converted model.
"""

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto

from mezzo.contracts.plans import Accumulation
from mezzo.contracts.quantized_level import QuantizedPorts
from mezzo.formats.dtypes import HIGH, LOW_DTYPES, QUANTIZED, DType
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind, Role, Use
from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.emulate.borders import border_of
from mezzo.onnx.emulate.int8_activations import SummedAxis, round_operand
from mezzo.onnx.emulate.low_sums import has_low_sum, sum_low
from mezzo.onnx.emulate.narrowing import narrow, rounds_twice
from mezzo.onnx.emulate.switch_quantizing import Quantizer
from mezzo.onnx.emulate.tags import tag_of
from mezzo.onnx.files.marks import is_marked, mark_rounded
from mezzo.onnx.protos.attributes import constant_tensor
from mezzo.onnx.protos.graphs import replace_nodes
from mezzo.onnx.protos.lowcast import round_nodes
from mezzo.onnx.protos.names import free_prefix, numbered
from mezzo.onnx.protos.rounding import round_through
from mezzo.onnx.schema.types import TO_ONNX, make_port
from mezzo.onnx.schema.value_types import TypedScope, value_types

_FLOAT = "tensor(float)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOptions:
    """Formats of switches. `sums_high`: node ids exempt from `accumulation`; `limits`: see
    `Emulator`; `int8_products`: nodes whose activations are rounded to INT8 at any precision;
    `unrounded`: ids of weights that no precision rounds.
    """

    formats: tuple[DType, ...]
    accumulation: Accumulation | None
    sums_high: frozenset[int]
    limits: Mapping[int, float]
    quantized: QuantizedPorts
    int8_products: Mapping[int, SummedAxis]
    unrounded: Collection[int]


class Switches(NamedTuple):
    """Index in the flag vectors by node id, and the graph input of each vector by format."""

    positions: dict[int, int]
    flags: dict[DType, str]


def put_switches(model: onnx.ModelProto, graph: Graph, planning: SwitchOptions) -> Switches:
    """Insert switches, in place, into `model`, an FP32 simulation tagged with node ids of `graph`.

    FP32 outputs are renamed.
    """
    switcher = _Switcher(model, graph, planning)
    switcher.rewrite_main(model.graph, value_types(model))
    return Switches(switcher.positions, switcher.declare_flags(model))


@dataclass(frozen=True, slots=True)
class _Seen:
    """Visible values by name: constants, and casts to FP32 with their operand and its type."""

    constants: ChainMap[str, onnx.TensorProto] = field(default_factory=ChainMap)
    casts: ChainMap[str, tuple[str, str]] = field(default_factory=ChainMap)

    def inside(self) -> "_Seen":
        """A child scope for a subgraph, which adds its own values."""
        return _Seen(self.constants.new_child(), self.casts.new_child())

    def shape_of(self, name: str) -> Sequence[int] | None:
        """Shape of a constant; None for other values."""
        tensor = self.constants.get(name)
        return None if tensor is None else tensor.dims

    def note(self, node: onnx.NodeProto, scope: TypedScope) -> None:
        if len(node.output) != 1 or scope.types.get(node.output[0]) != _FLOAT:
            return
        match node.op_type:
            case "Constant" if node.attribute and node.attribute[0].name != "sparse_value":
                tensor = constant_tensor(node.attribute[0])
                if tensor is not None:
                    self.constants[node.output[0]] = tensor
            case "Cast":
                self.casts[node.output[0]] = node.input[0], scope.types.get(node.input[0], "")


class _Rounding(NamedTuple):
    """What a node's switch rounds, besides parameters of quantized formats: positions of operands
    and results. `number` is the id of the planner's node.
    """

    number: int
    operands: Sequence[int]
    results: Sequence[int]


class _Switcher:
    def __init__(self, model: onnx.ModelProto, graph: Graph, planning: SwitchOptions) -> None:
        self._planned = graph
        self._planning = planning
        self._prefix = free_prefix(model.graph, "switch_")
        self._fresh = numbered(self._prefix)
        self._opset = default_opset(model) or 1
        self._renamed: dict[str, str] = {}
        # Rounded weights by id(weight); `_weights` keeps the originals alive, so ids stay unique.
        self._rounded: dict[tuple[int, DType, float | None], onnx.TensorProto] = {}
        self._weights: list[onnx.TensorProto] = []
        self.positions: dict[int, int] = {}
        self._quantizer = Quantizer(self._fresh)

    # -- the walk ----------------------------------------------------------------------------------

    def rewrite_main(self, graph: onnx.GraphProto, scope: TypedScope) -> None:
        """Switch the main graph with its inputs and outputs."""
        planned = self._planned
        inputs = [node for node in planned.nodes if node.kind is Kind.INPUT]
        feeds = {
            planned.values[v].name: node.id
            for node in inputs
            for v in node.outputs
            if v is not None
        }
        heads: list[onnx.NodeProto] = []
        for port in graph.input:
            if port.name in feeds and scope.types.get(port.name) == _FLOAT:
                self._renamed[port.name] = self._fresh()
                scope.types[self._renamed[port.name]] = _FLOAT
                heads += self._switch_value(port.name, self._renamed[port.name], feeds[port.name])
        tails: list[onnx.NodeProto] = []
        shown = [node.id for node in planned.nodes if node.kind is Kind.OUTPUT]
        for number, port in zip(shown, graph.output, strict=True):
            if scope.types.get(port.name) == _FLOAT:
                source, port.name = self._renamed.get(port.name, port.name), self._fresh()
                tails += self._switch_value(source, port.name, number)
        # Not defaults of inputs.
        fixed = [tensor for tensor in graph.initializer if tensor.name not in feeds]
        body = self._rewrite(graph, fixed, scope, _Seen())
        replace_nodes(graph, [*heads, *body, *tails])

    def declare_flags(self, model: onnx.ModelProto) -> dict[DType, str]:
        """Declare one input per format, split it into the flags, and store the weights that are
        rounded.
        """
        graph, count = model.graph, len(self.positions)
        first: list[onnx.NodeProto] = []
        for tensor in (*self._rounded.values(), *self._quantizer.tensors.values()):
            if model.ir_version >= 4:
                graph.initializer.append(tensor)
            else:  # there every initializer has to be an input as well
                first.append(onnx.helper.make_node("Constant", [], [tensor.name], value=tensor))
        names = {dtype: f"{self._prefix}{dtype}" for dtype in self._planning.formats}
        attributes: dict[str, Any] = {"num_outputs": count} if self._opset >= 18 else {}
        for dtype, name in names.items() if count else ():
            graph.input.append(onnx.helper.make_tensor_value_info(name, TensorProto.BOOL, [count]))
            flags = [self._flag(place, dtype) for place in range(count)]
            first.append(onnx.helper.make_node("Split", [name], flags, axis=0, **attributes))
        replace_nodes(graph, [*first, *graph.node])
        return names

    def _rewrite(
        self,
        graph: onnx.GraphProto,
        fixed: Iterable[onnx.TensorProto],
        scope: TypedScope,
        visible: _Seen,
    ) -> list[onnx.NodeProto]:
        """Switch the nodes of a graph's bodies in place; return the switched nodes of the graph."""
        nodes: list[onnx.NodeProto] = []
        visible.constants.update({t.name: t for t in fixed if t.data_type == TensorProto.FLOAT})
        for index, node in enumerate(graph.node):
            node.input[:] = [self._renamed.get(name, name) for name in node.input]
            for attribute in node.attribute:
                if attribute.type == onnx.AttributeProto.GRAPH:
                    body, inner = attribute.g, scope.bodies[index, attribute.name]
                    nodes_of_body = self._rewrite(body, body.initializer, inner, visible.inside())
                    replace_nodes(body, nodes_of_body)
            visible.note(node, scope)
            nodes += self._switch(node, scope, visible)
        return nodes

    # -- one node ----------------------------------------------------------------------------------

    def _switch_value(self, source: str, result: str, number: int) -> list[onnx.NodeProto]:
        """Switch an FP32 value at a tie, graph input or output; the result gets a new name."""
        node = onnx.helper.make_node("Identity", [source], [result])
        if not self._planning.formats or self._planned.nodes[number].signature.dtype is not HIGH:
            return [node]
        return [self._choose(node, _Rounding(number, (), (0,)), [_FLOAT], _Seen())]

    def _switch(
        self, node: onnx.NodeProto, scope: TypedScope, visible: _Seen
    ) -> list[onnx.NodeProto]:
        border, number = border_of(node), tag_of(node)
        if border is not None and self._planning.formats:
            return [self._choose(node, _Rounding(border, (), (0,)), [_FLOAT], visible)]
        if number is None:
            return [node]
        is_high = self._planned.nodes[number].signature.dtype is HIGH
        if not is_high or not self._planning.formats:
            return [*self._round_activations(node, number), node]
        signature = self._planned.nodes[number].signature
        texts = [
            scope.types.get(name, "") or self._planned_type(number, index)
            for index, name in enumerate(node.output)
        ]
        operands = [
            index
            for index, (name, role) in enumerate(zip(node.input, signature.inputs, strict=False))
            if name and role is Role.GROUP and scope.types.get(name) == _FLOAT
        ]
        results = [
            index
            for index, (text, role) in enumerate(zip(texts, signature.outputs, strict=False))
            if text == _FLOAT and role is Role.GROUP
        ]
        if not operands and not results:
            return [node]
        rounding = _Rounding(number, operands, results)
        shown_texts = [text for name, text in zip(node.output, texts, strict=True) if name]
        if all(text.startswith("tensor(") for text in shown_texts):
            return [self._choose(node, rounding, texts, visible)]
        return self._choose_ports(node, rounding, visible)

    def _planned_type(self, number: int, index: int) -> str:
        """Type of an output according to the planner, for outputs that the schema leaves open."""
        outputs = self._planned.nodes[number].outputs
        value = outputs[index] if index < len(outputs) else None
        if value is None or not self._planned.values[value].is_castable:
            return ""
        return _FLOAT if self._planned.values[value].dtype is HIGH else ""

    def _choose_ports(
        self, node: onnx.NodeProto, rounding: _Rounding, visible: _Seen
    ) -> list[onnx.NodeProto]:
        """Switch the tensors of a node with a sequence output; its elements are rounded already."""
        before, after = [], []
        for index in rounding.operands:
            original_input, node.input[index] = node.input[index], self._fresh()
            identity = onnx.helper.make_node("Identity", [original_input], [node.input[index]])
            operand = _Rounding(rounding.number, (0,), ())
            before.append(self._choose(identity, operand, [_FLOAT], visible))
        for index in rounding.results:
            original_output, node.output[index] = node.output[index], self._fresh()
            identity = onnx.helper.make_node("Identity", [node.output[index]], [original_output])
            result = _Rounding(rounding.number, (), (0,))
            after.append(self._choose(identity, result, [_FLOAT], visible))
        return [*before, node, *after]

    def _choose(
        self, node: onnx.NodeProto, rounding: _Rounding, texts: Sequence[str], visible: _Seen
    ) -> onnx.NodeProto:
        """Build the If of a node: a branch per format, and the unchanged node if no flag is set."""
        place = self.positions.setdefault(rounding.number, len(self.positions))
        shown = [index for index, name in enumerate(node.output) if name]

        def branch(nodes: list[onnx.NodeProto], names: Sequence[str]) -> onnx.GraphProto:
            ports = [make_port(names[index], texts[index]) for index in shown]
            return onnx.helper.make_graph(nodes, "branch", [], ports)

        plain = self._copy(node)
        activations = self._round_activations(plain, rounding.number)
        outcome, chosen = branch([*activations, plain], plain.output), node
        for dtype in reversed(self._planning.formats):
            low = branch(*self._lowered(node, rounding, dtype, visible))
            chosen = onnx.helper.make_node(
                "If",
                [self._flag(place, dtype)],
                list(self._copy(node).output),
                then_branch=low,
                else_branch=outcome,
            )
            outcome = branch([chosen], chosen.output)
        chosen.output[:] = [node.output[index] for index in shown]
        return chosen

    def _copy(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """A copy of the node without its tags, with fresh output names."""
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.ClearField("metadata_props")
        copy.ClearField("name")
        copy.output[:] = [self._fresh() if name else "" for name in node.output]
        return copy

    def _lowered(
        self, node: onnx.NodeProto, rounding: _Rounding, dtype: DType, visible: _Seen
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """The node with operands and results rounded to a format, and its output names."""
        number = rounding.number
        if dtype in QUANTIZED:
            return self._quantized(node, number, visible)
        copy, nodes = self._copy(node), list[onnx.NodeProto]()
        rounded: dict[str, str] = {}
        values = self._planned.nodes[number].inputs
        for index in rounding.operands:
            name, value = copy.input[index], values[index] if index < len(values) else None
            if value in self._planning.unrounded:
                continue
            if name not in rounded:
                limit = None if value is None else self._planning.limits.get(value)
                rounded[name] = self._round_operand(name, dtype, limit, visible, nodes)
            copy.input[index] = rounded[name]
        nodes += self._round_activations(copy, number)
        accumulation = self._planning.accumulation
        is_summed = accumulation is not None and number not in self._planning.sums_high
        if accumulation is not None and is_summed and has_low_sum(copy, accumulation, dtype):
            shapes = dict(zip(copy.input, map(visible.shape_of, node.input), strict=True))
            nodes += sum_low(copy, accumulation, dtype, self._fresh, shapes.get, self._opset)
        else:
            nodes.append(copy)
        names = list(copy.output)
        for index in rounding.results:
            exact, names[index] = names[index], self._fresh()
            nodes += round_nodes(exact, names[index], TO_ONNX[dtype], self._fresh)
        return nodes, names

    def _round_activations(self, node: onnx.NodeProto, number: int) -> list[onnx.NodeProto]:
        axis = self._planning.int8_products.get(number)
        return round_operand(node, axis, self._opset, self._fresh)

    def _quantized(
        self, node: onnx.NodeProto, number: int, visible: _Seen
    ) -> tuple[list[onnx.NodeProto], list[str]]:
        """The node with fake-quantized inputs and outputs."""
        copy, nodes, ports = self._copy(node), list[onnx.NodeProto](), self._planning.quantized
        product = ports.dynamic.get(number)
        if product is not None:
            return self._quantizer.product(copy, product, visible.constants), list(copy.output)
        for index, name in enumerate(copy.input):
            how = ports.reads.get(Use(number, index))
            weight = visible.constants.get(name)
            if how is not None and weight is not None:
                copy.input[index] = self._quantizer.weight(weight, how)
            elif how is not None:
                copy.input[index] = self._fresh()
                nodes += self._quantizer.nodes(name, copy.input[index], how)
        nodes.append(copy)
        names = list(copy.output)
        for index, value in enumerate(self._planned.nodes[number].outputs):
            how = None if value is None else ports.makes.get(value)
            if how is not None:
                exact, names[index] = names[index], self._fresh()
                nodes += self._quantizer.nodes(exact, names[index], how)
        return nodes, names

    def _round_operand(
        self,
        name: str,
        dtype: DType,
        limit: float | None,
        visible: _Seen,
        nodes: list[onnx.NodeProto],
    ) -> str:
        """Append nodes that round an operand; return the name of the rounded value."""
        weight = visible.constants.get(name)
        if weight is not None:
            return self._round_weight(weight, dtype, limit)
        low = TO_ONNX[dtype]
        wide, text = visible.casts.get(name, ("", ""))
        if wide and dtype in LOW_DTYPES.values() and rounds_twice(text, low, self._opset):
            nodes += narrow(wide, text, low, self._fresh)
            name = nodes[-1].output[0]
        result = self._fresh()
        nodes += round_nodes(name, result, low, self._fresh)
        return result

    def _round_weight(self, weight: onnx.TensorProto, dtype: DType, limit: float | None) -> str:
        """Name of the rounded weight, an initializer of the main graph."""
        key = id(weight), dtype, limit
        if key not in self._rounded:
            self._weights.append(weight)
            if is_marked(weight):
                self._rounded[key] = mark_rounded(weight, dtype, limit, self._fresh())
            else:
                values = round_through(onnx.numpy_helper.to_array(weight), dtype, limit)
                self._rounded[key] = onnx.numpy_helper.from_array(values, self._fresh())
        return self._rounded[key].name

    def _flag(self, place: int, dtype: DType) -> str:
        return f"{self._prefix}{dtype}_{place}"
