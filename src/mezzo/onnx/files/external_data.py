"""External data of an untrusted model: tensors whose payload is in a file named by the model."""

import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from mezzo.common.errors import InputError, ModelError
from mezzo.formats.dtypes import DType
from mezzo.onnx.files import wire
from mezzo.onnx.files.blobs import INLINE_BYTES, Blob, Blobs, FileRange
from mezzo.onnx.files.paths import DataFile, quote
from mezzo.onnx.protos.payloads import (
    EXTERNAL,
    check_payload,
    clear_payload,
    count_elements,
    element_dtype,
    payload_bytes,
)

EXTERNAL_KEY = b"location"
_MAX_DIGITS = 19


class DamagedError(ModelError):
    """The file is not a valid ONNX message."""


class ExternalData:
    """Marks tensors with external data after checking their file paths."""

    def __init__(self, blobs: Blobs, folder: str | None, *, trust: bool = False) -> None:
        self.blobs = blobs
        self._folder = folder
        self._trust = trust
        self._by_location: dict[str, DataFile] = {}
        self.size_bytes = 0

    @property
    def files(self) -> tuple[DataFile, ...]:
        return tuple(self._by_location.values())

    def mark_all(self, data: bytes) -> bytes:
        """Mark the external tensors of a serialized model."""
        if EXTERNAL_KEY not in data:
            return data
        source = wire.MemoryBytes(data)
        try:
            rope = wire.rewrite(
                source,
                lambda start, stop: data.find(EXTERNAL_KEY, start, stop) >= 0,
                lambda start, stop: self._mark(data[start:stop]),
            )
        except wire.WireError as error:
            raise damaged(self.blobs.name, str(error)) from error
        return data if rope is None else wire.join(source, rope)

    def _mark(self, data: bytes) -> wire.Rope | None:
        tensor = parse_tensor(data, self.blobs.name)
        entries = {entry.key: entry.value for entry in tensor.external_data}
        if tensor.data_location != EXTERNAL or entries.get("location") == self.blobs.token:
            return None
        where = self.blobs.where(tensor)
        # protobuf returns text that is not UTF-8 as bytes.
        if not all(isinstance(text, str) for entry in entries.items() for text in entry):
            raise ModelError(
                f"{where}: its external data is described in bytes that are not UTF-8; export it"
                " again"
            )
        file = self._find_file(entries.get("location", ""), where)
        dtype = element_dtype(tensor, where)
        elements = count_elements(tensor.dims, where)
        offset = _read_number(entries.get("offset", "0"), "offset", where)
        size_bytes = payload_bytes(dtype, elements)
        if "length" in entries:
            size_bytes = _read_number(entries["length"], "length", where)
        check_payload(tensor, size_bytes, where)
        if offset + size_bytes > file.size_bytes:
            raise ModelError(
                f"{where}: its data ends at byte {offset + size_bytes} of {quote(file.path)}, which"
                f" has {file.size_bytes} bytes; get the file again"
            )
        clear_payload(tensor)
        if size_bytes > INLINE_BYTES:
            self.blobs.mark(tensor, blob_in_file(dtype, elements, FileRange(file, offset)))
        else:
            tensor.raw_data = wire.FileBytes(self.blobs.files.handle(file), file.size_bytes).read(
                offset, size_bytes
            )
        self.size_bytes += size_bytes
        return wire.rope_of(tensor.SerializeToString())

    def _find_file(self, location: str, where: str) -> DataFile:
        file = self._by_location.get(location)
        if file is None:
            if self._folder is None:
                raise InputError(
                    f"{where}: its data is in the file {quote(location)}, but a model in memory has"
                    " no folder; pass the model's path instead"
                )
            file = self.blobs.files.open_external(self._folder, location, where, trust=self._trust)
            self._by_location[location] = file
        return file


def blob_in_file(dtype: DType, elements: int, where: FileRange) -> Blob:
    """A blob for a payload of checked size."""
    return Blob(
        dtype=dtype, elements=elements, size_bytes=payload_bytes(dtype, elements), origin=where
    )


def _read_number(text: str, key: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS):
        raise ModelError(
            f"{where}: the {key} of its external data is {quote(text)}; it must be a whole number"
            " from 0; export the model again"
        )
    return int(text)


def parse_tensor(data: bytes, where: str) -> onnx.TensorProto:
    """Parse a serialized tensor of an untrusted file."""
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(data)
    except DecodeError as error:
        raise damaged(where, "a tensor that protobuf cannot read") from error
    return tensor


def damaged(where: str, found: str) -> DamagedError:
    """The error of a file that is no valid message."""
    return DamagedError(
        f"{where} is not an ONNX model, or is damaged: found {found}; get the file again"
    )
