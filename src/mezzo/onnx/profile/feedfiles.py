"""Feeds as files for a child process: ONNX messages, which keep all types and run no code."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from mezzo.onnx.run.feeds import Datum

ANSWERS = "answers"  # subfolder of a folder of feeds, for the model's outputs
_KINDS = {
    "tensor": onnx.TensorProto,
    "sequence": onnx.SequenceProto,
    "optional": onnx.OptionalProto,
}


def write_feeds(feeds: Mapping[str, Datum], folder: Path) -> None:
    """Write feeds, already fitted to their model, into a new folder; None is left out."""
    folder.mkdir()
    index = []
    for number, (name, feed) in enumerate(feeds.items()):
        if feed is None:
            continue
        is_sequence = isinstance(feed, list | tuple)
        message = (
            numpy_helper.from_list([_plain(e) for e in feed]) if is_sequence else _tensor(feed)
        )
        path = folder / f"{number}.pb"
        path.write_bytes(message.SerializeToString())
        index.append(
            {"name": name, "kind": "sequence" if is_sequence else "tensor", "file": path.name}
        )
    (folder / "index.json").write_text(json.dumps(index), encoding="utf-8")


def read_feeds(folder: Path) -> dict[str, Datum]:
    """Read a folder written by `write_feeds`."""
    feeds: dict[str, Datum] = {}
    for entry in json.loads((folder / "index.json").read_text(encoding="utf-8")):
        message = _KINDS[entry["kind"]]()
        message.ParseFromString((folder / entry["file"]).read_bytes())
        is_sequence = entry["kind"] == "sequence"
        # Copies: arrays of messages are read-only, and OpenVINO shares the memory of its inputs.
        feeds[entry["name"]] = (
            numpy_helper.to_list(message)
            if is_sequence
            else np.array(numpy_helper.to_array(message))
        )
    return feeds


def _plain(feed: Datum) -> Datum:
    array = np.asarray(feed)
    return array.astype(object) if array.dtype.kind in "US" else array


def _tensor(feed: Datum) -> onnx.TensorProto:
    return numpy_helper.from_array(_plain(feed))
