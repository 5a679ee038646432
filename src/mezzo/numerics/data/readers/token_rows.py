"""Running text in rows of tokens, with what else a causal language model takes: masks,
positions, empty caches.

Rows follow each other without overlap; special tokens that the tokenizer puts around a text are put
around each row. Text is tokenized again for each pass, a part of it in memory at a time.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.common.message_style import option
from mezzo.formats.dtypes import DType
from mezzo.ir.input_roles import Slot
from mezzo.numerics.data.array_fitting import is_float, spell_slot
from mezzo.numerics.data.expected_arrays import ExpectedArrays
from mezzo.numerics.data.readers.lines import read_lines
from mezzo.numerics.data.readers.parts import Arrays, Part, Reading, Run, digest_of
from mezzo.numerics.data.readers.tokenizer_file import (
    SPLITS_NO_TEXT,
    TOKENIZER,
    make_tokenizer,
    naming_faults,
    read_tokenizer,
)

Ids = npt.NDArray[np.int64]

_IDS, _POSITIONS = "input_ids", "position_ids"
# Inputs of the shape of the tokens, by their number everywhere; positions count up instead.
_LIKE_TOKENS = {"attention_mask": 1, "token_type_ids": 0, _POSITIONS: 0}
# Inputs of one number: logits of all tokens are kept, no cache is read.
_ZERO = ("num_logits_to_keep", "logits_to_keep", "use_cache_branch")
_CACHES = ("past", "cache")
# Numbers of a cache per token: NumPy makes no empty array whose other lengths are huge.
_LARGEST_STATE = 1 << 24
# Tokens per row where the model fixes no length.
_LENGTH = 256
# Rows at once, by the FP32 logits of a batch; the vocabulary where the model's is not known.
_MOST_ROWS, _MOST_BYTES, _VOCABULARY = 32, 256 << 20, 1 << 16
# Characters tokenized at once. A word at the border of two pieces may become other tokens.
_PIECE = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Rows of `length` tokens of a text, of which `before` and `after` are special tokens.
    `file`: the tokenizer's.
    """

    path: Path
    file: Path
    tokenizer: Any
    length: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def taken(self) -> int:
        """Tokens of the text in a row."""
        return self.length - len(self.before) - len(self.after)

    def pieces(self) -> Iterator[Ids]:
        """The tokens of the text, without special ones."""
        for text in _pieces(self.path):
            with naming_faults(self.file, SPLITS_NO_TEXT):
                ids = self.tokenizer.encode(text, add_special_tokens=False).ids
            yield np.array(ids, np.int64)

    def read(self) -> Iterator[Ids]:
        """The rows in order; tokens that do not fill the last one are left out."""
        rest: Ids = np.empty(0, np.int64)
        for ids in self.pieces():
            ids = np.concatenate([rest, ids])
            whole = len(ids) - len(ids) % self.taken
            for row in ids[:whole].reshape(-1, self.taken):
                yield np.concatenate([self.before, row, self.after]).astype(np.int64)
            rest = ids[whole:]


def open_rows(path: Path, reading: Reading) -> Part:
    """The rows of a text and the other inputs of the model.

    Raises InputError: the tokenizer is missing or another model's, the text is less than a row, or
    the model has inputs that text cannot fill.
    """
    expected = reading.expected
    assert reading.tokenizer is not None, "a tokenizer is named"
    tokens = _find_tokens(path, reading)
    file = reading.tokenizer / TOKENIZER if reading.tokenizer.is_dir() else reading.tokenizer
    content = read_tokenizer(file)
    rows = _make_rows(path, file, make_tokenizer(file, content), expected, tokens)
    count, digest, note = _look_at(rows, expected.types[tokens])
    few = _fill(path, expected, tokens, np.zeros((1, rows.length), np.int64))
    with_axes = [name for name, array in few.items() if array.ndim]
    by_row = [name for name in with_axes if _has_rows(name, tokens)]
    below = expected.types[tokens].below
    row_bytes = 4 * rows.length * (below if isinstance(below, int) else _VOCABULARY)
    usual = max(1, min(_MOST_ROWS, _MOST_BYTES // row_bytes)) if by_row == with_axes else 1

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        every = rows.read()
        for start, end in runs:
            ids = np.stack([next(every) for _ in range(end - start)])
            yield _fill(path, expected, tokens, ids)

    return Part(
        where=str(path), origin=path.name, names=tuple(few), lengths=dict.fromkeys(by_row, count),
        read=read, digest=digest_of(digest, hashlib.sha256(content).hexdigest(), rows.length),
        usual=usual, notes=(note,), tokens=tokens,
    )  # fmt: skip


def _find_tokens(path: Path, reading: Reading) -> str:
    """The input of tokens: the only one, or the one that exporters call so."""
    required = reading.expected.required
    tokens = required[0] if len(required) == 1 else _IDS
    slot = reading.expected.types.get(tokens)
    is_whole = slot is not None and not is_float(slot) and slot.dtype is not DType.STRING
    has_rank = slot is not None and len(slot.lengths or (None, None)) == 2
    if reading.name is not None or tokens not in required or not (is_whole and has_rank):
        raise InputError(
            f"{path}: becomes rows of tokens for {_IDS!r}, an input of integers [batch, length],"
            f" and the model wants {reading.expected.describe()}; give arrays"
        )
    return tokens


def _make_rows(
    path: Path, file: Path, tokenizer: Any, expected: ExpectedArrays, tokens: str
) -> _Rows:
    """Rows of the length that the model fixes, or of the usual one as far as its positions go."""
    truncation = tokenizer.truncation or {}
    tokenizer.no_truncation()
    tokenizer.no_padding()
    positions = expected.types.get(_POSITIONS)
    limits = [truncation.get("max_length"), None if positions is None else positions.below]
    length = min([_LENGTH, *(limit for limit in limits if isinstance(limit, int) and limit > 0)])
    lengths = expected.types[tokens].lengths
    fixed = None if lengths is None else lengths[1]
    if isinstance(fixed, int):
        length = fixed
    with naming_faults(file, SPLITS_NO_TEXT):
        bare = tokenizer.encode("a", add_special_tokens=False).ids
        whole = tokenizer.encode("a").ids
    start = next((at for at in range(len(whole)) if whole[at : at + len(bare)] == bare), len(whole))
    rows = _Rows(
        path=path, file=file, tokenizer=tokenizer, length=length, before=tuple(whole[:start]),
        after=tuple(whole[start + len(bare) :]),
    )  # fmt: skip
    if rows.taken < 2:
        raise InputError(
            f"{path}: a row of {length} tokens holds less than two of the text; take a model that"
            " reads more at once"
        )
    return rows


def _look_at(rows: _Rows, slot: Slot) -> tuple[int, str, str]:
    """The number of rows, a digest and a note: one pass over the text.

    Raises InputError: there is less than a row, or a token that the model does not know.
    """
    below = slot.below
    total, count = hashlib.sha256(), 0
    for ids in rows.pieces():
        count += len(ids)
        total.update(ids.tobytes())
        largest = int(ids.max(initial=-1))
        if isinstance(below, int) and largest >= below:
            raise InputError(
                f"{rows.path}: {rows.file} makes token {largest} of"
                f" {rows.tokenizer.id_to_token(largest)!r}, and the model knows {below}; take the"
                " model's own tokenizer"
            )
    if not count:
        raise InputError(f"{rows.path}: holds no text; give prose that the model is made for")
    if count < rows.taken:
        raise InputError(
            f"{rows.path}: holds {count} tokens, less than a row of {rows.length}; give more text"
        )
    left = count % rows.taken
    note = f"text is cut into rows of {rows.length} tokens by {rows.file.name!r}"
    return count // rows.taken, total.hexdigest(), f"{note}; {left} are left over" if left else note


def _fill(path: Path, expected: ExpectedArrays, tokens: str, ids: Ids) -> Arrays:
    """All inputs for rows of tokens. Raises InputError: text cannot fill one."""
    arrays = {}
    for name in expected.required:
        slot = expected.types.get(name)
        array = ids if name == tokens else _fill_one(name, slot, ids)
        if array is None:
            shape = "" if slot is None else f" {spell_slot(slot)}"
            raise InputError(
                f"{path}: text cannot fill input {name!r}{shape}; give {option('data')} arrays for"
                " all inputs"
            )
        arrays[name] = array
    return arrays


def _fill_one(name: str, slot: Slot | None, ids: Ids) -> npt.NDArray[Any] | None:
    """The array of an input other than the tokens; None if what it holds is not known."""
    if slot is None or slot.lengths is None or slot.is_list:
        return None
    dtype = bool if slot.dtype is DType.BOOL else np.float32 if is_float(slot) else np.int64
    rank = len(slot.lengths)
    if name in _LIKE_TOKENS and rank == 2:
        array = np.full(ids.shape, _LIKE_TOKENS[name], dtype)
        return array + np.arange(ids.shape[1], dtype=dtype) if name == _POSITIONS else array
    if name in _ZERO and all(length == 1 for length in slot.lengths):
        return np.zeros((1,) * rank, dtype)
    if not name.startswith(_CACHES):
        return None
    # Of a cache's lengths only the batch and the past may be open.
    inner = slot.lengths[1:]
    known = [length for length in inner if isinstance(length, int)]
    if rank < 3 or len(known) != len(inner) - 1 or math.prod(known) > _LARGEST_STATE:
        return None
    past = [length if isinstance(length, int) else 0 for length in inner]
    return np.zeros((len(ids), *past), dtype)


def _has_rows(name: str, tokens: str) -> bool:
    """Whether the first axis of an input is that of the rows."""
    return name == tokens or name in _LIKE_TOKENS or name.startswith(_CACHES)


def _pieces(path: Path) -> Iterator[str]:
    """The text in pieces of whole lines."""
    lines: list[str] = []
    size = 0
    for line in read_lines(path):
        lines.append(line)
        size += len(line)
        if size >= _PIECE:
            yield "".join(lines)
            lines, size = [], 0
    if lines:
        yield "".join(lines)
