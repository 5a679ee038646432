"""Files of weights that a search has rounded on data, for replays of its plan without the data.

A file has the format of safetensors: scales, zero points and packed integers (`WeightGrid`) of each
weight, and the digest of the elements that it was rounded from. It is written from the plan's
search, named in the plan with its SHA-256, and hostile input: nothing of it is allocated that the
plan and its model do not ask for.
"""

import hashlib
import json
import mmap
import struct
import tempfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.machine import find_temporary_folder
from mezzo.common.safe_paths import open_regular
from mezzo.contracts.rounding import RoundedWeights
from mezzo.formats.block_storage import BlockStorage
from mezzo.formats.rounding import Floats
from mezzo.formats.weight_grid import GridElements, WeightGrid

_FORMAT = "mezzo-rounded/1"
# Elements that are packed, and bytes that are hashed, at once.
_PIECE = 1 << 22
# Content up to this size stays in memory.
_IN_MEMORY_BYTES = 1 << 26
_MOST_HEADER_BYTES = 1 << 24
_LARGEST_SCALE = float(np.finfo(np.float32).max) / 256
_SEARCH_AGAIN = "or run the search again on the data"


class RoundedWeight(NamedTuple):
    """A weight to write. `source`: `digest_elements` of those that were rounded."""

    grid: WeightGrid
    elements: Floats
    source: str


class WantedWeight(NamedTuple):
    """A weight to read, as the plan and its model state it."""

    storage: BlockStorage
    shape: tuple[int, ...]
    source: str


def digest_elements(elements: Floats) -> str:
    """SHA-256 of a weight's FP32 elements."""
    return hashlib.sha256(np.ascontiguousarray(elements, "<f4").data).hexdigest()


def pack_weights(weights: Mapping[str, RoundedWeight]) -> RoundedWeights:
    """The content of a file of these weights, by name of their node: in memory, or in a temporary
    file. Raises InputError: there is no room for it.
    """
    wanted = {
        name: WantedWeight(weight.grid.storage, weight.grid.shape, weight.source)
        for name, weight in weights.items()
    }
    header, size_bytes = _spell_header(wanted)
    digest, folder = hashlib.sha256(), find_temporary_folder()
    try:
        with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES, prefix="mezzo-", dir=folder) as file:
            for piece in chain([header], _pieces(weights)):
                file.write(piece)
                digest.update(piece)
            file.seek(0)
            content: bytes | mmap.mmap = (
                file.read()
                if size_bytes <= _IN_MEMORY_BYTES
                else mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            )
    except OSError as error:
        raise InputError(
            f"cannot write {size_bytes} bytes of weights to the temporary folder"
            f" {folder!r}: {error.strerror}; make room there"
        ) from error
    return RoundedWeights(
        where="the plan", sha256=digest.hexdigest(), content=lambda: memoryview(content)
    )


def refer_to_weights(path: Path, sha256: str) -> RoundedWeights:
    """The weights of a file, which is mapped and verified when they are asked for."""
    return RoundedWeights(
        where=repr(str(path)), sha256=sha256, content=lambda: _map_verified(path, sha256)
    )


def _map_verified(path: Path, sha256: str) -> memoryview:
    try:
        with open_regular(path)[0] as file:
            content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise InputError(
            f"the plan's weights, which were rounded on data, are in {str(path)!r}, and that cannot"
            f" be read: {reason}; put it there, {_SEARCH_AGAIN}"
        ) from error
    digest = hashlib.sha256()
    for start in range(0, len(content), _PIECE):
        digest.update(content[start : start + _PIECE])
    if digest.hexdigest() != sha256:
        raise InputError(
            f"{str(path)!r} is not as it was saved with the plan, whose weights were rounded on"
            f" data: its SHA-256 differs; copy it again, {_SEARCH_AGAIN}"
        )
    return content


def read_weights(
    rounded: RoundedWeights, wanted: Mapping[str, WantedWeight]
) -> dict[str, GridElements]:
    """The elements of weights, by name of their node; integers stay in the file.

    Raises InputError: the file lacks one, or has it for another model.
    """
    content = rounded.content()
    try:
        tensors, sources, data = _read_header(content)
        for name, weight in wanted.items():
            if f"{name}/integers" not in tensors:
                raise InputError(f"{rounded.where} has no weight {name!r}; {_SEARCH_AGAIN[3:]}")
            if sources.get(f"{name}/source") != weight.source:
                raise InputError(
                    f"weight {name!r} of the model is not the one that was rounded on data for this"
                    f" plan; give the model of the search, {_SEARCH_AGAIN}"
                )
        return {name: _read_weight(tensors, data, name, weight) for name, weight in wanted.items()}
    except (ValueError, TypeError, AttributeError, KeyError, struct.error) as error:
        fault = f"it lacks {error}" if isinstance(error, KeyError) else error
        raise InputError(
            f"{rounded.where} holds no weights as the plan states them: {fault};"
            f" {_SEARCH_AGAIN[3:]}"
        ) from error


def _read_weight(
    tensors: Mapping[str, object], data: memoryview, name: str, weight: WantedWeight
) -> GridElements:
    """Raises ValueError: a tensor has another type, shape or place, or a scale cannot be one."""
    views: dict[str, memoryview] = {}
    for part, dtype, shape, size_bytes in _parts(weight.storage, weight.shape):
        stated = tensors[f"{name}/{part}"]
        start, stop = stated["data_offsets"]  # type: ignore[index]  # TypeError is caught
        expected = {"dtype": dtype, "shape": shape, "data_offsets": [start, start + size_bytes]}
        if stated != expected or not 0 <= start <= stop <= len(data):
            raise ValueError(f"{part} of {name!r} are {str(stated)[:200]}")
        views[part] = data[start:stop]
    blocks_shape = weight.storage.blocks_shape(weight.shape)
    scales = np.frombuffer(views["scales"], "<f4").reshape(blocks_shape)
    if not ((scales > 0) & (scales < _LARGEST_SCALE)).all():
        raise ValueError(f"scales of {name!r} are not finite and above 0")
    zeros = views.get("zero_points")
    grid = WeightGrid(
        storage=weight.storage,
        shape=weight.shape,
        scales=scales.astype(np.float32),
        zero_points=None if zeros is None else np.frombuffer(zeros, np.uint8),
    )
    integers = views["integers"]
    return GridElements(grid=grid, packed=lambda start, stop: integers[start:stop])


def _parts(
    storage: BlockStorage, shape: tuple[int, ...]
) -> Iterator[tuple[str, str, list[int], int]]:
    """Tensors of a weight: name, type, shape and size in bytes."""
    blocks_shape = storage.blocks_shape(shape)
    blocks = int(np.prod(blocks_shape))
    yield "scales", "F32", [*blocks_shape], 4 * blocks
    if not storage.is_symmetric:
        yield "zero_points", "U8", [*blocks_shape], blocks
    packed_bytes = -(-int(np.prod(shape)) * storage.bits // 8)
    yield "integers", "U8", [packed_bytes], packed_bytes


def _spell_header(weights: Mapping[str, WantedWeight]) -> tuple[bytes, int]:
    """The header, and the size of the whole file. Larger elements come first: all are aligned."""
    header: dict[str, object] = {
        "__metadata__": {
            "format": _FORMAT,
            **{f"{name}/source": weight.source for name, weight in weights.items()},
        }
    }
    end = 0
    for wanted in ("scales", "zero_points", "integers"):
        for name, weight in weights.items():
            for part, dtype, shape, size_bytes in _parts(weight.storage, weight.shape):
                if part == wanted:
                    offsets = [end, end + size_bytes]
                    tensor = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
                    header[f"{name}/{part}"] = tensor
                    end += size_bytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, 8 + len(text) + end


def _pieces(weights: Mapping[str, RoundedWeight]) -> Iterator[bytes]:
    """What follows the header."""
    for weight in weights.values():
        yield weight.grid.scales.astype("<f4").tobytes()
    for weight in weights.values():
        if weight.grid.zero_points is not None:
            yield weight.grid.zero_points.tobytes()
    for weight in weights.values():
        flat = weight.elements.reshape(-1)
        for start in range(0, flat.size, _PIECE):
            yield weight.grid.pack(flat[start : start + _PIECE], start)


def _read_header(
    content: memoryview,
) -> tuple[Mapping[str, object], Mapping[str, object], memoryview]:
    """Tensors and metadata of a file, and its data. Raises ValueError and others: malformed."""
    (length,) = struct.unpack_from("<Q", content)
    if length > min(_MOST_HEADER_BYTES, len(content)):
        raise ValueError(f"its header has {length} bytes")
    header = parse_json(bytes(content[8 : 8 + length]))
    metadata = header["__metadata__"]
    if metadata["format"] != _FORMAT:
        raise ValueError(f"its format is {str(metadata['format'])[:80]!r}")
    return header, metadata, content[8 + length :]
