"""What rules of a policy may ask of a model: modules and shapes, worked out when first asked for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import onnx

from mezzo.formats.dtypes import DType
from mezzo.ir.nodes import Kind, Node, Value
from mezzo.onnx.schema.shapes import Shape

# PyTorch's exporter lists the modules around a node, outermost first, and last the node's own name.
_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST_SCOPES = 10_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class Modules(Mapping[int, str]):
    """Path of the module that a node was exported from, by node id, where its exporter noted one; "" is the model."""

    def __init__(self, protos: Sequence[onnx.NodeProto | None]) -> None:
        self._protos = protos

    def __getitem__(self, node: int) -> str:
        proto = self._protos[node]
        for entry in () if proto is None else proto.metadata_props:
            if entry.key == _NAME_SCOPES and isinstance(entry.value, str) and len(entry.value) <= _LONGEST_SCOPES:
                scopes: list[str] = [single or double for single, double in _QUOTED.findall(entry.value)]
                if len(scopes) > 1:
                    return scopes[-2]
        raise KeyError(node)

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(len(self._protos)) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Shapes(Mapping[int, Shape]):
    """Shapes by value id: of weights as stored, of other values as ONNX infers them. All are looked up at the first
    question: who asks of one value asks of most.
    """

    def __init__(
        self, inferred: Mapping[str, Shape], values: Sequence[Value], tensors: Mapping[int, onnx.TensorProto]
    ) -> None:
        self._inferred, self._values, self._tensors = inferred, values, tensors

    @cached_property
    def _known(self) -> dict[int, Shape]:
        inferred = self._inferred
        known = {
            number: shape
            for number, value in enumerate(self._values)
            if (shape := inferred.get(value.name)) is not None
        }
        known |= {number: tuple(tensor.dims) for number, tensor in self._tensors.items()}
        return known

    def __getitem__(self, value: int) -> Shape:
        return self._known[value]

    def get(self, value: int, default: Shape | None = None) -> Shape | None:  # type: ignore[override]  # the one default
        """The same without an exception, which costs as much as the look."""
        return self._known.get(value, default)

    def __iter__(self) -> Iterator[int]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


class Integers(Mapping[int, tuple[int, ...]]):
    """Numbers of small integer constants, by value id; decoded when first asked for."""

    def __init__(
        self, values: Sequence[Value], tensors: Mapping[int, onnx.TensorProto], nodes: Sequence[Node],
        protos: Sequence[onnx.NodeProto | None],
    ) -> None:  # fmt: skip
        self._values, self._tensors, self._nodes, self._protos = values, tensors, nodes, protos
        self._decoded: dict[int, tuple[int, ...] | None] = {}

    def __getitem__(self, value: int) -> tuple[int, ...]:
        found = self.get(value)
        if found is None:
            raise KeyError(value)
        return found

    def get(self, value: int, default: tuple[int, ...] | None = None) -> tuple[int, ...] | None:  # type: ignore[override]
        """The numbers, or the default where the value is no integer constant of few elements."""
        if value not in self._decoded:
            self._decoded[value] = self._decode(value)
        numbers = self._decoded[value]
        return default if numbers is None else numbers

    def _decode(self, value: int) -> tuple[int, ...] | None:
        held = self._values[value]
        if held.dtype not in _INTEGERS or held.elements > _FEW:
            return None
        tensor = self._tensors.get(value)
        if tensor is not None:
            numbers = _small_integers(tensor)
            return None if numbers is None else tuple(numbers)
        node = self._nodes[held.producer]
        proto = self._protos[node.id]
        if node.kind is not Kind.SOURCE or proto is None or proto.op_type != "Constant":
            return None
        for attribute in proto.attribute:
            if attribute.name == "value_int":
                return (attribute.i,)
            if attribute.name == "value_ints":
                return tuple(attribute.ints)
        return None

    def __iter__(self) -> Iterator[int]:
        return (value for value in range(len(self._values)) if self.get(value) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


_FEW = 16
_INTEGERS = frozenset({DType.INT64, DType.INT32, DType.INT16, DType.INT8, DType.UINT8})


def _small_integers(tensor: onnx.TensorProto) -> Sequence[int] | None:
    """The numbers of a small integer tensor that is stored in the model; None where they are elsewhere or odd."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or len(tensor.raw_data) > 8 * _FEW:
        return None
    try:
        numbers: list[int] = onnx.numpy_helper.to_array(tensor).reshape(-1).tolist()
    except (ValueError, TypeError, OverflowError):
        return None
    return numbers if len(numbers) <= _FEW else None
