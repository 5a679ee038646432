"""Forward type inference for every value of a model, from the schemas' type variables.

Separate from the planner's type solver, and simpler: evaluation of a conversion must not share the
planner's mistakes. It needs no shapes and no shape inference.
"""

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import onnx
from onnx import TensorProto

from mezzo.onnx.schema.domains import canonical

# Operators whose output type is an attribute; without it and a default, the type of the input at
# the index.
_TYPED_BY_ATTRIBUTE = {
    "Bernoulli": ("dtype", 0), "BitCast": ("to", 0), "BlackmanWindow": ("output_datatype", 0),
    "Cast": ("to", 0), "DequantizeLinear": ("output_dtype", 1), "EyeLike": ("dtype", 0),
    "HammingWindow": ("output_datatype", 0), "HannWindow": ("output_datatype", 0),
    "MelWeightMatrix": ("output_datatype", 0), "Multinomial": ("dtype", 0),
    "RandomNormal": ("dtype", 0), "RandomNormalLike": ("dtype", 0), "RandomUniform": ("dtype", 0),
    "RandomUniformLike": ("dtype", 0),
}  # fmt: skip


# Operators whose outputs are their subgraphs' outputs. FlexAttention's subgraphs only modify its
# scores.
_CONTROL = frozenset({"If", "Loop", "Scan", "SequenceMap"})


_LEARNED_VALUES = {
    "values_floats": "tensor(float)", "values_int64s": "tensor(int64)",
    "values_strings": "tensor(string)",
}  # fmt: skip
_CAST_MAPS = {
    b"TO_FLOAT": "tensor(float)",
    b"TO_INT64": "tensor(int64)",
    b"TO_STRING": "tensor(string)",
}


@dataclass(frozen=True, slots=True)
class TypedScope:
    """Types of a graph's values as schema strings ("seq(tensor(float16))"), with captured ones.

    `bodies` is keyed by (position of the node, attribute). An unknown type is the empty string.
    """

    types: ChainMap[str, str]
    bodies: dict[tuple[int, str], "TypedScope"] = field(default_factory=dict)


def value_types(model: onnx.ModelProto) -> TypedScope:
    """Infer the type of every value of a model without local functions."""
    return _infer_graph(
        model.graph, ChainMap(), {entry.domain: entry.version for entry in model.opset_import}, ()
    )


def type_text(proto: onnx.TypeProto) -> str:
    """A type as schema string; empty if undefined."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return _tensor_text(proto.tensor_type.elem_type)
        case "sparse_tensor_type":
            return f"sparse_{_tensor_text(proto.sparse_tensor_type.elem_type)}"
        case "sequence_type":
            return f"seq({type_text(proto.sequence_type.elem_type)})"
        case "optional_type":
            return f"optional({type_text(proto.optional_type.elem_type)})"
        case _:
            return ""


def _tensor_text(element: int) -> str:
    return f"tensor({TensorProto.DataType.Name(element).lower()})" if element else ""


def _strip(text: str, *wrappers: str) -> str:
    for wrapper in wrappers:
        if text.startswith(f"{wrapper}("):
            return text[len(wrapper) + 1 : -1]
    return text


@cache
def _schema(domain: str, op: str, version: int) -> onnx.defs.OpSchema | None:
    domain = canonical(domain)
    try:
        return onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None


def find_node_schema(node: onnx.NodeProto, opsets: dict[str, int]) -> onnx.defs.OpSchema | None:
    version = opsets.get(node.domain, opsets.get("ai.onnx" if not node.domain else "", 1))
    return _schema(node.domain, node.op_type, version)


def _infer_graph(
    graph: onnx.GraphProto,
    outer: ChainMap[str, str],
    opsets: dict[str, int],
    formals: Sequence[str],
) -> TypedScope:
    """Infer the types of one graph. `formals` are the types of its inputs, as far as known."""
    scope = TypedScope(outer.new_child())
    types = scope.types
    for position, port in enumerate(graph.input):
        actual = formals[position] if position < len(formals) else ""
        types[port.name] = actual or type_text(port.type)
    types.update({tensor.name: _tensor_text(tensor.data_type) for tensor in graph.initializer})
    # Runtimes expand sparse initializers to dense tensors.
    for sparse in graph.sparse_initializer:
        types[sparse.values.name] = _tensor_text(sparse.values.data_type)
    declared = {port.name: type_text(port.type) for port in (*graph.value_info, *graph.output)}
    for index, node in enumerate(graph.node):
        inputs = [types.get(name, "") for name in node.input]
        bodies = []
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                body = _infer_graph(attribute.g, types, opsets, _formal_types(node, inputs, opsets))
                scope.bodies[index, attribute.name] = body
                bodies.append([body.types.get(port.name, "") for port in attribute.g.output])
        if bodies and node.op_type in _CONTROL:
            outputs = _control_types(node, bodies)
        else:
            outputs = _output_types(node, inputs, find_node_schema(node, opsets))
        for name, text in zip(node.output, outputs, strict=False):
            if name:
                types[name] = text or declared.get(name, "")
    return scope


def _formal_types(node: onnx.NodeProto, inputs: list[str], opsets: dict[str, int]) -> list[str]:
    """Types of a subgraph's inputs, from the operands of its node."""
    match node.op_type:
        case "Loop":
            return ["tensor(int64)", "tensor(bool)", *inputs[2:]]
        case "Scan":
            # Scan-8 starts with the sequence lengths.
            return inputs[1:] if opsets.get("", 9) < 9 else inputs
        case "SequenceMap":
            return [_strip(text, "seq") for text in inputs]
        case _:
            return []


def _control_types(node: onnx.NodeProto, bodies: list[list[str]]) -> list[str]:
    """Types of a control-flow node's outputs, from its subgraphs' outputs."""
    merged = [next(filter(None, texts), "") for texts in zip(*bodies, strict=False)]
    match node.op_type:
        case "Loop":
            return merged[1:]
        case "SequenceMap":
            return [f"seq({text})" for text in merged]
        case _:
            return merged


def _output_types(
    node: onnx.NodeProto, inputs: list[str], schema: onnx.defs.OpSchema | None
) -> list[str]:
    """Types of the outputs of a node that is no control flow."""
    special = _special_type(node, inputs, schema)
    if special:
        return [special] * len(node.output)
    if schema is None:  # an unknown operator: assume the type of its first float input
        floating = [text for text in inputs if "float" in text]
        return ["" if not floating else floating[0]] * len(node.output)
    bound: dict[str, str] = {}
    for position, text in enumerate(inputs):
        port = schema.inputs[min(position, len(schema.inputs) - 1)]
        if text and (port.is_homogeneous or position < len(schema.inputs)):
            bound.setdefault(port.type_str, text)
    stash = _attribute(node, schema, "stash_type")
    allowed = {
        variable.type_param_str: variable.allowed_type_strs for variable in schema.type_constraints
    }
    result = []
    for position in range(len(node.output)):
        variable = schema.outputs[min(position, len(schema.outputs) - 1)].type_str
        if variable not in allowed:
            result.append(variable)
        elif variable in bound:
            result.append(bound[variable])
        elif stash and position:
            result.append(_tensor_text(stash))  # Mean and InvStdDev of LayerNormalization
        elif len(allowed[variable]) == 1:
            result.append(allowed[variable][0])
        elif node.domain == "ai.onnx.ml":
            result.append(_learned_type(node, inputs))
        else:  # unbound: without a past state, LinearAttention's state has the query's type
            result.append(inputs[0] if inputs and inputs[0] in allowed[variable] else "")
    return result


def _learned_type(node: onnx.NodeProto, inputs: list[str]) -> str:
    """Output type of an ai.onnx.ml operator from its attributes; empty if unknown."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    match node.op_type:
        case "LabelEncoder" | "CategoryMapper":
            if "values_tensor" in attributes:
                return _tensor_text(attributes["values_tensor"].t.data_type)
            stated = next(
                (text for name, text in _LEARNED_VALUES.items() if name in attributes), ""
            )
            # Older versions map strings to indices, and indices to strings.
            return stated or {
                "tensor(string)": "tensor(int64)",
                "tensor(int64)": "tensor(string)",
            }.get(inputs[0], "")
        case "CastMap":
            return _CAST_MAPS.get(
                attributes["cast_to"].s if "cast_to" in attributes else b"TO_FLOAT", ""
            )
        case "LinearClassifier" | "SVMClassifier" | "TreeEnsembleClassifier":
            return "tensor(string)" if "classlabels_strings" in attributes else "tensor(int64)"
        case _:
            return ""


def _special_type(
    node: onnx.NodeProto, inputs: list[str], schema: onnx.defs.OpSchema | None
) -> str:
    """Output type of operators that schema variables do not determine; empty for all others."""
    first = inputs[0] if inputs else ""
    match node.op_type:
        case "SequenceConstruct" | "SplitToSequence":
            return f"seq({first})"
        case "SequenceAt" | "ConcatFromSequence":
            return _strip(first, "seq")
        case "SequenceEmpty":
            return f"seq({_tensor_text(_attribute(node, schema, 'dtype') or TensorProto.FLOAT)})"
        case "Optional":
            declared = next((type_text(a.tp) for a in node.attribute if a.name == "type"), "")
            return f"optional({declared or first})"
        case "OptionalGetElement":
            return _strip(first, "optional")
        case "Constant" | "ConstantOfShape":
            return _constant_type(node)
        case op if op in _TYPED_BY_ATTRIBUTE:
            name, like = _TYPED_BY_ATTRIBUTE[op]
            element = _attribute(node, schema, name)
            return _tensor_text(element) if element else inputs[like] if like < len(inputs) else ""
        case _:
            return ""


def _constant_type(node: onnx.NodeProto) -> str:
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return _tensor_text(attribute.t.data_type)
            case "sparse_value":
                return _tensor_text(attribute.sparse_tensor.values.data_type)
            case "value_int" | "value_ints":
                return "tensor(int64)"
            case "value_string" | "value_strings":
                return "tensor(string)"
    return "tensor(float)"


def _attribute(node: onnx.NodeProto, schema: onnx.defs.OpSchema | None, name: str) -> int:
    """The value of an integer attribute, else its default, else 0."""
    for attribute in node.attribute:
        if attribute.name == name:
            return int(attribute.i)
    if schema is not None and name in schema.attributes:
        return int(schema.attributes[name].default_value.i)
    return 0
