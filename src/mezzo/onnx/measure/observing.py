"""Observation of whole tensors during a run, in several runs if memory requires it."""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import onnx

from mezzo.common.errors import InputError
from mezzo.contracts.lab import ObservedValue
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.files.marks import is_marked
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.runtime import ALL_CORES
from mezzo.onnx.run.session import Session, native_session
from mezzo.onnx.schema.value_types import value_types

# Memory budget for the values of one run; larger sets of values take several runs.
_MOST_BYTES = 1 << 29


class OnnxObserver:
    """A model that also returns values of its main graph, by their ids."""

    def __init__(self, whole: RunnableModel, graph: Graph, values: Sequence[int]) -> None:
        """`graph` is the planner's graph of the model."""
        fed = {value for node in graph.nodes if node.kind is Kind.INPUT for value in node.outputs}
        self._fed = [value for value in values if value in fed]
        self._numbers = {graph.values[value].name: value for value in values}
        self._whole, self._types = whole, value_types(whole.model).types
        self._parts = [[graph.values[value].name for value in values if value not in fed]]
        self._sessions: list[Session] = []
        self._names = {value: graph.values[value].name for value in values}

    @property
    def width(self) -> int:
        return min((session.width for session in self._sessions), default=1)

    def prepare(self, many: Sequence[Mapping[str, Any]]) -> None:
        """Run the model on the feeds of the next calls in one batch, where the session can."""
        for session in self._sessions:
            session.prepare(many)

    def __call__(self, feeds: Mapping[str, Any]) -> Iterator[ObservedValue]:
        """Run the model, yield each value in FP32. Raises InputError: the feeds do not fit."""
        for value in self._fed:
            name = self._names[value]
            numbers = feeds[name] if name in feeds else self._default(name)
            if numbers is not None:
                yield ObservedValue(value, np.asarray(numbers, np.float32))
        if not self._sessions:
            self._sessions = [
                native_session(self._showing(part), weights=self._whole.weights, settings=ALL_CORES)
                for part in self._parts
                if part
            ]
        total_bytes = 0
        for session in self._sessions:
            tensors = session.run(feeds)
            total_bytes = max(
                total_bytes, sum(np.asarray(numbers).nbytes for numbers in tensors.values())
            )
            for name, numbers in tensors.items():
                yield ObservedValue(self._numbers[name], np.asarray(numbers, np.float32))
        if total_bytes > _MOST_BYTES:
            self._split(total_bytes)

    def _default(self, name: str) -> Array | None:
        """The default of an input that is not fed; None if it has none."""
        weights = self._whole.weights
        for tensor in self._whole.model.graph.initializer:
            if tensor.name == name:
                if weights is not None and is_marked(tensor):
                    return weights.array(tensor)
                return onnx.numpy_helper.to_array(tensor)
        return None

    def _split(self, total_bytes: int) -> None:
        """Distribute the values over more runs, each within the memory budget."""
        count = -(-total_bytes // _MOST_BYTES)
        self._parts = [part[offset::count] for part in self._parts for offset in range(count)]
        self._sessions = []

    def _showing(self, names: Sequence[str]) -> onnx.ModelProto:
        model = deepcopy(self._whole.model)
        del model.graph.output[:]
        for name in names:
            if self._types.get(name) not in (
                "tensor(float)",
                "tensor(float16)",
                "tensor(bfloat16)",
            ):
                raise InputError(f"value {name!r} holds no floats, and cannot be shown")
            kind = (
                onnx.TensorProto.FLOAT
                if self._types[name] == "tensor(float)"
                else onnx.TensorProto.FLOAT16
            )
            model.graph.output.append(onnx.helper.make_tensor_value_info(name, kind, None))
        return model
