"""Reading of Constants and Casts: values available in any dtype, and existing casts."""

from dataclasses import replace

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Role, Signature, Use
from mezzo.onnx.protos.attributes import constant_tensor, dtype_of, find, resolve
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Frame, pseudo_signature
from mezzo.onnx.schema.types import FROM_ONNX, ValueType, element_dtype

_PLAIN_CAST = Signature(
    dialect="onnx",
    op="Cast",
    version=0,
    inputs=(Role.ANY,),
    outputs=(Role.FIXED,),
    dtype=None,
    legal=frozenset(),
)
_SOURCE_CAST = replace(_PLAIN_CAST, outputs=(Role.GROUP,), dtype=HIGH, legal=ANY_FLOAT)


def read_constant(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    attribute = resolve(proto.attribute[0], frame.attributes) if proto.attribute else None
    if attribute is None:
        raise ModelError(
            f"node {proto.name or proto.output[0]!r} (Constant) holds no value; give it one of its"
            " attributes"
        )
    tensor = constant_tensor(attribute) if not proto.attribute[0].ref_attr_name else attribute.t
    if tensor is not None and (attribute.t.data_type or attribute.name != "value"):
        reader.add_weight(frame, proto.output[0], tensor, None, proto)
        return
    dtype = DType.STRING if attribute.name in ("value_string", "value_strings") else DType.INT64
    signature = pseudo_signature("constant", 0, 1, None, frozenset())
    name = proto.output[0]
    title = reader.unique(frame, proto.name or f"Constant:{name}")
    count = max(len(attribute.ints), len(attribute.strings), 1)
    reader.add_producer(frame, title, Kind.SOURCE, signature, (), proto, name, dtype, count)


def note_generated(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, value: int) -> None:
    """Record a ConstantOfShape's fill number as the facts of its result `value`."""
    if proto.op_type != "ConstantOfShape" or not any(proto.output):
        return
    attribute = find(proto, "value")
    resolved = None if attribute is None else resolve(attribute, frame.attributes)
    if resolved is not None and FROM_ONNX.get(resolved.t.data_type) in (HIGH, *reader.lows):
        reader.constants[value] = reader.facts_of(resolved.t)


def read_cast(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    """Read a Cast. One that widens from a low dtype, or changes nothing, is an alias; one that
    narrows to a low dtype is a CAST node; one from another type to FP32 is a source.
    """
    number = len(reader.nodes)
    target = dtype_of(proto, "to", frame.attributes)
    name = proto.output[0]
    value, source_type = reader.operand(frame, proto, 0, number)
    if value is None or target is None:
        raise ModelError(
            f"node {proto.name or name!r} (Cast) lacks its operand or its 'to'; mend the model"
        )
    source, value_dtype = element_dtype(source_type), reader.values[value].dtype
    is_alias = _is_alias(reader, value_dtype, source_type, target)
    if is_alias:
        use = Use(number, 0)
        reader.widened.discard(use)
        reader.aliased.discard(use)
        reader.handles.casts.append((frame.scope, proto))
        frame.env.names[name] = ~value if target is HIGH else value
        if target is HIGH and reader.values[value].scope == frame.scope:
            reader.add_form((value, HIGH), name, None)
        return
    kind, signature = Kind.OP, _PLAIN_CAST
    if source is HIGH and target in reader.lows:
        kind = Kind.CAST
        signature = pseudo_signature("Cast", 1, 1, target, frozenset({target}))
        reader.handles.casts.append((frame.scope, proto))
        if reader.values[value].scope == frame.scope:
            reader.add_form((value, target), name, number)
    elif reader.lows and target is HIGH:
        kind, signature = Kind.SOURCE, _SOURCE_CAST
    title = reader.unique(frame, proto.name or f"Cast:{name}")
    elements = reader.elements(name, (value,))
    reader.add_producer(frame, title, kind, signature, (value,), proto, name, target, elements)


def _is_alias(
    reader: GraphBuilder, value_dtype: DType | None, source_type: ValueType, target: DType
) -> bool:
    """Whether a Cast widens from a low dtype, or changes nothing."""
    if not reader.lows:
        return False
    if target is HIGH and source_type in (HIGH, *reader.lows):
        return reader.is_planned(value_dtype)
    return value_dtype is target and target in reader.lows
