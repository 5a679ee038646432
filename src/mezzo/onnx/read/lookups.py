"""Lazy lookups for planner rules: exported modules of nodes, shapes, small integer constants."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Value
from mezzo.onnx.schema.shapes import Shape

# PyTorch's exporter lists the enclosing modules, outermost first, then the node's own name.
_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST_SCOPES = 10_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


_Entry = TypeVar("_Entry")


class _Lookup(Mapping[int, _Entry]):
    """A mapping of ids from 0, whose entries are computed by `get` when asked for."""

    count: int

    def __getitem__(self, key: int) -> _Entry:
        entry = self.get(key)
        if entry is None:
            raise KeyError(key)
        return entry

    def __iter__(self) -> Iterator[int]:
        return (key for key in range(self.count) if self.get(key) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Modules(_Lookup[str]):
    """PyTorch module path by node id, if the exporter recorded it; "" is the model."""

    def __init__(self, protos: Sequence[onnx.NodeProto | None]) -> None:
        self._protos, self.count = protos, len(protos)

    def get(self, node: int, default: str | None = None) -> str | None:  # type: ignore[override]
        """The path, or the default if none is recorded."""
        proto = self._protos[node]
        for entry in () if proto is None else proto.metadata_props:
            if (
                entry.key == _NAME_SCOPES
                and isinstance(entry.value, str)
                and len(entry.value) <= _LONGEST_SCOPES
            ):
                scopes: list[str] = [
                    single or double for single, double in _QUOTED.findall(entry.value)
                ]
                if len(scopes) > 1:
                    return scopes[-2]
        return default


class Shapes(Mapping[int, Shape]):
    """Shapes by value id, of weights as stored, of others as inferred; computed on first use."""

    def __init__(
        self,
        inferred: Mapping[str, Shape],
        values: Sequence[Value],
        tensors: Mapping[int, onnx.TensorProto],
    ) -> None:
        self._inferred, self._values, self._tensors = inferred, values, tensors

    @cached_property
    def _known(self) -> dict[int, Shape]:
        inferred = self._inferred
        shapes = {
            number: shape
            for number, value in enumerate(self._values)
            if (shape := inferred.get(value.name)) is not None
        }
        shapes |= {number: tuple(tensor.dims) for number, tensor in self._tensors.items()}
        return shapes

    def __getitem__(self, value: int) -> Shape:
        return self._known[value]

    def get(self, value: int, default: Shape | None = None) -> Shape | None:  # type: ignore[override]  # the one default
        """The shape or the default, without the cost of an exception."""
        return self._known.get(value, default)

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class ConstantIntegers(_Lookup[tuple[int, ...]]):
    """Elements of small integer constants by value id, decoded on first use."""

    def __init__(
        self, values: Sequence[Value], tensors: Mapping[int, onnx.TensorProto],
        nodes: Sequence[Node], protos: Sequence[onnx.NodeProto | None],
    ) -> None:  # fmt: skip
        self._values, self._tensors, self._nodes, self._protos = values, tensors, nodes, protos
        self.count = len(values)
        self._decoded: dict[int, tuple[int, ...] | None] = {}

    def get(self, value: int, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:  # type: ignore[override]
        """The elements, or the default if the value is no small integer constant."""
        if value not in self._decoded:
            self._decoded[value] = self._decode(value)
        numbers = self._decoded[value]
        return default if numbers is None else numbers

    def _decode(self, value: int) -> tuple[int, ...] | None:
        entry = self._values[value]
        if entry.dtype not in _INTEGERS or entry.elements > _FEW:
            return None
        tensor = self._tensors.get(value)
        if tensor is not None:
            numbers = _small_integers(tensor)
            return None if numbers is None else tuple(numbers)
        node = self._nodes[entry.producer]
        proto = self._protos[node.id]
        if node.kind is not Kind.SOURCE or proto is None or proto.op_type != "Constant":
            return None
        for attribute in proto.attribute:
            if attribute.name == "value_int":
                return (attribute.i,)
            if attribute.name == "value_ints":
                return tuple(attribute.ints)
        return None


_FEW = 16
_INTEGERS = frozenset({DType.INT64, DType.INT32, DType.INT16, DType.INT8, DType.UINT8})


def _small_integers(tensor: onnx.TensorProto) -> Sequence[int] | None:
    """The elements of a small tensor stored inline; None if it is external, large or malformed."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.raw_data) > 8 * _FEW:
        return None
    try:
        numbers: list[int] = onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    except (ValueError, TypeError, OverflowError):
        return None
    return numbers if len(numbers) <= _FEW else None
