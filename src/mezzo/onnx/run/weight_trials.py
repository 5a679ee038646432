"""Runs of one model with some of its weights exchanged, in one session: they are its inputs."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from mezzo.common.errors import ContractError
from mezzo.formats.block_storage import BlockStorage
from mezzo.onnx.files.block_payloads import BlockPart, block_payload_of
from mezzo.onnx.files.marks import is_marked
from mezzo.onnx.files.runnable_model import RunnableModel
from mezzo.onnx.protos.graphs import replace_nodes
from mezzo.onnx.protos.rounding import Array
from mezzo.onnx.run.fed_weights import feed_weights
from mezzo.onnx.run.runtime import ALL_CORES
from mezzo.onnx.run.session import Session
from mezzo.onnx.run.suffix_runs import RunAll, SuffixRuns

_log = logging.getLogger(__name__)

# Elements that are rounded at once.
_PIECE_ELEMENTS = 1 << 22


class OnnxWeightTrials:
    """A model whose chosen FP32 weights of the main graph are inputs of every run."""

    def __init__(self, whole: RunnableModel, names: Mapping[int, str]) -> None:
        """`names`: of the values of the weights, by id.

        Raises ContractError: one is no constant of the main graph, or no runtime loads the model.
        """
        self._names = dict(names)
        self._weights = whole.weights
        model = deepcopy(whole.model)
        self._tensors = _take_out(model.graph, {*names.values()})
        missing = sorted({*names.values()} - self._tensors.keys())
        if missing:
            raise ContractError(f"weight {missing[0]!r} is no constant of the main graph")
        declared = [*model.graph.input]
        for name, tensor in self._tensors.items():
            port = onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims)
            model.graph.input.append(port)
            declared.append(port)
        self._whole = RunnableModel(model, whole.weights)
        self._session = Session(model, declared, None, ALL_CORES, whole.weights)
        self._given = {name: self._read(name) for name in self._tensors}
        self._is_whole = False  # a run in parts has failed

    def weight(self, value: int) -> "npt.NDArray[np.float32]":
        """A weight's elements, in its shape."""
        return self._given[self._names[value]]

    def dequantized(
        self, numbers: "npt.NDArray[np.float32]", storage: BlockStorage
    ) -> "npt.NDArray[np.float32]":
        """Elements of a weight, or of some of its whole blocks, after a round trip through
        blocks.
        """
        payload = block_payload_of(storage, numbers.shape, BlockPart.FLOATS, "weight")
        given, result = numbers.reshape(-1), np.empty(numbers.size, np.float32)
        step = payload.unit * max(1, _PIECE_ELEMENTS // payload.unit)
        for start in range(0, given.size, step):
            result[start : start + step] = payload.convert(given[start : start + step])
        return result.reshape(numbers.shape)

    def keep(self, numbers: Array) -> Array:
        """The same elements, on disk where the model's weights are read from files."""
        if self._weights is None:
            return numbers
        return self._weights.keep(numbers).reshape(numbers.shape)

    def run(self, feeds: Mapping[str, Any], exchanged: Mapping[int, Array]) -> dict[str, Any]:
        """The outputs by name, with these elements in place of weights.

        Raises InputError: the feeds do not fit.
        """
        by_name = {self._names[value]: numbers for value, numbers in exchanged.items()}
        return self._session.run({**feeds, **self._given, **by_name})

    def each_alone(
        self, many: Sequence[Mapping[str, Any]]
    ) -> Iterator[tuple[int, Callable[[Array], Sequence[dict[str, Any]]]]]:
        """Each weight, in the order in which the model reads them, and what runs all feeds with
        other elements in its place alone. Called in this order, what the model computes before a
        weight is computed once.

        Raises InputError: the feeds do not fit.
        """
        suffixes = self._suffixes(many)
        if suffixes is None:
            for value in self._names:
                yield value, partial(self._run_whole, many, value)
            return
        for value, run in suffixes.each():
            yield value, partial(self._run_suffix, run, many, value)

    def _suffixes(self, many: Sequence[Mapping[str, Any]]) -> SuffixRuns | None:
        """Runs from the weights on; None if the model runs in other ways than in one piece."""
        whole = [self._session.fit({**feeds, **self._given}) for feeds in many]
        fitted = [
            {name: feed for name, feed in feeds.items() if name not in self._given}
            for feeds in whole
        ]
        is_plain = all(isinstance(feed, np.ndarray) for feeds in fitted for feed in feeds.values())
        if not is_plain or not fitted or not self._session.is_in_one_piece:
            return None
        try:
            model, fed = feed_weights(self._whole)
            return SuffixRuns(deepcopy(model), {**fed, **self._given}, self._names, fitted)
        except Exception as error:  # noqa: BLE001  whatever the runtime raises: it runs as a whole
            _log.debug("the model is not run in parts: %s", error)
            return None

    def _run_suffix(
        self, run: RunAll, many: Sequence[Mapping[str, Any]], value: int, numbers: Array
    ) -> Sequence[dict[str, Any]]:
        if not self._is_whole:
            try:
                return run(numbers)
            except Exception as error:  # noqa: BLE001  a part does not load, or has other values
                _log.debug("the model is not run in parts: %s", error)
                self._is_whole = True
        return self._run_whole(many, value, numbers)

    def _run_whole(
        self, many: Sequence[Mapping[str, Any]], value: int, numbers: Array
    ) -> Sequence[dict[str, Any]]:
        return [self.run(feeds, {value: numbers}) for feeds in many]

    def _read(self, name: str) -> Array:
        tensor = self._tensors[name]
        if self._weights is not None and is_marked(tensor):
            return self._weights.array(tensor)
        return onnx.numpy_helper.to_array(tensor)


def _take_out(graph: onnx.GraphProto, names: set[str]) -> dict[str, onnx.TensorProto]:
    """Remove these initializers and Constants from a graph, and return them by name."""
    taken = {tensor.name: deepcopy(tensor) for tensor in graph.initializer if tensor.name in names}
    kept: Sequence[onnx.TensorProto] = [t for t in graph.initializer if t.name not in taken]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    ports = [port for port in graph.input if port.name not in taken]
    del graph.input[:]
    graph.input.extend(ports)
    constants = [
        node
        for node in graph.node
        if node.op_type == "Constant"
        and node.output[0] in names
        and node.attribute[0].HasField("t")
    ]
    for node in constants:
        taken[node.output[0]] = deepcopy(node.attribute[0].t)
    if constants:
        removed = {id(node) for node in constants}
        replace_nodes(graph, [node for node in graph.node if id(node) not in removed])
    return taken
