"""Protobuf wire-format reader that finds and replaces tensors inside a serialized ONNX model.

Walks a model field by field. Only messages that can contain a tensor and that the caller selects
are parsed; all other bytes are copied, so unknown fields survive. A length in the file is checked
against its message before anything is allocated.
"""

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from io import FileIO
from typing import Protocol

# Longest tag and length together: two varints of ten bytes.
_HEADER_BYTES = 20
_WINDOW_BYTES = 1 << 16
# protobuf's own default limit.
_MAX_DEPTH = 100

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5


class WireError(Exception):
    """The bytes are not a well-formed message. The text says what was found and at which byte."""


class Message(enum.Enum):
    """The ONNX messages on the way to a tensor."""

    MODEL = "ModelProto"
    TRAINING = "TrainingInfoProto"
    GRAPH = "GraphProto"
    NODE = "NodeProto"
    ATTRIBUTE = "AttributeProto"
    FUNCTION = "FunctionProto"
    TENSOR = "TensorProto"

    __hash__ = object.__hash__


# Field numbers of onnx.proto that lead to tensors; a test compares them with the installed package.
# Sparse tensors are left out: the ONNX checker reads their indices, so their payloads must be in
# the model.
NESTED: Mapping[Message, Mapping[int, Message]] = {
    Message.MODEL: {7: Message.GRAPH, 20: Message.TRAINING, 25: Message.FUNCTION},
    Message.TRAINING: {1: Message.GRAPH, 2: Message.GRAPH},
    Message.GRAPH: {1: Message.NODE, 5: Message.TENSOR},
    Message.NODE: {5: Message.ATTRIBUTE},
    Message.ATTRIBUTE: {5: Message.TENSOR, 6: Message.GRAPH, 10: Message.TENSOR, 11: Message.GRAPH},
    Message.FUNCTION: {7: Message.NODE, 11: Message.ATTRIBUTE},
}


class Bytes(Protocol):
    """Bytes that can be read from any position."""

    size_bytes: int

    def read(self, start: int, size_bytes: int) -> bytes:
        """Return the bytes from `start`, fewer where they end."""


class MemoryBytes:
    """Bytes held in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size_bytes = len(data)

    def read(self, start: int, size_bytes: int) -> bytes:
        return self.data[start : start + size_bytes]


class FileBytes:
    """Bytes of an open file, read when asked for."""

    def __init__(self, handle: FileIO, size_bytes: int) -> None:
        self._handle = handle
        self.size_bytes = size_bytes

    def read(self, start: int, size_bytes: int) -> bytes:
        self._handle.seek(start)
        parts: list[bytes] = []
        # One call of an unbuffered file gives at most 2 GiB, and less when interrupted.
        while size_bytes > 0 and (part := self._handle.read(size_bytes)):
            parts.append(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes `start` to `stop` of the source, unchanged."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Payload:
    """Bytes that come from elsewhere when the message is written; `key` is the caller's."""

    key: object
    size_bytes: int


@dataclass(slots=True)
class Rope:
    """A serialized message as a list of pieces, joined or written later."""

    pieces: list[bytes | Span | Payload] = field(default_factory=list)
    size_bytes: int = 0

    def add_bytes(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size_bytes += len(data)

    def add_span(self, start: int, stop: int) -> None:
        if start < stop:
            self.pieces.append(Span(start, stop))
            self.size_bytes += stop - start

    def add_payload(self, payload: Payload) -> None:
        self.pieces.append(payload)
        self.size_bytes += payload.size_bytes

    def extend(self, other: "Rope") -> None:
        self.pieces.extend(other.pieces)
        self.size_bytes += other.size_bytes


def rope_of(data: bytes) -> Rope:
    """A rope of given bytes."""
    return Rope([data], len(data))


def encode_varint(number: int) -> bytes:
    """Encode a number from 0 to 2**64 - 1."""
    assert 0 <= number < 1 << 64, f"{number!r} does not fit a varint"
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _varint(data: bytes, index: int, base: int) -> tuple[int, int]:
    """Decode the varint at `index` to (number, index after it). Raises IndexError where the bytes
    end.
    """
    number = shift = 0
    start = index
    while True:
        byte = data[index]
        index += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, index
        shift += 7
        if shift >= 70:
            raise WireError(f"a number of more than 10 bytes at byte {base + start}")


def fields(source: Bytes, begin: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield (field number, wire type, start, start of content, stop) for each field of the message
    in [begin, end).

    Raises:
        WireError: a malformed tag, an unknown wire type, or a field that reaches past `end`.
    """
    position = begin
    data = b""
    base = limit = begin
    while position < end:
        if limit - position < _HEADER_BYTES and limit < end:
            data = source.read(position, min(_WINDOW_BYTES, end - position))
            base, limit = position, position + len(data)
        index = position - base
        try:
            tag = data[index]
            index += 1
            if tag >= 0x80:
                tag, index = _varint(data, index - 1, base)
            kind = tag & 7
            if kind == LENGTH:
                length = data[index]
                index += 1
                if length >= 0x80:
                    length, index = _varint(data, index - 1, base)
                content = base + index
                stop = content + length
            else:
                content = base + index
                if kind == VARINT:
                    stop = base + (
                        index + 1 if data[index] < 0x80 else _varint(data, index, base)[1]
                    )
                elif kind in (FIXED32, FIXED64):
                    stop = content + (4 if kind == FIXED32 else 8)
                else:
                    raise WireError(f"an unknown wire type {kind} at byte {position}")
        except IndexError:
            raise WireError(f"the end of the data inside a field at byte {position}") from None
        if stop > end:
            raise WireError(
                f"a field at byte {position} that reaches {stop - end} bytes past the end of its"
                " message"
            )
        if tag >> 3 == 0:
            raise WireError(f"a field number 0 at byte {position}")
        yield tag >> 3, kind, position, content, stop
        position = stop


def rewrite(
    source: Bytes, is_wanted: Callable[[int, int], bool], replace: Callable[[int, int], Rope | None]
) -> Rope | None:
    """Walk a serialized ModelProto and replace tensors; None where nothing was replaced.

    `is_wanted(start, stop)` says whether a message with that content is entered. `replace(start,
    stop)` gives the new content of the TensorProto there, or None to keep it; its spans count in
    the same source.

    Raises:
        WireError: the bytes are malformed, or messages nest deeper than protobuf allows.
    """

    def walk(message: Message, begin: int, end: int, depth: int) -> Rope | None:
        if depth > _MAX_DEPTH:
            raise WireError(f"messages nested deeper than {_MAX_DEPTH} at byte {begin}")
        rope = Rope()
        kept_from = begin
        nested = NESTED[message]
        for number, kind, start, content, stop in fields(source, begin, end):
            child = nested.get(number)
            if child is None or kind != LENGTH or not is_wanted(content, stop):
                continue
            inner = (
                replace(content, stop)
                if child is Message.TENSOR
                else walk(child, content, stop, depth + 1)
            )
            if inner is None:
                continue
            rope.add_span(kept_from, start)
            rope.add_bytes(encode_varint(number << 3 | LENGTH) + encode_varint(inner.size_bytes))
            rope.extend(inner)
            kept_from = stop
        if not rope.pieces:
            return None
        rope.add_span(kept_from, end)
        return rope

    return walk(Message.MODEL, 0, source.size_bytes, 1)


def join(source: Bytes, rope: Rope) -> bytes:
    """Join a rope that holds no payloads."""
    parts: list[bytes] = []
    for piece in rope.pieces:
        assert not isinstance(piece, Payload), "a rope with payloads is written, not joined"
        parts.append(
            source.read(piece.start, piece.stop - piece.start) if isinstance(piece, Span) else piece
        )
    return b"".join(parts)
