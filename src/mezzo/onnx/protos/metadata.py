"""Entries of a model's metadata, read as hostile: text by key, for whoever looks."""

import onnx

from mezzo.contracts.frontend import Record

PROVENANCE = "mezzo.provenance"


def take_entry(model: onnx.ModelProto, key: str, most_bytes: int) -> Record | None:
    """Take an entry out of a model; None where it has none. What takes more than `most_bytes` is never looked at."""
    entries = list(model.metadata_props)
    taken = [entry for entry in entries if entry.key == key]
    if not taken:
        return None
    found = _read(taken[0], most_bytes) if len(taken) == 1 else Record(None, f"the model has {len(taken)} of them")
    del model.metadata_props[:]
    model.metadata_props.extend(entry for entry in entries if entry.key != key)
    return found


def _read(entry: onnx.StringStringEntryProto, most_bytes: int) -> Record:
    if entry.ByteSize() > most_bytes:
        return Record(None, f"it takes {entry.ByteSize()} bytes")
    text: str | bytes = entry.value  # protobuf hands out text that is not UTF-8 as bytes
    return Record(text, None) if isinstance(text, str) else Record(None, "it is not UTF-8")


def put_entry(model: onnx.ModelProto, key: str, text: str) -> None:
    """Add an entry, the last."""
    model.metadata_props.add(key=key, value=text)
