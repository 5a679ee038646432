"""Evaluates operators on constants with ONNX Runtime, each as it stands, so that numbers are those of a run."""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import onnx
from onnx import TensorProto, helper, numpy_helper

from mezzo.formats.dtypes import size_bits
from mezzo.onnx.files.blobs import INLINE_BYTES, Blob, Blobs
from mezzo.onnx.files.computation import Computation, copy_of
from mezzo.onnx.files.files import Source
from mezzo.onnx.normal_form.scope import Scope
from mezzo.onnx.protos.rounding import STORAGE, Array
from mezzo.onnx.run.runtime import JUDGING, load_runtime
from mezzo.onnx.schema.types import FROM_ONNX

_log = logging.getLogger(__name__)

# Element types that numpy holds as ONNX Runtime takes and gives them.
EVALUATED = frozenset(
    {
        TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL,
        TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
        TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    }
)  # fmt: skip


def evaluate(scope: Scope, sizes: Mapping[str, int], weights: Set[str]) -> Mapping[str, TensorProto]:
    """Compute values that depend on constants alone, as tensors of their names; some are left out where that fails.
    `sizes` has the bytes of each. Of `weights` that are larger than what they are made of, that is kept too.

    Small ones are computed together, each large one by itself, so that one is in memory at a time.
    """
    large = [name for name, size in sizes.items() if size > INLINE_BYTES]
    small = [name for name, size in sizes.items() if size <= INLINE_BYTES]
    tensors = _run(scope, small) if small else {}
    if tensors is None:  # one that cannot be computed keeps none of the others back
        tensors = {name: tensor for one in small for name, tensor in (_run(scope, [one]) or {}).items()}
    for name in large:
        made = _run(scope, [name]) or {}
        if name in made and name in weights:
            _keep_computation(scope, name, made[name])
        tensors |= made
    return tensors


def _keep_computation(scope: Scope, name: str, tensor: TensorProto) -> None:
    """Let a tensor's payload know how it was computed, if that takes less room."""
    blobs, nodes, tensors = scope.source.blobs, list[onnx.NodeProto](), list[TensorProto]()
    behind, read = _behind(scope, [name])
    for constant in (_named(scope.constants[held], held) for held in read):
        earlier = _computation_of(blobs, constant)
        nodes += earlier.nodes if earlier is not None else ()
        tensors += earlier.tensors if earlier is not None else (constant,)
    stored = blobs.stored(tensor)
    assert stored is not None, "a large result waits in a file"
    blob = blobs.blobs[stored.blob]
    if sum(_size_of(held) for held in tensors) < blob.size_bytes:
        copies = (copy_of(node) for node in (*nodes, *behind))
        computation = Computation(nodes=(*copies,), tensors=(*tensors,), result=name, opset=scope.opset)
        blobs.blobs[stored.blob] = replace(blob, computation=computation)


def _computation_of(blobs: Blobs, constant: TensorProto) -> Computation | None:
    """How a constant of this name was computed in an earlier round."""
    stored = blobs.stored(constant)
    computation = None if stored is None else blobs.blobs[stored.blob].computation
    return computation if computation is not None and computation.result == constant.name else None


def _size_of(tensor: TensorProto) -> int:
    return math.prod(map(int, tensor.dims)) * size_bits(FROM_ONNX[tensor.data_type]) // 8


def _named(tensor: TensorProto, name: str) -> TensorProto:
    """A copy of a tensor; that of a Constant has no name of its own."""
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _run(scope: Scope, wanted: Sequence[str]) -> dict[str, TensorProto] | None:
    nodes, read = _behind(scope, wanted)
    feeds = {name: _array_of(scope.source, scope.constants[name]) for name in read}
    inputs = [
        helper.make_tensor_value_info(name, scope.constants[name].data_type, [*scope.constants[name].dims])
        for name in read
    ]
    outputs = [helper.make_tensor_value_info(name, scope.element(name), None) for name in wanted]
    part = helper.make_model(
        helper.make_graph(nodes, "constants", inputs, outputs),
        opset_imports=[helper.make_opsetid("", scope.opset)],
        ir_version=max(scope.model.ir_version, 4),
    )
    try:
        arrays = load_runtime(part, JUDGING).run([*wanted], feeds)
    except Exception as error:  # noqa: BLE001  what ONNX Runtime does not compute stays as it is
        _log.debug("constants are not folded: %s", error)
        return None
    return {name: _tensor_of(scope.source, name, array) for name, array in zip(wanted, arrays, strict=True)}


def _behind(scope: Scope, wanted: Iterable[str]) -> tuple[list[onnx.NodeProto], list[str]]:
    """The operators that values hang on, in their order, and the constants that these read."""
    read, places, waiting = set[str](), set[int](), [*wanted]
    while waiting:
        place = scope.places[waiting.pop()]
        if place in places:
            continue
        places.add(place)
        names = {name for name in scope.graph.node[place].input if name}
        read.update(names & scope.constants.keys())
        waiting.extend(names - scope.constants.keys())
    return [scope.graph.node[place] for place in sorted(places)], sorted(read)


def _array_of(source: Source, tensor: TensorProto) -> Array:
    return source.blobs.array(tensor) if source.blobs.stored(tensor) is None else source.weights.array(tensor)


def _tensor_of(source: Source, name: str, array: Array) -> TensorProto:
    """A tensor of an array. A large one waits in a temporary file, as weights of a model do in theirs."""
    if array.nbytes <= INLINE_BYTES:
        return numpy_helper.from_array(array, name)
    tensor = TensorProto(name=name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
    dtype = FROM_ONNX[tensor.data_type]
    kept = source.weights.keep(array.astype(STORAGE[dtype], copy=False))
    source.blobs.mark(tensor, Blob(dtype=dtype, elements=array.size, size_bytes=array.nbytes, origin=kept))
    return tensor
