"""Maintenance of value_info, the declared types of inner values, for viewers without inference."""

from collections.abc import Iterable, Mapping, Sequence

import onnx
import onnx.helper

from mezzo.formats.dtypes import DType
from mezzo.onnx.schema.types import retype_proto


def stated_infos(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """Declarations of a graph's values by name; typed outputs precede value_info."""
    typed = [info for info in graph.output if info.type.WhichOneof("value")]
    return {info.name: info for info in (*graph.output, *graph.value_info, *typed)}


def retype_infos(
    owner: onnx.GraphProto | onnx.FunctionProto, names: Mapping[str, tuple[str, DType]]
) -> None:
    """Rename and retype value_info entries; `names` maps old names to new names and dtypes."""
    for info in owner.value_info:
        if info.name in names:
            info.name, dtype = names[info.name]
            retype_proto(info.type, dtype)


def state_shapes(
    owner: onnx.GraphProto | onnx.FunctionProto, shaped: Iterable[tuple[str, Sequence[int]]]
) -> None:
    """Declare values as FP32 with shapes, if the graph has any value_info."""
    if isinstance(owner, onnx.GraphProto) and owner.value_info:
        owner.value_info.extend(_float_info(name, dims) for name, dims in shaped)


def state_own(
    owner: onnx.GraphProto | onnx.FunctionProto, name: str, dims: Sequence[int | str | None] | None
) -> None:
    """Declare a contrib operator's output as FP32, with its shape if known."""
    if isinstance(owner, onnx.FunctionProto):
        return
    if not any(info.name == name for info in (*owner.value_info, *owner.output)):
        owner.value_info.append(_float_info(name, dims))


def _float_info(name: str, dims: Sequence[int | str | None] | None) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims)


def state_casts(
    owner: onnx.GraphProto | onnx.FunctionProto, casts: Iterable[tuple[str, str, DType]]
) -> None:
    """Declare results of casts (operand, result, dtype), if the graph declares the operand."""
    if not isinstance(owner, onnx.GraphProto):
        return
    # An input's type precedes a value_info.
    stated = stated_infos(owner) | {info.name: info for info in owner.input}
    for operand, result, dtype in casts:
        source = stated.get(operand)
        if source is not None and result not in stated:
            info = owner.value_info.add()
            info.CopyFrom(source)
            info.name = result
            retype_proto(info.type, dtype)
