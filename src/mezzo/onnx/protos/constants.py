"""Elements of constants in FP32, one tensor at a time: initializers and Constants of all scopes."""

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper

from mezzo.formats.dtypes import FLOATING
from mezzo.ir.graph import Graph
from mezzo.ir.nodes import Kind
from mezzo.onnx.files.blobs import Blobs
from mezzo.onnx.protos.payloads import element_dtype
from mezzo.onnx.read.handles import Handles


def read_constants(
    graph: Graph, handles: Handles, blobs: Blobs, values: Sequence[int]
) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
    """Yield the arrays of floating constants in FP32, in the order of `values`; others are skipped.

    Raises:
        ModelError: a payload does not fit its tensor, or cannot be read.
    """
    for value in values:
        tensor = constant_of(graph, handles, value)
        if tensor is None or element_dtype(tensor, blobs.where(tensor)) not in FLOATING:
            continue
        array = blobs.array(tensor)
        sparse = sparse_of(graph, handles, value)
        if sparse is not None:
            array = _dense(array, sparse)
        yield value, array.astype(np.float32, copy=False)


def constant_of(graph: Graph, handles: Handles, value: int) -> onnx.TensorProto | None:
    """A constant's tensor (a sparse one's `values`); None if computed or fed by callers."""
    is_source = graph.nodes[graph.values[value].producer].kind is Kind.SOURCE
    return handles.tensors.get(value) if is_source else None


def sparse_of(graph: Graph, handles: Handles, value: int) -> onnx.SparseTensorProto | None:
    """The sparse tensor of a constant; None if it is dense."""
    name, producer = graph.values[value].name, graph.nodes[graph.values[value].producer]
    proto = handles.protos[producer.id]
    if proto is not None:
        attribute = proto.attribute[0]
        return attribute.sparse_tensor if attribute.name == "sparse_value" else None
    entries = handles.graph(producer.scope).sparse_initializer
    return next((entry for entry in entries if entry.values.name == name), None)


def _dense(
    numbers: npt.NDArray[np.generic], sparse: onnx.SparseTensorProto
) -> npt.NDArray[np.generic]:
    """The dense array of a sparse tensor; its indices are flat [n], or coordinates [n, rank]."""
    shape = tuple(sparse.dims)
    indices = numpy_helper.to_array(sparse.indices)
    dense = np.zeros(shape, numbers.dtype)
    dense[np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(indices.T)] = numbers
    return dense
