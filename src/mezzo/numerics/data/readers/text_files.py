"""Lines of text as a language model's inputs, by the tokenizer.json of Hugging Face's tokenizers
next to the model. A tokenizer file is JSON and runs no code.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from mezzo.common.errors import InputError
from mezzo.numerics.data.array_fitting import is_text
from mezzo.numerics.data.readers.lines import read_lines
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, Run, digest_of
from mezzo.numerics.data.readers.tokenizer_file import (
    SPLITS_NO_TEXT,
    TOKENIZER,
    make_tokenizer,
    naming_faults,
    read_tokenizer,
)

SUFFIXES = (".txt",)
_USUAL = 32
# Longest sequence for models of an open length whose tokenizer states none.
_LONGEST = 512
_PADS = ("[PAD]", "<pad>", "<|pad|>", "<|endoftext|>", "</s>", "<|end_of_text|>")
_IDS = "input_ids"
_MADE = (_IDS, "attention_mask", "token_type_ids", "position_ids")


def open_text(path: Path, reading: Reading) -> Part:
    """The lines of a file as tokens, blank lines left out; as they are for an input of strings.

    Raises InputError: a package or the tokenizer is missing, or the model has other inputs.
    """
    expected = reading.expected
    only = reading.name or (expected.required[0] if len(expected.required) == 1 else None)
    count, digest = _count(path)
    if only is not None and is_text(expected.types.get(only)):

        def read_strings(runs: Sequence[Run]) -> Iterator[Arrays]:
            for texts in _cut(path, runs):
                slot = expected.types[only]
                array = np.array(texts)
                yield {only: array[:, np.newaxis] if len(slot.lengths or ()) == 2 else array}

        return Part(
            where=str(path), origin=path.name, names=(only,), lengths={only: count},
            read=read_strings, digest=digest, usual=_USUAL,
        )  # fmt: skip
    names = [name for name in _MADE if name in expected.inputs]
    if _IDS not in names or reading.name is not None:
        raise InputError(
            f"{path}: is text, which becomes {', '.join(map(repr, _MADE))}, and the model wants"
            f" {expected.describe()}; give arrays"
        )
    file = _find_tokenizer(path, reading.folder)
    slot = expected.types.get(_IDS)
    lengths = () if slot is None or slot.lengths is None else slot.lengths
    length = next((each for each in lengths[1:] if isinstance(each, int)), None)
    content = read_tokenizer(file)
    tokenizer = _make_padding_tokenizer(file, content, length)

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        for texts in _cut(path, runs):
            with naming_faults(file, SPLITS_NO_TEXT):
                arrays = _encode(tokenizer, texts)
            yield {name: arrays[name] for name in names}

    return Part(
        where=str(path), origin=path.name, names=tuple(names),
        lengths=dict.fromkeys(names, count), read=read,
        digest=digest_of(digest, hashlib.sha256(content).hexdigest()), usual=_USUAL,
        notes=(f"text is split into tokens by {file.name!r}",),
    )  # fmt: skip


def _encode(tokenizer: Any, texts: Sequence[str]) -> Mapping[str, Any]:
    """Token ids and masks, int64 [N, length]."""
    encodings = tokenizer.encode_batch(list(texts))
    ids = np.array([each.ids for each in encodings], np.int64)
    mask = np.array([each.attention_mask for each in encodings], np.int64)
    types = np.array([each.type_ids for each in encodings], np.int64)
    positions = np.maximum(np.cumsum(mask, axis=1) - 1, 0)
    return dict(zip(_MADE, (ids, mask, types, positions), strict=True))


def _find_tokenizer(path: Path, folder: Path | None) -> Path:
    """The tokenizer in the model's folder, or in the one above it, as exporters leave it."""
    places = [] if folder is None else [folder / TOKENIZER, folder.parent / TOKENIZER]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        where = "a model in memory has none" if folder is None else f"{str(places[0])!r} is missing"
        raise InputError(
            f"{path}: text needs {TOKENIZER} next to the model, and {where}; copy it there, or"
            " give arrays of tokens"
        )
    return found


def _make_padding_tokenizer(file: Path, content: bytes, length: int | None) -> Any:
    """The tokenizer, padding to `length`, or to the longest text of a batch.

    Raises InputError: its package is missing, or the file is damaged.
    """
    tokenizer = make_tokenizer(file, content)
    truncation, padding = tokenizer.truncation or {}, tokenizer.padding or {}
    longest = length or min(truncation.get("max_length", _LONGEST), _LONGEST)
    tokenizer.enable_truncation(longest)
    named = next((pad for pad in _PADS if tokenizer.token_to_id(pad) is not None), None)
    pad_id = 0 if named is None else tokenizer.token_to_id(named)
    tokenizer.enable_padding(
        direction=padding.get("direction", "right"),
        pad_id=padding.get("pad_id", pad_id),
        pad_token=padding.get("pad_token", named or "[PAD]"),
        length=length,
    )
    return tokenizer


def _count(path: Path) -> tuple[int, str]:
    """The number of texts, and a digest of them. Raises InputError: there is none."""
    total, count = hashlib.sha256(), 0
    for text in _texts(path):
        total.update(text.encode() + b"\n")
        count += 1
    if not count:
        raise InputError(f"{path}: holds no text; give a sample per line")
    return count, digest_of(total.hexdigest())


def _texts(path: Path) -> Iterator[str]:
    return (text for line in read_lines(path) if (text := line.strip()))


def _cut(path: Path, runs: Sequence[Run]) -> Iterator[list[str]]:
    """The texts of each run."""
    texts = _texts(path)
    for start, end in runs:
        yield list(islice(texts, end - start))
