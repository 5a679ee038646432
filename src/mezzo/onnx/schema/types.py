"""Conversion of ONNX types to mezzo's: element types, type strings and TypeProtos."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx

from mezzo.formats.dtypes import DType


class Aggregate(NamedTuple):
    """A type that holds tensors and cannot be cast: a sequence, an optional or a sparse tensor.

    `shape` is the type string around the element type, `{}` in its place: "seq(tensor({}))".
    """

    shape: str
    dtype: DType | None


# None: the type could not be derived.
ValueType = DType | Aggregate | None

# The type of a present operand that could not be derived; None in its place means an absent
# operand.
UNKNOWN = Aggregate("?", None)

_NAMES = {
    DType.FLOAT64: "double", DType.FLOAT32: "float", DType.FLOAT16: "float16",
    DType.BFLOAT16: "bfloat16", DType.FLOAT8E4M3FN: "float8e4m3fn",
    DType.FLOAT8E4M3FNUZ: "float8e4m3fnuz", DType.FLOAT8E5M2: "float8e5m2",
    DType.FLOAT8E5M2FNUZ: "float8e5m2fnuz", DType.FLOAT8E8M0: "float8e8m0",
    DType.FLOAT6E2M3: "float6e2m3", DType.FLOAT6E3M2: "float6e3m2", DType.FLOAT4E2M1: "float4e2m1",
    DType.INT64: "int64", DType.INT32: "int32", DType.INT16: "int16", DType.INT8: "int8",
    DType.INT4: "int4", DType.INT2: "int2", DType.UINT64: "uint64", DType.UINT32: "uint32",
    DType.UINT16: "uint16", DType.UINT8: "uint8", DType.UINT4: "uint4", DType.UINT2: "uint2",
    DType.BOOL: "bool", DType.STRING: "string", DType.COMPLEX64: "complex64",
    DType.COMPLEX128: "complex128",
}  # fmt: skip
_BY_NAME = {name: dtype for dtype, name in _NAMES.items()}

# Element type numbers of TensorProto.DataType, both ways. Older onnx packages lack the newest
# types.
TO_ONNX: dict[DType, int] = {
    dtype: onnx.TensorProto.DataType.Value(dtype.name)
    for dtype in DType
    if dtype.name in onnx.TensorProto.DataType.keys()  # noqa: SIM118  a protobuf enum wrapper, not a dict
} | {DType.FLOAT32: 1, DType.FLOAT64: 11}
FROM_ONNX: dict[int, DType] = {number: dtype for dtype, number in TO_ONNX.items()}


def type_string(value_type: DType | Aggregate) -> str:
    """A type as string of ONNX schemas: "tensor(float)", "seq(tensor(float16))"."""
    if isinstance(value_type, DType):
        return f"tensor({_NAMES[value_type]})"
    assert value_type.dtype is not None, "an aggregate without element type has no type string"
    return value_type.shape.format(_NAMES[value_type.dtype])


def parse_type_string(text: str) -> DType | Aggregate:
    """Parse a concrete type string of a schema. Inverse of `type_string`."""
    element = text[text.rindex("(") + 1 : text.index(")")]
    dtype = _BY_NAME[element]
    if text == f"tensor({element})":
        return dtype
    return Aggregate(text.replace(element, "{}"), dtype)


def make_port(name: str, text: str) -> onnx.ValueInfoProto:
    """Declare a value from a concrete type string of a schema, with unknown shape."""
    *words, element = text.rstrip(")").split("(")
    kind = onnx.helper.make_tensor_type_proto(TO_ONNX[_BY_NAME[element]], None)
    for word in reversed(words[:-1]):
        make = (
            onnx.helper.make_sequence_type_proto
            if word == "seq"
            else onnx.helper.make_optional_type_proto
        )
        kind = make(kind)
    return onnx.helper.make_value_info(name, kind)


def from_type_proto(proto: onnx.TypeProto) -> ValueType:
    """Convert a declared type; None if missing or without tensors (maps, opaque types)."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        return FROM_ONNX.get(proto.tensor_type.elem_type)
    if kind == "sparse_tensor_type":
        return Aggregate("sparse_tensor({})", FROM_ONNX.get(proto.sparse_tensor_type.elem_type))
    if kind in ("sequence_type", "optional_type"):
        inner = from_type_proto(getattr(proto, kind).elem_type)
        word = "seq" if kind == "sequence_type" else "optional"
        if isinstance(inner, DType):
            return Aggregate(f"{word}(tensor({{}}))", inner)
        if isinstance(inner, Aggregate):
            return Aggregate(f"{word}({inner.shape})", inner.dtype)
    return None


def tensor_type_of(
    proto: onnx.TypeProto,
) -> onnx.TypeProto.Tensor | onnx.TypeProto.SparseTensor | None:
    """The tensor type in a declared type, through sequences and optionals; None without tensors."""
    match proto.WhichOneof("value"):
        case "tensor_type":
            return proto.tensor_type
        case "sparse_tensor_type":
            return proto.sparse_tensor_type
        case "sequence_type":
            return tensor_type_of(proto.sequence_type.elem_type)
        case "optional_type":
            return tensor_type_of(proto.optional_type.elem_type)
        case _:
            return None


def retype_proto(proto: onnx.TypeProto, dtype: DType) -> None:
    """Change the element type of a declared type in place, through sequences and optionals."""
    tensor = tensor_type_of(proto)
    if tensor is not None:
        tensor.elem_type = TO_ONNX[dtype]


def state_type(
    proto: onnx.TypeProto, value_type: ValueType, shape: Sequence[int | None] | None = None
) -> None:
    """Complete a declaration, in place: the element type if missing, the shape if it is empty."""
    kind = proto.WhichOneof("value")
    if (
        not isinstance(value_type, DType)
        or kind not in (None, "tensor_type")
        or proto.tensor_type.elem_type
    ):
        return
    proto.tensor_type.elem_type = TO_ONNX[value_type]
    for size in shape or () if kind is None else ():
        dim = proto.tensor_type.shape.dim.add()
        if size is not None:
            dim.dim_value = size


def element_dtype(value_type: ValueType) -> DType | None:
    return value_type.dtype if isinstance(value_type, Aggregate) else value_type


def with_element(value_type: DType | Aggregate, dtype: DType) -> DType | Aggregate:
    return value_type._replace(dtype=dtype) if isinstance(value_type, Aggregate) else dtype
