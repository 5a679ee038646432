"""Evaluation of constant operators with ONNX Runtime, unoptimized, for the numbers of a run."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import replace

import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.onnx.files.blobs import INLINE_BYTES, Blob, Blobs
from mezzo.onnx.files.computation import Computation
from mezzo.onnx.files.files import ModelSource
from mezzo.onnx.normal_form.scope import GraphScope
from mezzo.onnx.protos.payloads import payload_bytes
from mezzo.onnx.protos.rounding import STORAGE, Array
from mezzo.onnx.run.runtime import JUDGING, load_runtime
from mezzo.onnx.schema.types import FROM_ONNX

_log = logging.getLogger(__name__)

# Element types that numpy and ONNX Runtime exchange without conversion.
EVALUATED = frozenset(
    {
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL,
        TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    }
)  # fmt: skip


def evaluate(
    scope: GraphScope, sizes: Mapping[str, int], weights: Set[str]
) -> Mapping[str, TensorProto]:
    """Evaluate values that depend on constants alone, as named tensors, without those that fail.

    `sizes` maps names to bytes. `weights` larger than their operands also keep their computation.
    Small values are evaluated together, large ones one by one, to have one in memory at a time.
    """
    large = [name for name, size in sizes.items() if size > INLINE_BYTES]
    small = [name for name, size in sizes.items() if size <= INLINE_BYTES]
    tensors = _run(scope, small) if small else {}
    if tensors is None:  # one of them failed: evaluate each by itself
        tensors = {
            name: tensor
            for small_name in small
            for name, tensor in (_run(scope, [small_name]) or {}).items()
        }
    for name in large:
        result = _run(scope, [name]) or {}
        if name in result and name in weights:
            _keep_computation(scope, name, result[name])
        tensors |= result
    return tensors


def _keep_computation(scope: GraphScope, name: str, tensor: TensorProto) -> None:
    """Attach the computation of a tensor to its payload, if that is smaller."""
    blobs, nodes, tensors = scope.source.blobs, list[onnx.NodeProto](), list[TensorProto]()
    producers, constant_names = _behind(scope, [name])
    for constant_name in constant_names:
        constant = deepcopy(scope.constants[constant_name])
        constant.name = constant_name  # the tensor of a Constant has none
        earlier = _computation_of(blobs, constant)
        nodes += earlier.nodes if earlier is not None else ()
        tensors += earlier.tensors if earlier is not None else (constant,)
    number = blobs.marker(tensor).blob
    blob = blobs.blobs[number]
    if sum(map(_size_of, tensors)) < blob.size_bytes:
        copies = tuple(map(deepcopy, (*nodes, *producers)))
        computation = Computation(nodes=copies, tensors=(*tensors,), result=name, opset=scope.opset)
        blobs.blobs[number] = replace(blob, computation=computation)


def _computation_of(blobs: Blobs, constant: TensorProto) -> Computation | None:
    """The computation of a constant that an earlier round folded, or None."""
    stored = blobs.stored(constant)
    computation = None if stored is None else blobs.blobs[stored.blob].computation
    return computation if computation is not None and computation.result == constant.name else None


def _size_of(tensor: TensorProto) -> int:
    return payload_bytes(FROM_ONNX[tensor.data_type], math.prod(tensor.dims))


def _run(scope: GraphScope, names: Sequence[str]) -> dict[str, TensorProto] | None:
    nodes, read = _behind(scope, names)
    feeds = {name: _array_of(scope.source, scope.constants[name]) for name in read}
    inputs = [
        helper.make_tensor_value_info(
            name, scope.constants[name].data_type, [*scope.constants[name].dims]
        )
        for name in read
    ]
    outputs = [helper.make_tensor_value_info(name, scope.element(name), None) for name in names]
    part = helper.make_model(
        helper.make_graph(nodes, "constants", inputs, outputs),
        opset_imports=[helper.make_opsetid("", scope.opset)],
        ir_version=max(scope.model.ir_version, 4),
    )
    try:
        arrays = load_runtime(part, JUDGING).run([*names], feeds)
    except Exception as error:  # noqa: BLE001  what ONNX Runtime cannot compute is not folded
        _log.debug("constants are not folded: %s", error)
        return None
    return {
        name: _tensor_of(scope.source, name, array)
        for name, array in zip(names, arrays, strict=True)
    }


def _behind(scope: GraphScope, values: Iterable[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The operators that values depend on, in graph order, and the constants that these use."""
    constants, positions, pending = set[str](), set[int](), [*values]
    while pending:
        position = scope.places[pending.pop()]
        if position in positions:
            continue
        positions.add(position)
        names = {name for name in scope.graph.node[position].input if name}
        constants.update(names & scope.constants.keys())
        pending.extend(names - scope.constants.keys())
    return [scope.graph.node[position] for position in sorted(positions)], sorted(constants)


def _array_of(source: ModelSource, tensor: TensorProto) -> Array:
    return (
        source.blobs.array(tensor)
        if source.blobs.stored(tensor) is None
        else source.weights.array(tensor)
    )


def _tensor_of(source: ModelSource, name: str, array: Array) -> TensorProto:
    """An array as a tensor. A large one is stored in a temporary file, as external data."""
    if array.nbytes <= INLINE_BYTES:
        return numpy_helper.from_array(array, name)
    tensor = TensorProto(
        name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape
    )
    dtype = FROM_ONNX[tensor.data_type]
    origin = source.weights.keep(array.astype(STORAGE[dtype], copy=False))
    source.blobs.mark(
        tensor, Blob(dtype=dtype, elements=array.size, size_bytes=array.nbytes, origin=origin)
    )
    return tensor
