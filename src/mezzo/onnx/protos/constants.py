"""What constants hold, read one after the other: weights of graphs and bodies, Constants of both and of functions."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from mezzo.formats.dtypes import FLOATING
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.files.blobs import Blobs, element_dtype
from mezzo.onnx.read.handles import Handles


def read_constants(
    graph: Graph, handles: Handles, blobs: Blobs, values: Sequence[int]
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Give the numbers of constants in FP32 and in their shapes, in the order of `values`; others are left out.

    Raises:
        ModelError: a payload does not fit its tensor, or cannot be read.
    """
    for value in values:
        tensor = constant_of(graph, handles, value)
        if tensor is None or element_dtype(tensor, blobs.where(tensor)) not in FLOATING:
            continue
        held = blobs.array(tensor)
        sparse = sparse_of(graph, handles, value)
        if sparse is not None:
            held = _dense(held, sparse)
        yield value, held.astype(np.float32, copy=False)


def constant_of(graph: Graph, handles: Handles, value: int) -> onnx.TensorProto | None:
    """The tensor of a constant; of a sparse one, that of its numbers. None of what is computed, or may be fed."""
    is_source = graph.nodes[graph.values[value].producer].kind is Kind.SOURCE
    return handles.tensors.get(value) if is_source else None


def sparse_of(graph: Graph, handles: Handles, value: int) -> onnx.SparseTensorProto | None:
    """The sparse tensor that a constant is, if it is one."""
    producer = graph.nodes[graph.values[value].producer]
    proto = handles.protos[producer.id]
    if proto is not None:
        return proto.attribute[0].sparse_tensor if proto.attribute[0].name == "sparse_value" else None
    owner = handles.owners[producer.scope]
    assert isinstance(owner, onnx.GraphProto), "functions hold no weights"
    return next((held for held in owner.sparse_initializer if held.values.name == graph.values[value].name), None)


def _dense(numbers: npt.NDArray[np.generic], sparse: onnx.SparseTensorProto) -> npt.NDArray[np.generic]:
    """Put the numbers in their places, which are flat, or have a row for each number and a column for each axis."""
    shape = tuple(sparse.dims)
    places = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, numbers.dtype)
    dense[np.unravel_index(places, shape) if places.ndim == 1 else tuple(places.T)] = numbers
    return dense
