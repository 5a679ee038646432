"""What a graph states of the types of its inner values, kept true and complete for viewers that infer nothing."""

from collections.abc import Container, Iterable, Mapping, Sequence

import onnx
import onnx.helper

from mezzo.formats.dtypes import DType
from mezzo.onnx.schema.types import retype_proto


def stated_infos(graph: onnx.GraphProto) -> dict[str, onnx.ValueInfoProto]:
    """What a graph states of its values, by name; an output's own type goes before another note of it."""
    typed = [info for info in graph.output if info.type.WhichOneof("value")]
    return {info.name: info for info in (*graph.output, *graph.value_info, *typed)}


def retype_infos(owner: onnx.GraphProto | onnx.FunctionProto, names: Mapping[str, tuple[str, DType]]) -> None:
    """Give statements about values their new names and dtypes; `names` are by the old name."""
    for info in owner.value_info:
        if info.name in names:
            info.name, dtype = names[info.name]
            retype_proto(info.type, dtype)


def forget_infos(owner: onnx.GraphProto | onnx.FunctionProto, names: Container[str]) -> None:
    """Take out statements about values that are no more."""
    for at in reversed(range(len(owner.value_info))):
        if owner.value_info[at].name in names:
            del owner.value_info[at]


def state_shapes(owner: onnx.GraphProto | onnx.FunctionProto, shaped: Iterable[tuple[str, Sequence[int]]]) -> None:
    """State that values are FP32 and what their shapes are, in a graph that states anything."""
    if isinstance(owner, onnx.GraphProto) and owner.value_info:
        owner.value_info.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, dims in shaped
        )


def state_own(owner: onnx.GraphProto | onnx.FunctionProto, name: str, dims: Sequence[int | str | None] | None) -> None:
    """State that what an operator of a runtime's own makes is FP32, and its shape where that is known: ONNX's inference
    tells neither.
    """
    if isinstance(owner, onnx.FunctionProto):
        return
    if not any(info.name == name for infos in (owner.value_info, owner.output) for info in infos):
        shape = None if dims is None else [*dims]
        owner.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))


def state_casts(owner: onnx.GraphProto | onnx.FunctionProto, casts: Iterable[tuple[str, str, DType]]) -> None:
    """State the types of what casts made: (operand, result, dtype), where the graph states the operand's shape."""
    if not isinstance(owner, onnx.GraphProto):
        return
    stated = {**stated_infos(owner), **{info.name: info for info in owner.input}}  # its own type goes before a note
    for operand, result, dtype in casts:
        source = stated.get(operand)
        if source is not None and result not in stated:
            info = owner.value_info.add()
            info.CopyFrom(source)
            info.name = result
            retype_proto(info.type, dtype)
