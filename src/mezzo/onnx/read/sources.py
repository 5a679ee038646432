"""Reading of Constants and Casts: values available in any dtype, and existing casts."""

import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import HIGH, DType
from mezzo.ir.nodes import Kind, Role, Signature, Use
from mezzo.onnx.protos.attributes import constant_tensor, dtype_of, resolve
from mezzo.onnx.read.builder import GraphBuilder
from mezzo.onnx.read.frames import ANY_FLOAT, Frame, pseudo_signature
from mezzo.onnx.schema.types import FROM_ONNX, element_dtype

_PLAIN_CAST = Signature(
    dialect="onnx",
    op="Cast",
    version=0,
    inputs=(Role.ANY,),
    outputs=(Role.FIXED,),
    dtype=None,
    legal=frozenset(),
)


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
    title = reader.unique(frame, proto.name or f"Constant:{proto.output[0]}")
    node = reader.add_node(
        title, Kind.SOURCE, signature, frame.scope, (), (len(reader.values),), proto
    )
    count = max(len(attribute.ints), len(attribute.strings), 1)
    frame.env.names[proto.output[0]] = reader.add_value(
        proto.output[0], dtype, node, frame.scope, count
    )


def note_generated(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, value: int) -> None:
    """Record a ConstantOfShape's fill number as the facts of its result `value`."""
    for attribute in (
        proto.attribute
        if proto.op_type == "ConstantOfShape" and proto.output and proto.output[0]
        else ()
    ):
        resolved = resolve(attribute, frame.attributes)
        if (
            resolved is not None
            and attribute.name == "value"
            and FROM_ONNX.get(resolved.t.data_type) in (HIGH, reader.low)
        ):
            reader.constants[value] = reader.facts_of(resolved.t)


def read_cast(reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto) -> None:
    """Read a Cast. One that widens from `low`, or changes nothing, is an alias; one that narrows to
    `low` is a CAST node; one from another type to FP32 is a source.
    """
    number = len(reader.nodes)
    target = dtype_of(proto, "to", frame.attributes)
    name = proto.output[0]
    value, source_type = reader.operand(frame, proto, 0, number)
    if value is None or target is None:
        raise ModelError(
            f"node {proto.name or name!r} (Cast) lacks its operand or its 'to'; mend the model"
        )
    source = element_dtype(source_type)
    use = Use(number, 0)
    value_dtype = reader.values[value].dtype
    if reader.low is None:
        _read_plain_cast(reader, frame, proto, value, target)
        return
    if reader.is_planned(value_dtype) and target is HIGH and source_type in (HIGH, reader.low):
        reader.widened.discard(use)
        reader.aliased.discard(use)
        reader.handles.casts.append((frame.scope, proto))
        frame.env.names[name] = ~value
        if reader.values[value].scope == frame.scope:
            reader.add_form((value, HIGH), name, None)
        return
    if value_dtype is reader.low and target is reader.low:
        reader.widened.discard(use)
        reader.aliased.discard(use)
        reader.handles.casts.append((frame.scope, proto))
        frame.env.names[name] = value
        return
    title = reader.unique(frame, proto.name or f"Cast:{name}")
    elements = reader.elements(name, (value,))
    assert reader.low is not None, "types alone are read by _read_plain_cast"
    if source is HIGH and target is reader.low:
        signature = pseudo_signature("Cast", 1, 1, reader.low, frozenset({reader.low}))
        kind = Kind.CAST
        reader.handles.casts.append((frame.scope, proto))
        if reader.values[value].scope == frame.scope:
            reader.add_form((value, reader.low), name, number)
    elif target is HIGH:
        signature = Signature(
            dialect="onnx",
            op="Cast",
            version=0,
            inputs=(Role.ANY,),
            outputs=(Role.GROUP,),
            dtype=HIGH,
            legal=ANY_FLOAT,
        )
        kind = Kind.SOURCE
    else:
        signature = _PLAIN_CAST
        kind = Kind.OP
    reader.add_node(title, kind, signature, frame.scope, (value,), (len(reader.values),), proto)
    frame.env.names[name] = reader.add_value(name, target, number, frame.scope, elements)


def _read_plain_cast(
    reader: GraphBuilder, frame: Frame, proto: onnx.NodeProto, value: int, target: DType
) -> None:
    name = proto.output[0]
    title = reader.unique(frame, proto.name or f"Cast:{name}")
    number = reader.add_node(
        title, Kind.OP, _PLAIN_CAST, frame.scope, (value,), (len(reader.values),), proto
    )
    frame.env.names[name] = reader.add_value(
        name, target, number, frame.scope, reader.elements(name, (value,))
    )
