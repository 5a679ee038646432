"""Blobs: tensor payloads outside memory, the markers that refer to them, and chunked reading.

A marker is a TensorProto with external data whose location is a random token of this run, plus the
blob's number. Copies of the TensorProto keep the marker, so one blob can be stored twice in two
formats. No input file can contain the token, as it is generated after the file was written.
"""

import json
import math
import secrets
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.common.errors import ModelError
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.dtypes import FLOATING, DType
from mezzo.formats.quantization import Quantization
from mezzo.formats.weight_grid import GridElements
from mezzo.onnx.files import wire
from mezzo.onnx.files.block_payloads import (
    BlockPart,
    BlockPayload,
    block_payload_of,
    in_units,
    read_block_payload,
)
from mezzo.onnx.files.computation import Computation
from mezzo.onnx.files.factors import Factors
from mezzo.onnx.files.paths import DataFile, Files, quote
from mezzo.onnx.files.quantized_payloads import QuantizedPayload, payload_of, read_payload
from mezzo.onnx.protos.payloads import (
    EXTERNAL,
    PACKED_DTYPES,
    check_payload,
    clear_payload,
    count_elements,
    element_dtype,
    payload_bytes,
    set_payload,
    shape_text,
)
from mezzo.onnx.protos.rounding import STORAGE, Array, round_few, round_through, round_to
from mezzo.onnx.schema.types import FROM_ONNX, TO_ONNX

# A chunk and its converted copy fit the L2 cache.
CHUNK_BYTES = 1 << 20
# Larger payloads become blobs; others stay in the model.
INLINE_BYTES = 4096
_FEW_BYTES = 64
# Optional keys of a marker, after the blob's number.
LIMIT, QUANTIZED, THROUGH, BLOCKS = "limit", "quantized", "through", "blocks"


@dataclass(frozen=True, slots=True)
class FileRange:
    """Position of a payload in a file."""

    file: DataFile
    offset: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Blob:
    """One payload: little-endian elements, encoded as in raw_data.

    `origin`: a file position, the caller's TensorProto, a computed flat array, or elements that are
    computed as they are read. `factors` multiply the elements as they are read. `computation`: the
    smaller constants and nodes behind an array.
    """

    dtype: DType
    elements: int
    size_bytes: int
    origin: FileRange | onnx.TensorProto | Array | GridElements
    factors: Factors | None = None
    computation: Computation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A blob and its conversion for one tensor. Equal records have equal bytes.

    `through`: formats to round to first, in order, each with its limit. `limit`: clamp for finite
    values. `quantized`: quantization parameters; with a float `dtype`, dequantize afterwards.
    `blocks`: the part that the tensor has of a weight in blocks.
    """

    blob: int
    dtype: DType
    limit: float | None = None
    quantized: QuantizedPayload | None = None
    through: tuple[tuple[DType, float | None], ...] = ()
    blocks: BlockPayload | None = None

    def convert(self, chunk: Array, start: int) -> Array:
        """Convert a chunk of the blob that begins at element `start`."""
        for low, limit in self.through:
            chunk = round_through(chunk, low, limit)
        if self.blocks is not None:
            return self.blocks.convert(chunk)
        if self.quantized is None:
            return round_to(chunk, self.dtype, self.limit)
        steps = self.quantized.quantize(chunk, start)
        return self.quantized.dequantize(steps, start) if self.dtype is DType.FLOAT32 else steps

    def elements(self, blob: Blob) -> int:
        """Number of elements after the conversion."""
        return blob.elements if self.blocks is None else math.prod(self.blocks.part_shape)

    def keeps(self, blob: Blob) -> bool:
        """Whether the elements need no conversion."""
        is_converted = self.quantized is not None or self.blocks is not None or self.through
        return self.dtype is blob.dtype and not is_converted


class Blobs:
    """The payloads of one model and their markers. Reading is not thread-safe."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.token = secrets.token_hex(16)
        self.files = Files()
        self.blobs: list[Blob] = []
        self._index: dict[tuple[DataFile, int, DType, int], int] = {}

    def __len__(self) -> int:
        return len(self.blobs)

    def close(self) -> None:
        """Close the files; reading reopens them."""
        self.files.close()
        self.files = Files()

    def where(self, tensor: onnx.TensorProto) -> str:
        """Tensor name for error messages."""
        return f"{self.name}: tensor {quote(tensor.name)}"

    def mark(self, tensor: onnx.TensorProto, blob: Blob) -> None:
        """Replace a tensor's payload by a marker, in place. Equal file ranges share one number."""
        number = None
        if isinstance(blob.origin, FileRange) and blob.factors is None:
            key = (blob.origin.file, blob.origin.offset, blob.dtype, blob.elements)
            number = self._index.setdefault(key, len(self.blobs))
        if number is None or number == len(self.blobs):
            number = len(self.blobs)
            self.blobs.append(blob)
        clear_payload(tensor)
        tensor.data_location = EXTERNAL
        tensor.external_data.add(key="location", value=self.token)
        tensor.external_data.add(key="blob", value=str(number))

    def stored(self, tensor: onnx.TensorProto) -> Stored | None:
        """Read the marker of a tensor; None if its payload is embedded.

        Raises:
            ModelError: the payload's file is not named, or the tensor is stored in two parts.
        """
        if tensor.data_location != EXTERNAL:
            return None
        entries = tensor.external_data
        if not entries or entries[0].value != self.token:
            raise ModelError(
                f"{self.where(tensor)}: its data is said to be in another file, but none is named,"
                " or ONNX allows none here; store it in the model"
            )
        further = {entry.key: entry.value for entry in entries[2:]}
        valid = {LIMIT, QUANTIZED, THROUGH, BLOCKS}
        if len(entries) > 2 + len(further) or not further.keys() <= valid:
            raise ModelError(
                f"{self.where(tensor)}: the tensor is stored in two parts; export the model again"
            )
        limit = float(further[LIMIT]) if LIMIT in further else None
        quantized = read_payload(further[QUANTIZED]) if QUANTIZED in further else None
        through = json.loads(further.get(THROUGH, "[]"))
        return Stored(
            blob=int(entries[1].value),
            dtype=element_dtype(tensor, self.where(tensor)),
            limit=limit,
            quantized=quantized,
            through=tuple((DType(low), low_limit) for low, low_limit in through),
            blocks=read_block_payload(further[BLOCKS]) if BLOCKS in further else None,
        )

    def marker(self, tensor: onnx.TensorProto) -> Stored:
        """Read the marker of a tensor that has one."""
        stored = self.stored(tensor)
        assert stored is not None, "a marked tensor stands for something"
        return stored

    def stored_bytes(self, tensor: onnx.TensorProto) -> int:
        """Size of a marked tensor's payload, as converted."""
        stored = self.marker(tensor)
        return payload_bytes(stored.dtype, stored.elements(self.blob(tensor, stored)))

    def scale(self, tensor: onnx.TensorProto, factors: Factors) -> None:
        """Multiply an FP32 tensor by factors, in place. Blobs are scaled when read."""
        stored = self.stored(tensor)
        if stored is None:
            set_payload(tensor, factors.scale(self.array(tensor).reshape(-1)).tobytes())
            return
        blob = self.blob(tensor, stored)
        if blob.factors is not None:
            factors = blob.factors.then(factors, blob.elements)
        self.mark(tensor, replace(blob, factors=factors))

    def blob(self, tensor: onnx.TensorProto, stored: Stored) -> Blob:
        """Return a marker's payload. Raises ModelError if its element count does not match."""
        blob = self.blobs[stored.blob]
        dims = tensor.dims if stored.blocks is None else stored.blocks.shape
        if count_elements(dims, self.where(tensor)) != blob.elements:
            raise ModelError(
                f"{self.where(tensor)}: the shape {shape_text(tensor.dims)} does not fit its"
                f" {blob.elements} elements; export the model again"
            )
        return blob

    def retarget(self, tensor: onnx.TensorProto, dtype: DType, limit: float | None = None) -> None:
        """Convert a floating tensor to another floating dtype, in place.

        Blobs are rounded from the source when written, embedded payloads immediately: pass a copy
        of the original tensor.
        """
        source = FROM_ONNX.get(tensor.data_type) or element_dtype(tensor, self.where(tensor))
        assert source in FLOATING and dtype in FLOATING, f"cannot round {source} to {dtype}"
        if self.stored(tensor) is not None:
            del tensor.external_data[2:]
            if limit is not None:
                tensor.external_data.add(key=LIMIT, value=repr(limit))
        elif dtype is not source:
            raw = tensor.raw_data
            if source is DType.FLOAT32 and 0 < len(raw) <= _FEW_BYTES:
                if 4 * math.prod(tensor.dims) != len(raw):
                    check_payload(tensor, len(raw), self.where(tensor))
                tensor.raw_data = round_few(raw, dtype, limit)
            else:
                rounded = round_to(self.array(tensor), dtype, limit).tobytes()
                set_payload(tensor, rounded)
        tensor.data_type = TO_ONNX[dtype]

    def quantize(self, tensor: onnx.TensorProto, how: Quantization) -> None:
        """Quantize a floating tensor, in place. Blobs are quantized from the source when written.

        Raises:
            ContractError: the parameters do not fit the tensor.
        """
        assert element_dtype(tensor, self.where(tensor)) in FLOATING, (
            "what is quantized holds floats"
        )
        quantized = payload_of(how, tensor.dims, tensor.name)
        if self.stored(tensor) is not None:
            del tensor.external_data[2:]
            tensor.external_data.add(key=QUANTIZED, value=quantized.to_text())
        else:
            integers = quantized.quantize(self.array(tensor).reshape(-1)).tobytes()
            set_payload(tensor, integers)
        tensor.data_type = TO_ONNX[how.dtype]

    def in_blocks(
        self, tensor: onnx.TensorProto, storage: BlockStorage, part: BlockPart
    ) -> onnx.TensorProto:
        """A part of a floating tensor stored in blocks. Blobs are converted from the source when
        written.

        Raises:
            ContractError: the storage does not fit the tensor.
        """
        payload = block_payload_of(storage, tensor.dims, part, tensor.name)
        result = onnx.TensorProto()
        result.CopyFrom(tensor)
        if self.stored(tensor) is not None:
            result.external_data.add(key=BLOCKS, value=payload.to_text())
        else:
            clear_payload(result)
            flat = self.array(tensor).reshape(-1)
            result.raw_data = payload.convert(flat).tobytes()
        result.data_type = TO_ONNX[payload.dtype]
        result.dims[:] = payload.part_shape
        return result

    def array(self, tensor: onnx.TensorProto) -> Array:
        """Return the whole tensor in its shape, in memory, with sub-byte elements unpacked."""
        stored = self.stored(tensor)
        where = self.where(tensor)
        if stored is None:
            if tensor.HasField("raw_data"):
                check_payload(tensor, len(tensor.raw_data), where)
            else:
                element_dtype(tensor, where)
                count_elements(tensor.dims, where)
        else:
            tensor = self.filled(tensor)
        try:
            return numpy_helper.to_array(tensor)
        except (ValueError, TypeError, OverflowError) as error:
            raise ModelError(
                f"{where}: the data does not fit its type and shape; export the model again"
            ) from error

    def chunks(self, tensor: onnx.TensorProto) -> Iterator[Array]:
        """Yield the payload as flat chunks of about 1 MiB, sub-byte types as packed bytes.

        A chunk is valid only until the next one is requested.
        """
        stored = self.stored(tensor)
        if stored is None:
            yield self.array(tensor).reshape(-1)
            return
        pieces = self._converted(stored, self.blob(tensor, stored))
        yield from pieces if stored.blocks is None else stored.blocks.join(pieces)

    def _converted(self, stored: Stored, blob: Blob) -> Iterator[Array]:
        start = 0
        for chunk in self.read_pieces(stored):
            yield chunk if stored.keeps(blob) else stored.convert(chunk, start)
            start += chunk.size

    def filled(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """Return a copy of a marked tensor with its payload embedded."""
        filled = deepcopy(tensor)
        set_payload(filled, b"".join(chunk.tobytes() for chunk in self.chunks(tensor)))
        check_payload(filled, len(filled.raw_data), self.where(tensor))
        return filled

    def read_pieces(self, stored: Stored, buffers: int = 1) -> Iterator[Array]:
        """Yield a blob's elements as `read_chunks` does, in pieces that `stored` can convert."""
        pieces = self.read_chunks(self.blobs[stored.blob], buffers)
        return pieces if stored.blocks is None else in_units(pieces, stored.blocks.unit)

    def read_chunks(self, blob: Blob, buffers: int = 1) -> Iterator[Array]:
        """Yield a blob's elements as stored, in pieces; a piece is valid until `buffers` more were
        asked for.
        """
        if blob.factors is not None:
            start = 0
            for chunk in self.read_chunks(replace(blob, factors=None), buffers):
                yield blob.factors.scale(chunk, start)
                start += chunk.size
            return
        storage = STORAGE.get(blob.dtype, np.dtype("u1"))
        if isinstance(blob.origin, GridElements):
            step = CHUNK_BYTES // storage.itemsize
            for start in range(0, blob.elements, step):
                yield blob.origin.read(start, min(start + step, blob.elements))
            return
        if not isinstance(blob.origin, FileRange):
            if isinstance(blob.origin, np.ndarray):
                payload: Array = blob.origin
            else:
                payload = np.frombuffer(self._payload(blob.origin, blob.size_bytes), storage)
            step = CHUNK_BYTES // storage.itemsize
            yield from (payload[start : start + step] for start in range(0, payload.size, step))
            return
        size = min(CHUNK_BYTES, blob.size_bytes)
        pool = [
            np.empty(size, np.uint8)
            for _ in range(min(buffers, math.ceil(blob.size_bytes / max(size, 1))))
        ]
        for turn, start in enumerate(range(0, blob.size_bytes, max(size, 1))):
            # Files.handle may have closed and opened the file since the last piece, so the position
            # is set each time.
            handle = self.files.handle(blob.origin.file)
            handle.seek(blob.origin.offset + start)
            view = pool[turn % len(pool)][: min(size, blob.size_bytes - start)]
            done = 0
            while done < view.size:
                got = handle.readinto(view[done:].data)
                if not got:
                    raise ModelError(
                        f"{quote(blob.origin.file.path)} became shorter while it was read; get it"
                        " again"
                    )
                done += got
            yield view.view(storage)

    def _payload(self, tensor: onnx.TensorProto, size_bytes: int) -> bytes:
        """Return the payload of a tensor in memory as raw_data would hold it."""
        payload = tensor.raw_data
        if not payload:
            source = wire.MemoryBytes(tensor.SerializeToString())
            payload = b"".join(
                source.read(content, stop - content)
                for number, kind, _, content, stop in wire.fields(source, 0, source.size_bytes)
                if number in PACKED_DTYPES and kind == wire.LENGTH
            )
        check_payload(tensor, len(payload), self.where(tensor))
        if len(payload) != size_bytes:
            raise ModelError(
                f"{self.where(tensor)} changed since it was read; read the model again"
            )
        return payload
