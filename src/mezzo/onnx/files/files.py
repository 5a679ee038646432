"""Open untrusted ONNX models at wire level, leaving large weights in their files."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from mezzo.common.errors import InputError, ModelError
from mezzo.common.file_kinds import detect_kind
from mezzo.common.unsupported_files import describe_folder, describe_unsupported
from mezzo.formats.dtypes import DType
from mezzo.onnx.files import wire
from mezzo.onnx.files.blobs import INLINE_BYTES, Blob, Blobs, FileRange
from mezzo.onnx.files.external_data import (
    EXTERNAL_KEY,
    DamagedError,
    ExternalData,
    blob_in_file,
    damaged,
    parse_tensor,
)
from mezzo.onnx.files.paths import DataFile, quote
from mezzo.onnx.files.weights import Weights
from mezzo.onnx.protos.payloads import (
    DOUBLE_FIELD,
    EXTERNAL,
    FLOAT_FIELD,
    PACKED_DTYPES,
    PAYLOAD_FIELDS,
    RAW_FIELD,
    check_payload,
    payload_bytes,
)
from mezzo.onnx.schema.types import FROM_ONNX

# Smaller files are read at once, with their weights.
_SMALL_BYTES = 16 << 20
# No tool writes tensors with larger fields apart from the payload; such tensors are not marked.
_MAX_HEADER_BYTES = 1 << 20
MAX_MESSAGE_BYTES = (1 << 31) - 1
# No real tensor has more dimensions, and multiplying a million of them takes minutes.
_MAX_RANK = 64
_PACKED_FIELDS = frozenset({RAW_FIELD, *PACKED_DTYPES})


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """An opened model. `model` is complete except for the payloads in `blobs`.

    `weights` provides these payloads as arrays. `files`: the model file and its external data,
    overwritten only on request. `size_bytes` counts the model and its external payloads. `path` is
    None for a model that was in memory.
    """

    model: onnx.ModelProto
    blobs: Blobs
    weights: Weights
    path: Path | None
    files: tuple[DataFile, ...]
    size_bytes: int
    is_external: bool


def load(path: str | os.PathLike[str], *, trust_external_paths: bool = False) -> ModelSource:
    """Open a model file. Large payloads of large files, and external data, stay on disk.

    `trust_external_paths` lets links, as in a model hub's cache, lead to external data outside the
    model's folder.

    Raises:
        InputError: the file cannot be read.
        ModelError: it is no ONNX model, is damaged, or names data outside or that does not fit.
    """
    text = os.fspath(path)
    if os.path.isdir(text):
        raise InputError(describe_folder(text))
    blobs = Blobs(quote(text))
    file = blobs.files.open_model(text)
    if not file.size_bytes:
        raise ModelError(f"{blobs.name} is empty; name an ONNX model file")
    folder = os.path.dirname(os.path.abspath(text))
    external = ExternalData(blobs, folder, trust=trust_external_paths)
    try:
        model = _parse(external.mark_all(_read_skeleton(file, blobs)), blobs.name)
    except DamagedError as error:
        kind = detect_kind(text)
        if kind is None:
            raise
        raise ModelError(describe_unsupported(text, kind)) from error
    return _source(model, external, file.size_bytes, Path(text), file)


def from_proto(model: onnx.ModelProto) -> ModelSource:
    """Wrap a model in memory. Large initializers are not copied, so do not change it.

    Raises:
        InputError: it has external data, and no folder in which to find that.
        ModelError: it has no graph, or is malformed.
    """
    blobs = Blobs("the model")
    if not model.HasField("graph"):
        raise ModelError(f"{blobs.name} has no graph; pass a complete onnx.ModelProto")
    skeleton = onnx.ModelProto()
    try:
        in_memory_bytes = _copy_light(skeleton, model, blobs)
    except UnicodeDecodeError as error:
        # protobuf returns text that is not UTF-8 as bytes, and does not accept it back.
        raise ModelError(
            f"{blobs.name} has a name that is not UTF-8, {quote(error.object)}; rename it"
        ) from error
    external = ExternalData(blobs, folder=None)
    data = skeleton.SerializeToString()
    # Each marker of a large initializer has the key once; more of them may be external data.
    if data.count(EXTERNAL_KEY) > len(blobs):
        skeleton = _parse(external.mark_all(data), blobs.name)
    return _source(skeleton, external, len(data) + in_memory_bytes)


def _copy_light(skeleton: onnx.ModelProto, model: onnx.ModelProto, blobs: Blobs) -> int:
    """Copy a model without its large initializers; return the bytes of those."""
    in_memory_bytes = 0
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(skeleton, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name == "initializer":
            in_memory_bytes = _copy_initializers(skeleton.graph, model.graph, blobs)
        else:
            _copy_field(skeleton.graph, field.name, value)
    return in_memory_bytes


def _copy_field(target: onnx.ModelProto | onnx.GraphProto, name: str, value: object) -> None:
    """Copy one field in protobuf's own code, which takes 2 ms for 16,000 nodes."""
    if isinstance(value, (int, str, bytes)):
        setattr(target, name, value)
    else:
        getattr(target, name).MergeFrom(value)


def _copy_initializers(graph: onnx.GraphProto, source: onnx.GraphProto, blobs: Blobs) -> int:
    """Copy initializers, large ones as markers; return the bytes of those."""
    total = kept_from = 0
    initializers = source.initializer
    for position, tensor in enumerate(initializers):
        large = _large_payload(tensor)
        if large is None:
            continue
        graph.initializer.extend(initializers[kept_from:position])
        kept_from = position + 1
        stub = graph.initializer.add()
        stub.data_type = tensor.data_type
        if tensor.HasField("name"):
            stub.name = tensor.name
        if tensor.HasField("doc_string"):
            stub.doc_string = tensor.doc_string
        stub.dims.extend(tensor.dims)
        stub.metadata_props.MergeFrom(tensor.metadata_props)
        blobs.mark(stub, large)
        total += large.size_bytes
    if kept_from:
        graph.initializer.extend(initializers[kept_from:])
    else:
        graph.initializer.MergeFrom(initializers)
    return total


def _large_payload(tensor: onnx.TensorProto) -> Blob | None:
    """Describe an in-memory tensor's payload without a copy; None if it should be copied.

    Invalid shapes are reported where the tensor is used, as for small tensors.
    """
    if tensor.ByteSize() <= INLINE_BYTES:
        return None
    dims = tensor.dims
    dtype = FROM_ONNX.get(tensor.data_type)
    if (
        not dims
        or dtype is None
        or dtype is DType.STRING
        or tensor.data_location == EXTERNAL
        or min(dims) < 0
    ):
        return None
    elements = 0 if 0 in dims else math.prod(dims[:_MAX_RANK])
    size_bytes = payload_bytes(dtype, elements)
    if size_bytes <= INLINE_BYTES or len(dims) > _MAX_RANK:
        return None
    is_packed = (
        tensor.HasField("raw_data")
        or (dtype in PACKED_DTYPES[FLOAT_FIELD] and len(tensor.float_data) > 0)
        or (dtype in PACKED_DTYPES[DOUBLE_FIELD] and len(tensor.double_data) > 0)
    )
    return (
        Blob(dtype=dtype, elements=elements, size_bytes=size_bytes, origin=tensor)
        if is_packed
        else None
    )


def _read_skeleton(file: DataFile, blobs: Blobs) -> bytes:
    """Read a model file, large payloads replaced by markers."""
    source = wire.FileBytes(blobs.files.handle(file), file.size_bytes)
    if file.size_bytes <= _SMALL_BYTES:
        return source.read(0, file.size_bytes)
    try:
        rope = wire.rewrite(
            source,
            lambda start, stop: stop - start > INLINE_BYTES,
            lambda start, stop: _strip(source, start, stop, file, blobs),
        )
    except wire.WireError as error:
        raise damaged(blobs.name, str(error)) from error
    size_bytes = file.size_bytes if rope is None else rope.size_bytes
    if size_bytes > MAX_MESSAGE_BYTES:
        raise ModelError(
            f"{blobs.name}: {size_bytes} bytes are left without large weights, protobuf reads"
            f" {MAX_MESSAGE_BYTES}; store the weights as external data"
        )
    return source.read(0, size_bytes) if rope is None else wire.join(source, rope)


def _strip(
    source: wire.Bytes, start: int, stop: int, file: DataFile, blobs: Blobs
) -> wire.Rope | None:
    """Turn the TensorProto in [start, stop) into a marker; None where its payload must be read by
    protobuf.
    """
    payload: tuple[int, int, int, int] | None = None
    header_bytes = 0
    for number, kind, begin, content, end in wire.fields(source, start, stop):
        if number in _PACKED_FIELDS and kind == wire.LENGTH and end - content > INLINE_BYTES:
            if payload is not None:
                return None
            payload = number, begin, content, end
            continue
        header_bytes += end - begin
        if header_bytes > _MAX_HEADER_BYTES:
            return None
    if payload is None:
        return None
    number, begin, content, end = payload
    tensor = parse_tensor(
        source.read(start, begin - start) + source.read(end, stop - end), blobs.name
    )
    dtype = FROM_ONNX.get(tensor.data_type)
    is_other_field = number != RAW_FIELD and dtype not in PACKED_DTYPES[number]
    if (
        is_other_field
        or tensor.data_location == EXTERNAL
        or any(getattr(tensor, name) for name in PAYLOAD_FIELDS)
    ):
        return None
    dtype, elements = check_payload(tensor, end - content, blobs.where(tensor))
    blobs.mark(tensor, blob_in_file(dtype, elements, FileRange(file, content)))
    return wire.rope_of(tensor.SerializeToString())


def _source(
    model: onnx.ModelProto,
    external: ExternalData,
    size_bytes: int,
    path: Path | None = None,
    *files: DataFile,
) -> ModelSource:
    return ModelSource(
        model=model,
        blobs=external.blobs,
        weights=Weights(external.blobs),
        path=path,
        files=(*files, *external.files),
        size_bytes=size_bytes + external.size_bytes,
        is_external=bool(external.files),
    )


def _parse(data: bytes, where: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        try:
            wire.rewrite(
                wire.MemoryBytes(data), lambda _start, _stop: True, lambda _start, _stop: None
            )
        except wire.WireError as reason:
            raise damaged(where, str(reason)) from error
        raise damaged(where, "a message that protobuf cannot read") from error
    if not model.HasField("graph") or not model.ir_version:
        raise damaged(where, "no graph" if model.ir_version else "no ir_version")
    return model
