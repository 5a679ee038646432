"""Runnable form of a model: small models in memory, large models with memory-mapped weights."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import onnx

from mezzo.onnx.edit.opset import default_opset
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.files.marks import is_marked
from mezzo.onnx.files.save import materialize
from mezzo.onnx.files.weights import Weights
from mezzo.onnx.protos.graphs import graphs_of, nodes_of
from mezzo.onnx.protos.rounding import STORAGE, Array
from mezzo.onnx.schema.types import FROM_ONNX

# Models with fewer parameters (64 MB in FP32) are loaded into memory: runtimes then prepack
# weights, which saves a third of each run for a BERT of 66 million parameters and 128 tokens.
# Loading then takes 1.7 s of CPU time longer (the saving of 50 runs) and four times the memory. A
# model and its converted form have the same number of parameters, so both run in the same way.
MAPPED_FROM = 16 << 20
# Smaller weights are embedded: they include shapes, which runtimes need as constants.
_LEAST_BYTES = 1 << 16
_MOVED = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE})

_Placed = tuple[onnx.TensorProto, bool]


@dataclass(frozen=True, slots=True)
class RunnableModel:
    """A model and the payloads of its marked tensors; None if all weights are embedded."""

    model: onnx.ModelProto
    weights: Weights | None = None

    def with_model(self, model: onnx.ModelProto) -> "RunnableModel":
        """The same weights with another model."""
        return replace(self, model=model)

    def array(self, tensor: onnx.TensorProto) -> Array:
        """The elements of one of the model's tensors, embedded or external."""
        if self.weights is not None and is_marked(tensor):
            return self.weights.array(tensor)
        return onnx.numpy_helper.to_array(tensor)

    def filled(self) -> onnx.ModelProto:
        """The model with embedded weights. Raises ContractError if it exceeds protobuf's limit."""
        if self.weights is None:
            return self.model
        result = materialize(self.model, self.weights.blobs)
        for tensor in result.graph.initializer:
            if tensor.name in self.weights.moved:
                tensor.raw_data = self.weights.moved[tensor.name].tobytes()
        return result

    def size_bytes(self) -> int:
        """Size of the main graph's initializers, embedded or external."""
        blobs = None if self.weights is None else self.weights.blobs
        total = 0
        for tensor in self.model.graph.initializer:
            if blobs is not None and is_marked(tensor):
                total += blobs.stored_bytes(tensor)
            else:
                total += tensor.ByteSize()
        return total

    def with_moved(self, move: Callable[[Array], Array]) -> "RunnableModel":
        """A copy with `move` applied to FP32 and FP64 initializers, large ones chunk by chunk."""
        result, moved = deepcopy(self.model), dict[str, Array]()
        for tensor in result.graph.initializer:
            if tensor.data_type not in _MOVED:
                continue
            if self.weights is not None and is_marked(tensor):
                moved[tensor.name] = self.weights.move(tensor, move)
            else:
                # Not ascontiguousarray, which gives a scalar a dimension.
                numbers = np.asarray(move(onnx.numpy_helper.to_array(tensor)), order="C")
                tensor.CopyFrom(onnx.numpy_helper.from_array(numbers, tensor.name))
        return RunnableModel(
            result, None if self.weights is None else self.weights.with_moved(moved)
        )


def whole_of(model: onnx.ModelProto, source: ModelSource) -> RunnableModel:
    """Make `model`, whose tensors may refer to payloads of `source`, runnable; changes neither.

    Raises:
        ContractError: it has to be in memory and exceeds protobuf's size limit.
        ModelError: a payload cannot be read.
    """
    blobs = source.blobs
    if not len(blobs):
        return RunnableModel(model)
    # Without corrections.
    numbers = sum(blob.elements for blob in blobs.blobs if blob.factors is None)
    if numbers < MAPPED_FROM or _is_converted_inlining(model):
        return RunnableModel(materialize(model, blobs))
    result = deepcopy(model)
    for tensor, is_dense in _tensors(result):
        if is_marked(tensor) and not (is_dense and _may_be_mapped(tensor, blobs)):
            tensor.CopyFrom(blobs.filled(tensor))
    return RunnableModel(result, source.weights)


def _may_be_mapped(tensor: onnx.TensorProto, blobs: Blobs) -> bool:
    return FROM_ONNX.get(tensor.data_type) in STORAGE and blobs.stored_bytes(tensor) >= _LEAST_BYTES


def _is_converted_inlining(model: onnx.ModelProto) -> bool:
    """Whether inlining changes an opset, for which ONNX's converter needs embedded weights."""
    opset = default_opset(model)
    own = (
        {entry.domain: entry.version for entry in function.opset_import}
        for function in model.functions
    )
    return any(opsets.get("", opsets.get("ai.onnx", opset)) != opset for opsets in own)


def _tensors(model: onnx.ModelProto) -> Iterator[_Placed]:
    """Every tensor of a model, and whether it is a dense value that no input feeds."""
    for graph in graphs_of(model):
        fed = set() if graph is model.graph else {port.name for port in graph.input}
        yield from ((tensor, tensor.name not in fed) for tensor in graph.initializer)
        for sparse in graph.sparse_initializer:
            yield from ((tensor, False) for tensor in (sparse.values, sparse.indices))
    for node in nodes_of(model):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t, node.op_type == "Constant" and attribute.name == "value"
            if attribute.HasField("sparse_tensor"):
                sparse = attribute.sparse_tensor
                yield from ((tensor, False) for tensor in (sparse.values, sparse.indices))
            yield from ((tensor, False) for tensor in attribute.tensors)
