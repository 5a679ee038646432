"""Text entries of a model's metadata, parsed as untrusted input, and numbers in a node's."""

import re

import onnx

from mezzo.contracts.frontend import ConversionRecord
from mezzo.onnx.protos.entries import remove_where

PROVENANCE = "mezzo.provenance"
# Of a MatMul or Gemm of rows of whole blocks: `BlockStorage.activation_block` of its weight.
ACTIVATION_BLOCK = "mezzo.activation_block"
# Of a node's result, by index: k if it is stored times 2^-k.
EXPONENT = "mezzo.exponent.{}"
_EXPONENT_TEXT = re.compile(r"-?\d{1,3}")


def take_entry(model: onnx.ModelProto, key: str, most_bytes: int) -> ConversionRecord | None:
    """Remove an entry from a model and return it, or None; over `most_bytes` it is not read."""
    matches = [entry for entry in model.metadata_props if entry.key == key]
    if not matches:
        return None
    record = (
        _read(matches[0], most_bytes)
        if len(matches) == 1
        else ConversionRecord(None, f"the model has {len(matches)} of them")
    )
    remove_where(model.metadata_props, lambda entry: entry.key == key)
    return record


def _read(entry: onnx.StringStringEntryProto, most_bytes: int) -> ConversionRecord:
    if entry.ByteSize() > most_bytes:
        return ConversionRecord(None, f"it takes {entry.ByteSize()} bytes")
    text: str | bytes = entry.value  # protobuf returns text that is not UTF-8 as bytes
    return (
        ConversionRecord(text, None)
        if isinstance(text, str)
        else ConversionRecord(None, "it is not UTF-8")
    )


def set_number(node: onnx.NodeProto, key: str, number: int) -> None:
    """Set an entry of a node's metadata, in place of any entries of that key."""
    others = [entry for entry in node.metadata_props if entry.key != key]
    del node.metadata_props[:]
    node.metadata_props.extend(others)
    node.metadata_props.add(key=key, value=str(number))


def number_of(node: onnx.NodeProto, key: str) -> int | None:
    """The number in an entry of a node's metadata; None if there is none."""
    for entry in node.metadata_props:
        if entry.key == key and entry.value.isdecimal():
            return int(entry.value)
    return None


def exponent_of(node: onnx.NodeProto, index: int) -> int:
    """The exponent of a node's result; 0 if it has none."""
    key = EXPONENT.format(index)
    for entry in node.metadata_props:
        if entry.key == key and _EXPONENT_TEXT.fullmatch(entry.value):
            return int(entry.value)
    return 0


def result_exponents(model: onnx.ModelProto) -> dict[str, int]:
    """The exponents other than 0 of the main graph's values, by name."""
    return {
        name: exponent
        for node in model.graph.node
        if node.metadata_props
        for index, name in enumerate(node.output)
        if (exponent := exponent_of(node, index))
    }


def put_entry(model: onnx.ModelProto, key: str, text: str) -> None:
    """Append an entry."""
    model.metadata_props.add(key=key, value=text)
