"""Layout of a written model's weights: inside the model file, or in an external data file."""

from collections.abc import Callable

import onnx

from mezzo.onnx.files import wire
from mezzo.onnx.files.blobs import Blobs, Stored
from mezzo.onnx.protos.payloads import EXTERNAL, RAW_FIELD, clear_payload

# ONNX Runtime maps external data at page boundaries; small tensors only need their elements
# aligned.
_PAGE_BYTES, _PAGED_FROM_BYTES, _ALIGNMENT_BYTES = 4096, 1 << 20, 64
# Tensors below this stay in the model file, where shape inference can read them.
_EXTERNAL_FROM_BYTES = 1024


class FileLayout:
    """File positions of a serialized model's payloads. `payloads` is the external file, if any."""

    def __init__(self, blobs: Blobs, serialized: bytes, location: str) -> None:
        self.blobs = blobs
        self.serialized = serialized
        self.data = wire.MemoryBytes(serialized)
        self.location = location
        self.payloads = wire.Rope()
        self._token = blobs.token.encode()
        self._offsets: dict[Stored, int] = {}

    def inline(self) -> wire.Rope:
        """Lay out a single file with embedded payloads."""
        return self._rewrite(self._is_marked, self._inline_tensor)

    def external(self) -> wire.Rope:
        """Lay out a model file and an external data file."""
        return self._rewrite(self._may_move, self._external_tensor)

    def _is_marked(self, start: int, stop: int) -> bool:
        return self.serialized.find(self._token, start, stop) >= 0

    def _may_move(self, start: int, stop: int) -> bool:
        return stop - start > _EXTERNAL_FROM_BYTES or self._is_marked(start, stop)

    def _rewrite(
        self, is_wanted: Callable[[int, int], bool], replace: Callable[[int, int], wire.Rope | None]
    ) -> wire.Rope:
        rope = wire.rewrite(self.data, is_wanted, replace)
        if rope is None:
            rope = wire.Rope()
            rope.add_span(0, len(self.serialized))
        return rope

    def _read_tensor(self, start: int, stop: int) -> tuple[onnx.TensorProto, Stored, int] | None:
        """Return a marked tensor without its marker, its payload, and the size in bytes."""
        tensor = onnx.TensorProto.FromString(self.serialized[start:stop])
        if tensor.data_location != EXTERNAL:
            return None
        stored = self.blobs.marker(tensor)
        size_bytes = self.blobs.stored_bytes(tensor)
        clear_payload(tensor)
        return tensor, stored, size_bytes

    def _inline_tensor(self, start: int, stop: int) -> wire.Rope | None:
        tensor = self._read_tensor(start, stop)
        return None if tensor is None else _inline(*tensor)

    def _external_tensor(self, start: int, stop: int) -> wire.Rope | None:
        marked = self._read_tensor(start, stop)
        if marked is None:
            return self._move_out(start, stop) if stop - start > _EXTERNAL_FROM_BYTES else None
        tensor, stored, size_bytes = marked
        if size_bytes < _EXTERNAL_FROM_BYTES:
            return _inline(*marked)
        offset = self._offsets.get(stored)
        if offset is None:
            offset = self._offsets[stored] = self._align(size_bytes)
            self.payloads.add_payload(wire.Payload(stored, size_bytes))
        return self._refer(tensor, offset, size_bytes)

    def _move_out(self, start: int, stop: int) -> wire.Rope | None:
        """Move an embedded payload to the external file if it is large and contiguous."""
        for number, kind, _, content, end in wire.fields(self.data, start, stop):
            if (
                number == RAW_FIELD
                and kind == wire.LENGTH
                and end - content >= _EXTERNAL_FROM_BYTES
            ):
                tensor = onnx.TensorProto.FromString(self.serialized[start:stop])
                clear_payload(tensor)
                offset = self._align(end - content)
                self.payloads.add_span(content, end)
                return self._refer(tensor, offset, end - content)
        return None

    def _align(self, size_bytes: int) -> int:
        """Pad the external file for a payload of this size; returns the payload's offset."""
        alignment = _PAGE_BYTES if size_bytes >= _PAGED_FROM_BYTES else _ALIGNMENT_BYTES
        self.payloads.add_bytes(bytes(-self.payloads.size_bytes % alignment))
        return self.payloads.size_bytes

    def _refer(self, tensor: onnx.TensorProto, offset: int, size_bytes: int) -> wire.Rope:
        tensor.data_location = EXTERNAL
        for key, value in (
            ("location", self.location),
            ("offset", str(offset)),
            ("length", str(size_bytes)),
        ):
            tensor.external_data.add(key=key, value=value)
        return wire.rope_of(tensor.SerializeToString())


def _inline(tensor: onnx.TensorProto, stored: Stored, size_bytes: int) -> wire.Rope:
    header = wire.encode_varint(RAW_FIELD << 3 | wire.LENGTH) + wire.encode_varint(size_bytes)
    rope = wire.rope_of(tensor.SerializeToString() + header)
    rope.add_payload(wire.Payload(stored, size_bytes))
    return rope
