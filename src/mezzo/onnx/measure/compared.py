"""Preparation of models for a comparison: their float values, and copies that return them."""

import re
from collections.abc import Iterator, Sequence
from copy import deepcopy

import onnx
from onnx import TensorProto

from mezzo.formats.dtypes import DType
from mezzo.onnx.protos.names import free_prefix
from mezzo.onnx.schema.value_types import TypedScope, value_types

_FORMATS = {
    "double": DType.FLOAT64, "float": DType.FLOAT32, "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16, "float8e4m3fn": DType.FLOAT8E4M3FN,
    "float8e4m3fnuz": DType.FLOAT8E4M3FNUZ, "float8e5m2": DType.FLOAT8E5M2,
    "float8e5m2fnuz": DType.FLOAT8E5M2FNUZ,
}  # fmt: skip
_FLOAT_TENSORS = {
    "tensor(double)": TensorProto.DOUBLE, "tensor(float)": TensorProto.FLOAT,
    "tensor(float16)": TensorProto.FLOAT16, "tensor(bfloat16)": TensorProto.BFLOAT16,
}  # fmt: skip


def float_formats(model: onnx.ModelProto) -> frozenset[DType]:
    """The float formats of all values of a model without functions, subgraphs included."""
    return frozenset().union(*map(formats_in, set(_type_texts(value_types(model)))))


def formats_in(text: str) -> frozenset[DType]:
    """The float formats in a type string of ONNX schemas, such as "seq(tensor(float16))"."""
    return frozenset(_FORMATS[word] for word in re.findall(r"\w+", text) if word in _FORMATS)


def _type_texts(scope: TypedScope) -> Iterator[str]:
    yield from scope.types.values()
    for body in scope.bodies.values():
        yield from _type_texts(body)


def float_values(model: onnx.ModelProto) -> dict[str, int]:
    """Inner float tensors of the main graph in graph order, with element types; no constants."""
    types = value_types(model).types
    outputs = {port.name for port in model.graph.output}
    produced = (
        name for node in model.graph.node if node.op_type != "Constant" for name in node.output
    )
    return {
        name: _FLOAT_TENSORS[text]
        for name in produced
        if name and name not in outputs and (text := types.get(name, "")) in _FLOAT_TENSORS
    }


def with_outputs(model: onnx.ModelProto, values: dict[str, int]) -> onnx.ModelProto:
    """A copy with inner values as further outputs; `values` maps names to element types."""
    result = deepcopy(model)
    for name, element in values.items():
        result.graph.output.add(name=name).type.tensor_type.elem_type = element
    return result


def with_sizes(
    model: onnx.ModelProto, names: Sequence[str]
) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A copy that also returns the shapes of values, and the names of those outputs by value."""
    result = deepcopy(model)
    prefix = free_prefix(model.graph, "mezzo_shape_")
    outputs = {name: f"{prefix}{number}" for number, name in enumerate(names)}
    for name, output in outputs.items():
        result.graph.node.append(onnx.helper.make_node("Shape", [name], [output]))
        result.graph.output.add(name=output).type.tensor_type.elem_type = TensorProto.INT64
    return result, outputs
