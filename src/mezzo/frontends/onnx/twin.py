"""The FP32 twin of a mixed-precision model: it computes in FP32 and rounds where the model would.

Runtimes on a CPU compute FP16 graphs in FP32 and have no BF16 kernels, so running the model itself shows neither its
overflows nor its rounding. The twin does: every operator output that is low in the model is followed by Cast(to=low)
and Cast(to=float). Sums inside one operator stay in FP32, as they do in the accumulators of today's devices. Casts of
FP64 and of integers to a low type round once (below opset 9, which lacks what this takes, FP64 goes by way of FP32).

No body of the twin gives a name of the graphs around it to another value: engines mix such values up.

Kept in their low types, behind real casts: BitCast, which reads bits, operators of unknown domains, whose FP32 form may
not exist, and ports for which the schema does not allow FP32. Types other than FP16 and BF16 stay as they are.
"""

from collections.abc import Iterable

import numpy as np
import onnx
import onnx.inliner
from onnx import TensorProto

from mezzo.frontends.onnx.narrowing import narrow, rounds_twice
from mezzo.frontends.onnx.value_types import TypedScope, find_node_schema, type_text, value_types

_LOW = {TensorProto.FLOAT16: "tensor(float16)", TensorProto.BFLOAT16: "tensor(bfloat16)"}
_LOW_BY_TEXT = {text: element for element, text in _LOW.items()}

# Attributes that name an element type. Their value FLOAT16 or BFLOAT16 becomes FLOAT.
_DTYPE_ATTRIBUTES = frozenset(
    {"dtype", "output_datatype", "output_dtype", "stash_type", "softmax_precision", "precision"}
)
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})
# Domains whose operators all have an FP32 form.
_WIDENED_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft"})


def twin(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make the FP32 model that rounds as `model` does; `model` is not changed and its weights must be embedded.

    Graph inputs and outputs keep names and shapes and become FP32 where they were low; low tensors are rounded as they
    come in. Model-local functions are inlined.
    """
    source = onnx.inliner.inline_local_functions(model, convert_version=True) if model.functions else model
    opsets = {entry.domain: entry.version for entry in source.opset_import}
    result = onnx.ModelProto()
    result.ir_version = source.ir_version
    result.producer_name = "mezzo twin"
    result.opset_import.extend(source.opset_import)
    if "" not in opsets and "ai.onnx" not in opsets:
        opsets[""] = 13  # the first Cast that knows BF16
        result.opset_import.append(onnx.helper.make_opsetid("", opsets[""]))
    rewriter = _Rewriter(opsets, _free_prefix(source.graph))
    result.graph.CopyFrom(rewriter.rewrite_main(source.graph, value_types(source)))
    return result


def _is_low(text: str) -> bool:
    return "float16" in text


def _widen_text(text: str) -> str:
    return text.replace("bfloat16", "float").replace("float16", "float")


class _Rewriter:
    """Copies graphs into their FP32 form. `prefix` starts no name of the model, so made names are unique."""

    def __init__(self, opsets: dict[str, int], prefix: str) -> None:
        self._opsets = opsets
        self._prefix = prefix
        self._made = 0
        self._renamed: dict[str, str] = {}  # the twin's names of visible values that have another in the model

    def rewrite_main(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        """Rewrite the main graph, which also rounds what comes in."""
        roundings = []
        constants = set(_constant_names(graph))
        for port in graph.input:
            low = _LOW_BY_TEXT.get(type_text(port.type))
            if low is not None and port.name not in constants:
                self._renamed[port.name] = self._fresh()
                roundings += self._round(port.name, self._renamed[port.name], low)
        result = self._rewrite(graph, scope)
        body = list(result.node)
        del result.node[:]
        result.node.extend([*roundings, *body])
        return result

    def _rewrite_body(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        visible = self._renamed
        given = (*(port.name for port in graph.input), *_constant_names(graph))
        self._renamed = visible | {name: self._fresh() for name in given if name in scope.types.parents}
        result = self._rewrite(graph, scope)
        for named in (*result.input, *result.output, *result.value_info, *result.initializer):
            named.name = self._read(named.name)
        for sparse in result.sparse_initializer:
            sparse.values.name = self._read(sparse.values.name)
        self._renamed = visible
        return result

    def _rewrite(self, graph: onnx.GraphProto, scope: TypedScope) -> onnx.GraphProto:
        result = onnx.GraphProto()
        result.name = graph.name
        for port in graph.input:
            result.input.append(_widen_port(port))
        for port in graph.output:
            result.output.append(_widen_port(port))
        for port in graph.value_info:
            result.value_info.append(_widen_port(port))
        result.initializer.extend(map(_widen_tensor, graph.initializer))
        result.sparse_initializer.extend(map(_widen_sparse, graph.sparse_initializer))
        for index, node in enumerate(graph.node):
            result.node.extend(self._rewrite_node(node, index, scope))
        return result

    def _rewrite_node(self, node: onnx.NodeProto, index: int, scope: TypedScope) -> list[onnx.NodeProto]:
        inputs = [scope.types.get(name, "") for name in node.input]
        outputs = [scope.types.get(name, "") for name in node.output]
        result = onnx.NodeProto()
        result.CopyFrom(node)
        result.input[:] = map(self._read, node.input)
        for attribute in result.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                attribute.g.CopyFrom(self._rewrite_body(attribute.g, scope.bodies[index, attribute.name]))
        self._renamed |= {name: self._fresh() for name in node.output if name in scope.types.parents}
        result.output[:] = map(self._read, node.output)
        if node.op_type in ("Cast", "CastLike") and outputs[0] in _LOW_BY_TEXT:
            return self._cast_down(result.input[0], inputs[0], result.output[0], _LOW_BY_TEXT[outputs[0]])
        if not any(map(_is_low, (*inputs, *outputs))):
            return [result]
        if self._must_keep(node, inputs, outputs):
            return self._keep_low(result, inputs, outputs)
        _widen_attributes(result)
        roundings: list[onnx.NodeProto] = []
        # Bodies have rounded already, constants are exact, and sequences hold tensors that were rounded when made.
        if node.op_type not in _CONTROL and node.op_type != "Constant":
            for position, text in enumerate(outputs):
                if text in _LOW_BY_TEXT:
                    exact = self._fresh()
                    roundings += self._round(exact, result.output[position], _LOW_BY_TEXT[text])
                    result.output[position] = exact
        return [result, *roundings]

    def _must_keep(self, node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> bool:
        """Say whether the operator has no FP32 form with the same meaning."""
        if node.op_type == "BitCast" or node.domain not in _WIDENED_DOMAINS:
            return True
        schema = find_node_schema(node, self._opsets)
        if schema is None:
            return False
        allowed = {variable.type_param_str: variable.allowed_type_strs for variable in schema.type_constraints}
        for ports, texts in ((schema.inputs, inputs), (schema.outputs, outputs)):
            for position, text in enumerate(texts):
                variable = ports[min(position, len(ports) - 1)].type_str
                if _is_low(text) and _widen_text(text) not in allowed.get(variable, [variable]):
                    return True
        return False

    def _keep_low(self, node: onnx.NodeProto, inputs: list[str], outputs: list[str]) -> list[onnx.NodeProto]:
        """Put casts to the low types before the node and casts back behind it."""
        before, after = [], []
        for position, text in enumerate(inputs):
            if text in _LOW_BY_TEXT:
                narrow = self._fresh()
                before.append(_cast(node.input[position], narrow, _LOW_BY_TEXT[text]))
                node.input[position] = narrow
        for position, text in enumerate(outputs):
            if text in _LOW_BY_TEXT:
                narrow = self._fresh()
                after.append(_cast(narrow, node.output[position], TensorProto.FLOAT))
                node.output[position] = narrow
        return [*before, node, *after]

    def _cast_down(self, source: str, text: str, result: str, low: int) -> list[onnx.NodeProto]:
        """Cast a value of the type `text` to `low`, with one rounding."""
        if not rounds_twice(text, low, self._opsets.get("", self._opsets.get("ai.onnx", 1))):
            return self._round(source, result, low)
        nodes = narrow(source, text, low, self._fresh)
        return [*nodes, *self._round(nodes[-1].output[0], result, low)]

    def _round(self, source: str, result: str, low: int) -> list[onnx.NodeProto]:
        narrow = self._fresh()
        return [_cast(source, narrow, low), _cast(narrow, result, TensorProto.FLOAT)]

    def _read(self, name: str) -> str:
        return self._renamed.get(name, name)

    def _fresh(self) -> str:
        self._made += 1
        return f"{self._prefix}{self._made}"


def _cast(source: str, result: str, to: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [result], to=to)


def _widen_port(port: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    result = onnx.ValueInfoProto()
    result.CopyFrom(port)
    _widen_type(result.type)
    return result


def _widen_type(proto: onnx.TypeProto) -> None:
    match proto.WhichOneof("value"):
        case "tensor_type" if proto.tensor_type.elem_type in _LOW:
            proto.tensor_type.elem_type = TensorProto.FLOAT
        case "sparse_tensor_type" if proto.sparse_tensor_type.elem_type in _LOW:
            proto.sparse_tensor_type.elem_type = TensorProto.FLOAT
        case "sequence_type":
            _widen_type(proto.sequence_type.elem_type)
        case "optional_type":
            _widen_type(proto.optional_type.elem_type)


def _widen_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type not in _LOW:
        return tensor
    return onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor).astype(np.float32), tensor.name)


def _widen_sparse(sparse: onnx.SparseTensorProto) -> onnx.SparseTensorProto:
    result = onnx.SparseTensorProto()
    result.CopyFrom(sparse)
    result.values.CopyFrom(_widen_tensor(sparse.values))
    return result


def _widen_attributes(node: onnx.NodeProto) -> None:
    for attribute in node.attribute:
        if attribute.name in _DTYPE_ATTRIBUTES and attribute.i in _LOW:
            attribute.i = TensorProto.FLOAT
        elif attribute.type == onnx.AttributeProto.TENSOR:
            attribute.t.CopyFrom(_widen_tensor(attribute.t))
        elif attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
            attribute.sparse_tensor.CopyFrom(_widen_sparse(attribute.sparse_tensor))
        elif attribute.type == onnx.AttributeProto.TYPE_PROTO:
            _widen_type(attribute.tp)


def _free_prefix(graph: onnx.GraphProto) -> str:
    """A prefix that no value name of the graph or its bodies starts with."""
    names = set(_value_names(graph))
    prefix = "twin_"
    while any(name.startswith(prefix) for name in names):
        prefix += "_"
    return prefix


def _value_names(graph: onnx.GraphProto) -> Iterable[str]:
    for port in graph.input:
        yield port.name
    yield from _constant_names(graph)
    for node in graph.node:
        yield from node.output
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _value_names(attribute.g)


def _constant_names(graph: onnx.GraphProto) -> Iterable[str]:
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
