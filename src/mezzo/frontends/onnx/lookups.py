"""What rules of a policy may ask of a model: modules and shapes, worked out when first asked for."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import onnx

from mezzo.frontends.onnx.shapes import Shape, value_shapes
from mezzo.graph import Value

# PyTorch's exporter lists the modules around a node, outermost first, and last the node's own name.
_NAME_SCOPES = "pkg.torch.onnx.name_scopes"
_LONGEST_SCOPES = 10_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class Modules(Mapping[int, str]):
    """Path of the module that a node was exported from, by node id, where its exporter noted one."""

    def __init__(self, protos: Sequence[onnx.NodeProto | None]) -> None:
        self._protos = protos

    def __getitem__(self, node: int) -> str:
        proto = self._protos[node]
        for entry in () if proto is None else proto.metadata_props:
            if entry.key == _NAME_SCOPES and len(entry.value) <= _LONGEST_SCOPES:
                scopes: list[str] = [single or double for single, double in _QUOTED.findall(entry.value)]
                if len(scopes) > 1 and scopes[-2]:
                    return scopes[-2]
        raise KeyError(node)

    def __iter__(self) -> Iterator[int]:
        return (node for node in range(len(self._protos)) if self.get(node) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Shapes(Mapping[int, Shape]):
    """Shapes by value id: of weights as stored, of other values as ONNX infers them."""

    def __init__(
        self, model: onnx.ModelProto, values: Sequence[Value], tensors: Mapping[int, onnx.TensorProto]
    ) -> None:
        self._model, self._values, self._tensors = model, values, tensors

    @cached_property
    def _inferred(self) -> Mapping[str, Shape]:
        return value_shapes(self._model)

    def __getitem__(self, value: int) -> Shape:
        tensor = self._tensors.get(value)
        if tensor is not None:
            return tuple(tensor.dims)
        return self._inferred[self._values[value].name]

    def __iter__(self) -> Iterator[int]:
        return (value for value in range(len(self._values)) if self.get(value) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)
