"""Part of a data set: the samples of one file, or of one folder of images."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mezzo.common.errors import InputError
from mezzo.common.safe_paths import open_regular

if TYPE_CHECKING:
    from mezzo.numerics.data.expected_arrays import ExpectedArrays
    from mezzo.numerics.data.preprocess import Preprocess

Arrays = Mapping[str, Any]
# Samples from the first to before the second, along the first axis.
Run = tuple[int, int]

_PIECE_BYTES = 1 << 20
_DIGITS = 16


class Reading(NamedTuple):
    """What readers are asked for. `name`: the input or label that the file is for, if the user
    says so; `folder`: that of the model, None if it is no file; `tokenizer`: the folder with the
    tokenizer.json that cuts text into rows of tokens, None if text is read by lines.
    """

    expected: "ExpectedArrays"
    preprocess: "Preprocess | None" = None
    name: str | None = None
    folder: Path | None = None
    tokenizer: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The samples of a file.

    `where` and `origin` name it in errors and in batches. `names`: of all arrays; `lengths`: those
    of the first axes of the arrays to read that have one. `read` yields the arrays of each run in
    turn; runs are consecutive from 0. `digest`: of the content. `usual`: number of samples at once
    unless another is asked for, None for all; `is_even`: whether samples have one shape. `tokens`:
    the input whose rows are running text, as token ids.
    """

    where: str
    origin: str
    names: tuple[str, ...]
    lengths: Mapping[str, int]
    read: Callable[[Sequence[Run]], Iterator[Arrays]]
    digest: str
    usual: int | None = None
    is_even: bool = True
    notes: tuple[str, ...] = ()
    tokens: str | None = None


def digest_of(*words: object) -> str:
    """A short digest of values with a stable `repr`."""
    return hashlib.sha256(repr(words).encode()).hexdigest()[:_DIGITS]


def digest_file(path: Path) -> str:
    """A short digest of a file's bytes. Raises InputError: it cannot be read."""
    total = hashlib.sha256()
    try:
        with open_regular(path)[0] as file:
            while piece := file.read(_PIECE_BYTES):
                total.update(piece)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name another file") from error
    return total.hexdigest()[:_DIGITS]


def changed(part: Part, change: Callable[[Arrays], Arrays]) -> Part:
    """The part with a change to the arrays of each run."""

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        return map(change, part.read(runs))

    return replace(part, read=read)


def joined(parts: Sequence[Part]) -> Part:
    """Parts with different arrays of the same samples, as one."""
    lengths = {name: length for part in parts for name, length in part.lengths.items()}

    def read(runs: Sequence[Run]) -> Iterator[Arrays]:
        for arrays in zip(*(part.read(runs) for part in parts), strict=True):
            yield {name: array for some in arrays for name, array in some.items()}

    usual = [part.usual for part in parts if part.usual is not None]
    return Part(
        where=", ".join(part.where for part in parts),
        origin=", ".join(part.origin for part in parts),
        names=tuple(name for part in parts for name in part.names),
        lengths=lengths,
        read=read,
        digest=digest_of(*(part.digest for part in parts)),
        usual=min(usual, default=None),
        is_even=all(part.is_even for part in parts),
        notes=tuple(note for part in parts for note in part.notes),
    )
