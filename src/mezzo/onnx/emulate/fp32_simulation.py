"""FP32 simulation ("twin") of a mixed-precision model: computes in FP32, rounds as the model does.

CPU runtimes compute FP16 graphs in FP32 and have no BF16 kernels, so running the model itself shows
neither overflow nor rounding. In the simulation Cast(to=low) and Cast(to=float) follow every output
that has a low-precision type in the model. Accumulation inside an operator stays in FP32, as in
current hardware. Casts from FP64 and integers to a low type round once (below opset 9, which lacks
Where, FP64 is cast through FP32).

Subgraphs never shadow a name of an enclosing graph: runtimes confuse such values.

Kept in low precision, between real casts: BitCast, which depends on bits; operators of unknown
domains, which may have no FP32 kernel; inputs and outputs whose schema does not allow FP32. FP8
values stay FP8; casts to FP8 without saturation overflow correctly, unlike ONNX Runtime's own.

With an `Accumulation`, every MatMul, Gemm and Conv with a low operand accumulates as in tiles.py,
or the operators of a target as in low_sums.py.
"""

from collections import ChainMap
from collections.abc import Callable, Sequence
from copy import deepcopy

import onnx
from onnx import TensorProto

from mezzo.contracts.plans import Accumulation
from mezzo.formats.dtypes import DType
from mezzo.onnx.emulate.int8_activations import round_operand, summed_axis
from mezzo.onnx.emulate.low_sums import has_low_sum, sum_low
from mezzo.onnx.emulate.narrowing import narrow, rounds_twice
from mezzo.onnx.protos.graphs import inline_functions, replace_nodes, stored_names
from mezzo.onnx.protos.lowcast import reach_sums, round_nodes, show_overflow
from mezzo.onnx.protos.names import free_prefix, numbered
from mezzo.onnx.protos.node_builder import NodeBuilder
from mezzo.onnx.protos.widened import (
    LOW,
    WIDENED_DOMAINS,
    widen_attributes,
    widen_port,
    widen_sparse,
    widen_tensor,
)
from mezzo.onnx.schema.value_types import TypedScope, find_node_schema, type_text, value_types

_LOW_BY_TEXT = {text: element for element, text in LOW.items()}
_DTYPE_BY_TEXT = {
    "tensor(float16)": DType.FLOAT16,
    "tensor(bfloat16)": DType.BFLOAT16,
}
_FP8_BY_TEXT = {
    "tensor(float8e4m3fn)": TensorProto.FLOAT8E4M3FN,
    "tensor(float8e5m2)": TensorProto.FLOAT8E5M2,
}

# Of MatMulNBits and its kin: 4 lets ONNX Runtime's CPU quantize activations (its
# docs/ContribOperators.md).
_QUANTIZES_ACTIVATIONS = "accuracy_level"
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def twin(model: onnx.ModelProto, accumulation: Accumulation | None = None) -> onnx.ModelProto:
    """Build the FP32 simulation of `model`, with weights embedded or marked; `model` is unchanged.

    Graph inputs and outputs keep their names and shapes; low types become FP32, and such inputs are
    rounded. Model-local functions are inlined.

    Raises: ContractError if tiled accumulation needs a newer opset than the model can reach.
    """
    source = inline_functions(model)
    if accumulation is not None:
        source = deepcopy(source)
        accumulation = reach_sums(source, (), accumulation)
    opsets = {entry.domain: entry.version for entry in source.opset_import}
    result = onnx.ModelProto()
    result.ir_version = source.ir_version
    result.producer_name = "mezzo twin"
    result.opset_import.extend(source.opset_import)
    if "" not in opsets and "ai.onnx" not in opsets:
        opsets[""] = 13  # the first Cast that knows BF16
        result.opset_import.append(onnx.helper.make_opsetid("", opsets[""]))
    fresh = numbered(free_prefix(source.graph, "twin_"))
    rewriter = _Rewriter(opsets, fresh, accumulation)
    result.graph.CopyFrom(rewriter.rewrite_main(source.graph, value_types(source)))
    return result


def _shows_overflow(node: onnx.NodeProto) -> bool:
    return any(attribute.name == "saturate" and attribute.i == 0 for attribute in node.attribute)


def _is_low(text: str) -> bool:
    return "float16" in text


def _widen_text(text: str) -> str:
    return text.replace("bfloat16", "float").replace("float16", "float")


class _Rewriter:
    """Copies graphs into FP32 form. `fresh` returns names that are not in the model."""

    def __init__(
        self, opsets: dict[str, int], fresh: Callable[[], str], accumulation: Accumulation | None
    ) -> None:
        self._opsets = opsets
        self._fresh = fresh
        self._accumulation = accumulation
        self._shapes: ChainMap[str, Sequence[int]] = ChainMap()  # of visible constants, by new name
        self._renamed: dict[str, str] = {}  # new names of renamed visible values

    def rewrite_main(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        """Rewrite the main graph and round its low-precision inputs."""
        roundings = []
        constants = set(stored_names(graph))
        for port in graph.input:
            low = _LOW_BY_TEXT.get(type_text(port.type))
            if low is not None and port.name not in constants:
                self._renamed[port.name] = self._fresh()
                roundings += self._round(port.name, self._renamed[port.name], low)
        result = self._rewrite(graph, scope)
        replace_nodes(result, [*roundings, *result.node])
        return result

    def _rewrite_body(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        visible, self._shapes = self._renamed, self._shapes.new_child()
        names = (*(port.name for port in graph.input), *stored_names(graph))
        self._renamed = visible | {
            name: self._fresh() for name in names if name in scope.types.parents
        }
        result = self._rewrite(graph, scope)
        for named in (*result.input, *result.output, *result.value_info, *result.initializer):
            named.name = self._read(named.name)
        for sparse in result.sparse_initializer:
            sparse.values.name = self._read(sparse.values.name)
        self._renamed, self._shapes = visible, self._shapes.parents
        return result

    def _rewrite(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        result = onnx.GraphProto()
        result.name = graph.name
        for port in graph.input:
            result.input.append(widen_port(port))
        for port in graph.output:
            result.output.append(widen_port(port))
        for port in graph.value_info:
            result.value_info.append(widen_port(port))
        result.initializer.extend(map(widen_tensor, graph.initializer))
        result.sparse_initializer.extend(map(widen_sparse, graph.sparse_initializer))
        self._shapes.update({self._read(tensor.name): tensor.dims for tensor in graph.initializer})
        for index, node in enumerate(graph.node):
            result.node.extend(self._rewrite_node(node, index, scope))
        return result

    def _rewrite_node(
        self, node: onnx.NodeProto, index: int, scope: TypedScope
    ) -> list[onnx.NodeProto]:
        inputs = [scope.types.get(name, "") for name in node.input]
        outputs = [scope.types.get(name, "") for name in node.output]
        result = onnx.NodeProto()
        result.CopyFrom(node)
        result.input[:] = map(self._read, node.input)
        for attribute in result.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                attribute.g.CopyFrom(
                    self._rewrite_body(attribute.g, scope.bodies[index, attribute.name])
                )
        self._renamed |= {
            name: self._fresh() for name in node.output if name in scope.types.parents
        }
        result.output[:] = map(self._read, node.output)
        if node.op_type in ("Cast", "CastLike") and outputs[0] in _LOW_BY_TEXT:
            return self._cast_down(
                result.input[0], inputs[0], result.output[0], _LOW_BY_TEXT[outputs[0]]
            )
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            self._shapes[result.output[0]] = node.attribute[0].t.dims
        if (
            node.op_type in ("Cast", "CastLike")
            and outputs[0] in _FP8_BY_TEXT
            and _shows_overflow(node)
        ):
            return self._cast_to_fp8(result, inputs[0], _FP8_BY_TEXT[outputs[0]])
        opset = self._opsets.get("", self._opsets.get("ai.onnx", 1))
        before = round_operand(result, summed_axis(node), opset, self._fresh)
        _forbid_quantizing(result)
        if not any(map(_is_low, (*inputs, *outputs))):
            return [*before, result]
        if self._must_keep(node, inputs, outputs):
            return self._keep_low(result, inputs, outputs)
        widen_attributes(result)
        roundings: list[onnx.NodeProto] = []
        # Bodies have rounded already, constants are exact, and sequences hold tensors that were
        # rounded when made.
        if node.op_type not in _CONTROL and node.op_type != "Constant":
            for position, text in enumerate(outputs):
                if text in _LOW_BY_TEXT:
                    exact = self._fresh()
                    roundings += self._round(exact, result.output[position], _LOW_BY_TEXT[text])
                    result.output[position] = exact
        dtype = next((_DTYPE_BY_TEXT[text] for text in inputs if text in _DTYPE_BY_TEXT), None)
        sums = self._accumulation
        if sums is not None and dtype is not None and has_low_sum(node, sums, dtype):
            low_sum = sum_low(result, sums, dtype, self._fresh, self._shapes.get, opset)
            return [*low_sum, *roundings]
        return [*before, result, *roundings]

    def _cast_to_fp8(self, node: onnx.NodeProto, text: str, low: int) -> list[onnx.NodeProto]:
        """Cast to FP8 without saturation; runtimes err just above the largest finite value."""
        work, source = NodeBuilder(self._fresh), node.input[0]
        if text != "tensor(float)" and not _is_low(text):
            source = work.cast(source, TensorProto.FLOAT)
        node.input[0] = show_overflow(work, source, low)
        return [*work.nodes, node]

    def _must_keep(self, node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> bool:
        """Whether the operator has no FP32 form with the same semantics."""
        if node.op_type == "BitCast" or node.domain not in WIDENED_DOMAINS:
            return True
        schema = find_node_schema(node, self._opsets)
        if schema is None:
            return False
        allowed = {
            variable.type_param_str: variable.allowed_type_strs
            for variable in schema.type_constraints
        }
        for ports, texts in ((schema.inputs, inputs), (schema.outputs, outputs)):
            for position, text in enumerate(texts):
                variable = ports[min(position, len(ports) - 1)].type_str
                if _is_low(text) and _widen_text(text) not in allowed.get(variable, [variable]):
                    return True
        return False

    def _keep_low(
        self, node: onnx.NodeProto, inputs: list[str], outputs: list[str]
    ) -> list[onnx.NodeProto]:
        """Insert casts to the low types before the node and casts back after it."""
        before, after = NodeBuilder(self._fresh), []
        for position, text in enumerate(inputs):
            if text in _LOW_BY_TEXT:
                node.input[position] = before.cast(node.input[position], _LOW_BY_TEXT[text])
        for position, text in enumerate(outputs):
            if text in _LOW_BY_TEXT:
                wide, node.output[position] = node.output[position], self._fresh()
                to = TensorProto.FLOAT
                after.append(onnx.helper.make_node("Cast", [node.output[position]], [wide], to=to))
        return [*before.nodes, node, *after]

    def _cast_down(self, source: str, text: str, result: str, low: int) -> list[onnx.NodeProto]:
        """Cast a value of the type `text` to `low`, with one rounding."""
        if not rounds_twice(text, low, self._opsets.get("", self._opsets.get("ai.onnx", 1))):
            return self._round(source, result, low)
        nodes = narrow(source, text, low, self._fresh)
        return [*nodes, *self._round(nodes[-1].output[0], result, low)]

    def _round(self, source: str, result: str, low: int) -> list[onnx.NodeProto]:
        return round_nodes(source, result, low, self._fresh)

    def _read(self, name: str) -> str:
        return self._renamed.get(name, name)


def _forbid_quantizing(node: onnx.NodeProto) -> None:
    """Remove `accuracy_level`, which permits kernels to quantize activations for speed."""
    allowing = [
        attribute for attribute in node.attribute if attribute.name == _QUANTIZES_ACTIVATIONS
    ]
    for attribute in allowing if node.domain == "com.microsoft" else ():
        node.attribute.remove(attribute)
