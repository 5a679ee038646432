"""Inputs of an ONNX model as data sets need them: names, defaults, batch size, roles, checks."""

from collections.abc import Sequence
from functools import cached_property

import onnx

from mezzo.contracts.lab import Feeds
from mezzo.ir.input_roles import Slot
from mezzo.onnx.measure.input_roles import read_slots, read_types
from mezzo.onnx.protos.graphs import stored_names
from mezzo.onnx.run.feeds import fit_feeds, retype


class OnnxInputs:
    """The inputs of a model. `optional` have a default; `empty` have an optional type, and are fed
    as empty if absent.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        graph, self._model = model.graph, model
        self._ports = list(graph.input)
        self.names = tuple(port.name for port in self._ports)
        self.optional = frozenset(stored_names(graph))
        self.empty = frozenset(
            port.name
            for port in self._ports
            if port.type.HasField("optional_type") and port.name not in self.optional
        )

    @property
    def fixed_length(self) -> int | None:
        """The fixed length of axis 0 that all inputs but scalars share; None if they share none."""
        lengths = set()
        for port in self._ports:
            if port.name in self.optional:
                continue
            tensor = port.type.tensor_type
            if not port.type.HasField("tensor_type") or not tensor.HasField("shape"):
                return None
            if tensor.shape.dim:
                lengths.add(tensor.shape.dim[0].dim_value)
        return lengths.pop() if len(lengths) == 1 and min(lengths) > 0 else None

    @property
    def has_fixed_length(self) -> bool:
        dims = [port.type.tensor_type.shape.dim[:1] for port in self._ports]
        return any(dim.HasField("dim_value") for axis_dims in dims for dim in axis_dims)

    @cached_property
    def types(self) -> Sequence[Slot]:
        return read_types(self._model)

    @cached_property
    def slots(self) -> Sequence[Slot]:
        return read_slots(self._model)

    def check(self, feeds: Feeds) -> None:
        fit_feeds(feeds, self._ports, self.optional)

    def typed(self, feeds: Feeds) -> Feeds:
        types = {port.name: port.type for port in self._ports}
        return {name: retype(feed, types[name]) for name, feed in feeds.items() if name in types}
