"""The typed text of a model, as `mezzo show` prints it and golden tests compare it: one line per
input, weight, node and output, in the model's order.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx

from mezzo.common.errors import ModelError
from mezzo.onnx.protos.attributes import decode
from mezzo.onnx.protos.graphs import Owner, all_graphs
from mezzo.onnx.read.read import Reader, no_facts
from mezzo.onnx.schema.domains import DEFAULT
from mezzo.onnx.schema.shapes import KnownShapes, infer
from mezzo.onnx.schema.types import FROM_ONNX, Aggregate, ValueType

_Shapes = Mapping[str, str]
_INDENT = "  "
# Longer attribute texts are cut: they come from the model and may be of any length.
_LONGEST = 200


def show_model(model: onnx.ModelProto) -> str:
    """Every input, weight, node and output with its type; elements of small constants only."""
    typed = _Types(model)
    lines = list(
        _graph_lines(model.graph, typed, "", is_main=True, is_overridable=model.ir_version >= 4)
    )
    for function in model.functions:
        lines += [
            "",
            f"function {function.domain or 'ai.onnx'}.{function.name}({', '.join(function.input)})",
        ]
        lines += [
            f"{_INDENT}{line}"
            for node in function.node
            for line in _node_lines(node, typed, function, "")
        ]
        lines.append(f"{_INDENT}return {', '.join(function.output)}")
    return "\n".join(map(_printable, lines)) + "\n"


def _printable(line: str) -> str:
    """Escape control characters: names come from the model, and must not fake lines or colors."""
    return (
        line
        if line.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    )


class _Types:
    """Types by owner and name; shapes by name, declared or inferred."""

    def __init__(self, model: onnx.ModelProto) -> None:
        reader = Reader(model, (), KnownShapes({}, {}), no_facts)
        try:
            reader.read()
        except ModelError:
            if not reader.values:
                raise
        owners = reader.handles.owners
        self._types: dict[tuple[int, str], ValueType] = {}
        self._keep = owners  # keeps the objects alive, so that their ids stay unique
        for value, value_type in zip(reader.values, reader.types, strict=True):
            self._types[id(owners[value.scope]), value.name] = value_type
        # Calls are typed in copies of their functions; the function is shown with the first call's
        # types.
        self._functions = {(f.domain, f.name, f.overload): f for f in model.functions}
        for value, value_type in zip(reader.values, reader.types, strict=True):
            container = reader.handles.containers[value.scope]
            if container.key is not None and owners[value.scope] is container.root:
                self._types.setdefault((id(self._functions[container.key]), value.name), value_type)
        self.shapes = _shapes(model)

    def text(self, owner: Owner, name: str) -> str:
        value_type = self._types.get((id(owner), name))
        return type_text(value_type) + self.shapes.get(name, "")


def type_text(value_type: ValueType) -> str:
    if value_type is None:
        return "?"
    if isinstance(value_type, Aggregate):
        return value_type.shape.replace("tensor({})", "{}").format(value_type.dtype or "?")
    return str(value_type)


def _shapes(model: onnx.ModelProto) -> dict[str, str]:
    shapes: dict[str, str] = {}
    for graph in all_graphs(infer(model).graph):
        for info in (*graph.value_info, *graph.input, *graph.output):
            tensor = info.type.tensor_type
            if tensor.HasField("shape"):
                dims = (
                    str(d.dim_value) if d.HasField("dim_value") else _symbol(d.dim_param)
                    for d in tensor.shape.dim
                )
                shapes[info.name] = f"[{','.join(dims)}]"
    return shapes


def _symbol(name: str) -> str:
    """A symbolic dimension; "?" for one that inference has generated."""
    return "?" if not name or name.startswith("unk__") else name


def _graph_lines(
    graph: onnx.GraphProto,
    typed: _Types,
    indent: str,
    *,
    is_main: bool,
    is_overridable: bool = False,
) -> Iterator[str]:
    weights = {tensor.name for tensor in graph.initializer}
    for info in graph.input:
        if info.name not in weights or is_overridable:
            word = "input " if is_main else "given "
            yield f"{indent}{word} {info.name}: {typed.text(graph, info.name)}"
    for tensor in graph.initializer:
        yield f"{indent}weight {tensor.name}: {_dense_type(tensor.data_type, tensor.dims)}"
    for sparse in graph.sparse_initializer:
        text = _dense_type(sparse.values.data_type, sparse.dims)
        yield f"{indent}sparse {sparse.values.name}: {text}"
    for node in graph.node:
        yield from _node_lines(node, typed, graph, indent)
    for info in graph.output:
        yield f"{indent}{'output' if is_main else 'yield '} {info.name}"


def _node_lines(node: onnx.NodeProto, typed: _Types, owner: Owner, indent: str) -> Iterator[str]:
    results = ", ".join(
        f"{name}: {typed.text(owner, name)}" if name else "_" for name in node.output
    )
    domain = "" if node.domain in DEFAULT else f"{node.domain}."
    plain = [
        a
        for a in node.attribute
        if a.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
    ]
    bodies = [a for a in node.attribute if a.type == onnx.AttributeProto.GRAPH]
    attributes = ", ".join(
        f"{a.name}={_attribute_text(a)}" for a in sorted(plain, key=lambda a: a.name)
    )
    braces = f"{{{attributes}}}" if attributes else ""
    yield (
        f"{indent}{results} ="
        f" {domain}{node.op_type}({', '.join(name or '_' for name in node.input)}){braces}"
    )
    for attribute in bodies:
        yield f"{indent}{_INDENT}{attribute.name}:"
        yield from _graph_lines(attribute.g, typed, indent + 2 * _INDENT, is_main=False)


def _attribute_text(attribute: onnx.AttributeProto) -> str:
    if attribute.ref_attr_name:
        return f"@{attribute.ref_attr_name}"
    if attribute.name in ("to", "dtype", "output_datatype", "output_dtype", "stash_type"):
        return str(FROM_ONNX.get(attribute.i, attribute.i))
    if attribute.type == onnx.AttributeProto.TENSOR:
        return _tensor_text(attribute.t)
    if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:
        return f"sparse {_tensor_text(attribute.sparse_tensor.values)}"
    value = decode(attribute)
    if isinstance(value, tuple):
        return f"[{','.join(map(_number_text, value))}]"[:_LONGEST]
    return repr(value)[:_LONGEST] if isinstance(value, str) else _number_text(value)


def _number_text(number: object) -> str:
    return f"{number:.7g}" if isinstance(number, float) else str(number)


def _dense_type(element: int, dims: Sequence[int]) -> str:
    return f"{FROM_ONNX.get(element, '?')}[{','.join(map(str, dims))}]"


def _tensor_text(tensor: onnx.TensorProto) -> str:
    head = _dense_type(tensor.data_type, tensor.dims)
    if math.prod(tensor.dims) > 4 or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return head
    try:
        numbers = onnx.numpy_helper.to_array(tensor).ravel().tolist()
    except (ValueError, TypeError):
        return head
    return f"{head}({', '.join(map(_number_text, numbers))})"
