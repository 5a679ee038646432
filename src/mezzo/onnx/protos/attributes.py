"""Attributes of a node, decoded lazily: a model has tens of thousands, policies need few."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx

from mezzo.common.errors import ModelError
from mezzo.formats.dtypes import DType
from mezzo.onnx.schema.types import FROM_ONNX

NONE: Mapping[str, object] = MappingProxyType({})
_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS, _STRINGS = (
    onnx.AttributeProto.FLOAT, onnx.AttributeProto.INT, onnx.AttributeProto.STRING,
    onnx.AttributeProto.TENSOR, onnx.AttributeProto.FLOATS, onnx.AttributeProto.INTS,
    onnx.AttributeProto.STRINGS,
)  # fmt: skip


class NodeAttributes(Mapping[str, object]):
    """Numbers, strings and tuples of them by name, without tensors and graphs."""

    __slots__ = ("_proto",)

    def __init__(self, proto: onnx.NodeProto) -> None:
        self._proto = proto

    def __getitem__(self, name: str) -> object:
        value = self.get(name)
        if value is None:
            raise KeyError(name)
        return value

    def get(self, name: str, default: object = None) -> object:
        """The value or the default, without the cost of an exception."""
        for attribute in self._proto.attribute:
            if attribute.name == name:
                value = decode(attribute)
                return default if value is None else value
        return default

    def __bool__(self) -> bool:
        """Always true, as counting would decode all attributes."""
        return True

    def __iter__(self) -> Iterator[str]:
        return (a.name for a in self._proto.attribute if decode(a) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def decode(attribute: onnx.AttributeProto) -> object:
    """An attribute's Python value; None for tensors, graphs and references to attributes."""
    if attribute.ref_attr_name:
        return None
    kind = attribute.type
    if kind == _INT:
        return attribute.i
    if kind == _FLOAT:
        return attribute.f
    if kind == _STRING:
        return attribute.s.decode("utf-8", "replace")
    if kind == _INTS:
        return tuple(attribute.ints)
    if kind == _FLOATS:
        return tuple(attribute.floats)
    if kind == _STRINGS:
        return tuple(s.decode("utf-8", "replace") for s in attribute.strings)
    return None


def find(proto: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """Find an attribute by name."""
    attribute: onnx.AttributeProto
    for attribute in proto.attribute:
        if attribute.name == name:
            return attribute
    return None


def read_int(proto: onnx.NodeProto, name: str, default: int) -> int:
    """The value of an integer attribute, or its default."""
    attribute = find(proto, name)
    return default if attribute is None else attribute.i


def read_float(proto: onnx.NodeProto, name: str, default: float) -> float:
    """The value of a float attribute, or its default."""
    attribute = find(proto, name)
    return default if attribute is None else attribute.f


# Attributes of a function call, by the names that the function's body refers to.
Environment = Mapping[str, onnx.AttributeProto]


def resolve(attribute: onnx.AttributeProto, environment: Environment) -> onnx.AttributeProto | None:
    """Resolve a reference to a function's attribute; None if the caller omits it."""
    return environment.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute


def dtype_of(proto: onnx.NodeProto, name: str, environment: Environment) -> DType | None:
    """Element type in a dtype attribute, or of a tensor attribute; None if absent or UNDEFINED.

    Raises:
        ModelError: the number is no element type.
    """
    attribute = find(proto, name)
    resolved = None if attribute is None else resolve(attribute, environment)
    if resolved is None:
        return None
    number = resolved.t.data_type if resolved.type == _TENSOR else resolved.i
    if number == 0:
        return None
    dtype = FROM_ONNX.get(number)
    if dtype is None:
        raise ModelError(
            f"node {proto.name!r} ({proto.op_type}): attribute {name!r} names element type"
            f" {number}, which ONNX {onnx.__version__} does not define; upgrade onnx or mend the"
            " model"
        )
    return dtype


def constant_tensor(attribute: onnx.AttributeProto) -> onnx.TensorProto | None:
    """The tensor of a Constant, also of value_float(s); None for value_int(s) and strings."""
    name = attribute.name
    if name == "value":
        return attribute.t
    if name == "sparse_value":
        return attribute.sparse_tensor.values
    if name == "value_float":
        return onnx.numpy_helper.from_array(np.array(attribute.f, np.float32))
    if name == "value_floats":
        return onnx.numpy_helper.from_array(np.array(attribute.floats, np.float32))
    return None


def own_tensor(proto: onnx.NodeProto, tensor: onnx.TensorProto) -> onnx.TensorProto:
    """The tensor in a Constant, to be edited; other attributes (`value_floats`) become `tensor`."""
    attribute = proto.attribute[0]
    if attribute.name in ("value", "sparse_value") and not attribute.ref_attr_name:
        return tensor
    del proto.attribute[:]
    copy: onnx.TensorProto = proto.attribute.add(name="value", type=_TENSOR).t
    copy.CopyFrom(tensor)
    return copy


def set_int(proto: onnx.NodeProto, name: str, value: int) -> None:
    """Set an integer attribute, in place of any value or reference that it has."""
    attribute = find(proto, name)
    if attribute is None:
        attribute = proto.attribute.add(name=name)
    attribute.ClearField("ref_attr_name")
    attribute.type = onnx.AttributeProto.INT
    attribute.i = value
