"""Resume files: the state of a search or of a pass over data, so that a run that was interrupted
continues where it ended.

A file is a JSON document, or an .npz archive of arrays with such a document. It is replaced as a
whole, and it is hostile input: reading runs no code, and every fault is one line.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mezzo.common.documents import parse_json
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import read_file, write_file
from mezzo.numerics.data.npz import NpzFile, pack

if TYPE_CHECKING:
    from mezzo.numerics.data.datasets import Batch

Array = npt.NDArray[Any]

_SAVE_EVERY_S = 5.0
_MOST_TEXT = 1 << 26
_MOST_COUNT = 1 << 62
_REMEDY = "delete it, or name another file, to start anew"


@dataclass(frozen=True, slots=True)
class StateFormat:
    """A kind of resume file. `title`: of its content, for messages; `version`: the text of the
    document's field `key`; `array`: the document's array in an archive, None for a file that is the
    document alone.
    """

    title: str
    version: str
    key: str = "version"
    array: str | None = None


@dataclass(frozen=True, slots=True)
class SavedState:
    """A resume file open for reading. `document`: without its version."""

    path: Path
    format: StateFormat
    document: dict[str, Any]
    archive: NpzFile | None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its arrays."""
        names = () if self.archive is None else self.archive.names
        return tuple(name for name in names if name != self.format.array)

    def read(self, name: str) -> Array:
        """Read an array. Raises InputError: it is missing or damaged."""
        self.check(name in self.names, f"array {name!r} is missing")
        assert self.archive is not None, "it has arrays"
        return self.archive.read(name)

    def describe(self, name: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """The shape and dtype of an array, without reading it. Errors are those of `read`."""
        self.check(name in self.names, f"array {name!r} is missing")
        assert self.archive is not None, "it has arrays"
        header = self.archive.header(name)
        return header.shape, header.dtype

    def check(self, holds: bool, fault: str) -> None:
        """Raises InputError: it does not hold, so the file is damaged."""
        if not holds:
            raise InputError(f"{self.path}: the {self.format.title} is damaged, {fault}; {_REMEDY}")

    def check_same(self, difference: str | None) -> None:
        """Raises InputError: the state differs from the requested one."""
        if difference is not None:
            raise InputError(f"{self.path}: the {self.format.title} is of {difference}; {_REMEDY}")

    def reviving(self) -> AbstractContextManager[None]:
        """Turn errors of a document with another structure into InputError."""
        return _reviving(self.path, self.format)


@contextmanager
def open_state(path: Path, form: StateFormat) -> Iterator[SavedState]:
    """Open a resume file and read its document. Raises InputError: it is damaged, another kind of
    file, or of another version.
    """
    with ExitStack() as stack:
        archive = None if form.array is None else stack.enter_context(NpzFile(path))
        with _reviving(path, form):
            document = dict(**parse_json(_read_text(path, form, archive)))
        found = document.pop(form.key, None)
        if found != form.version:
            raise InputError(
                f"{path}: is of another version of mezzo: found format {found!r}, wanted"
                f" {form.version!r}; {_REMEDY}"
            )
        yield SavedState(path, form, document, archive)


def _read_text(path: Path, form: StateFormat, archive: NpzFile | None) -> bytes:
    """The document's text, at most `_MOST_TEXT` bytes. Raises ValueError: it is no text."""
    if archive is None:
        text = read_file(path, _MOST_TEXT)
        if text is None:
            raise InputError(f"{path}: is larger than any {form.title}; {_REMEDY}")
        return text
    if form.array not in archive.names:
        raise InputError(f"{path}: keeps no {form.title}; {_REMEDY}")
    header = archive.header(form.array)
    if header.dtype != np.uint8 or len(header.shape) != 1 or header.shape[0] > _MOST_TEXT:
        raise ValueError(f"its text is {header.dtype}{list(header.shape)}")
    return archive.read(form.array).tobytes()


@contextmanager
def _reviving(path: Path, form: StateFormat) -> Iterator[None]:
    """Turn errors of a document that is damaged or has another structure into InputError."""
    try:
        yield
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        fault = "its text cannot be read"
        raise InputError(f"{path}: the {form.title} is damaged, {fault}; {_REMEDY}") from error


def write_state(
    path: Path, form: StateFormat, document: Mapping[str, object], arrays: Mapping[str, Array]
) -> None:
    """Replace a resume file. Raises InputError: it cannot be written."""
    whole = {form.key: form.version, **document}
    is_text = form.array is None
    content = json.dumps(whole).encode() if is_text else pack(form.array or "", whole, arrays)
    write_file(path, content, "resume")


@dataclass(kw_only=True)
class PassProgress:
    """Progress of a pass over data. `content`: one digest per data file, to which later files may
    be added; `last`: origin of the last batch.
    """

    model: str
    data: str
    content: tuple[str, ...]
    batches: int = 0
    samples: int = 0
    last: str = ""

    def origin(self, number: int) -> str | None:
        """The origin of a batch; None if it is not stored."""
        return self.last if number == self.batches - 1 else None

    def spell(self) -> dict[str, object]:
        """The fields as a JSON object."""
        return asdict(self)

    @classmethod
    def revive(cls, document: Mapping[str, Any]) -> Self:
        """The progress from JSON. Raises ValueError, TypeError, KeyError or AttributeError."""
        return cls(**{**document, "content": tuple(map(str, document["content"]))})

    def difference(self, wanted: Self) -> str | None:
        """How this pass differs from the requested one, as text; None if it does not."""
        if self.model != wanted.model:
            return "another model"
        if self.data != wanted.data:
            return f"other data: {self.data!r}, wanted {wanted.data!r}"
        if self.content != wanted.content[: len(self.content)]:
            return "other data: a file has changed since"
        return None


P = TypeVar("P", bound=PassProgress)


def read_progress(state: SavedState, wanted: P) -> P:
    """The progress in a resume file. Raises InputError: damaged, or of another pass."""
    with state.reviving():
        progress = type(wanted).revive(state.document)
    for field in fields(wanted):
        value, kind = getattr(progress, field.name), type(getattr(wanted, field.name))
        is_count = kind is int
        if is_count or kind is str:
            is_fine = type(value) is kind and (not is_count or 0 <= value < _MOST_COUNT)
            state.check(is_fine, "its text does not say what it should")
    state.check_same(progress.difference(wanted))
    progress.content = wanted.content
    return progress


class PassFile:
    """The resume file of a pass: counts its batches, and is saved from time to time. Without a path
    nothing is saved.
    """

    def __init__(
        self,
        path: Path | None,
        form: StateFormat,
        progress: PassProgress,
        arrays: Callable[[], Mapping[str, Array]],
    ) -> None:
        self._path, self._format, self._progress, self._arrays = path, form, progress, arrays
        self._seen = 0
        self._is_saved = self._is_sound = True
        self._saved_at = time.monotonic()

    def has(self, number: int, batch: "Batch") -> bool:
        """Whether the file has this batch. Raises InputError: it has another at this number."""
        self._seen = number + 1
        if number >= self._progress.batches:
            return False
        was = self._progress.origin(number)
        if was not in (None, batch.origin):
            raise InputError(
                f"{self._path}: batch {number} was {was!r} and is {batch.origin!r} now; give the"
                " same data and batch size, or delete the file to start anew"
            )
        return True

    @contextmanager
    def adding(self, batch: "Batch") -> Iterator[None]:
        """Count a batch that is added inside this context, and save from time to time. An interrupt
        inside leaves a half-added batch, which is never saved.
        """
        self._is_sound = False
        yield
        progress = self._progress
        progress.batches, progress.samples = progress.batches + 1, progress.samples + batch.samples
        progress.last = batch.origin
        self._is_sound, self._is_saved = True, False
        if time.monotonic() - self._saved_at > _SAVE_EVERY_S:
            self.save()

    def finish(self) -> None:
        """Raises InputError: the data had fewer batches than the file."""
        if self._seen < self._progress.batches:
            raise InputError(
                f"{self._path}: the {self._format.title} has {self._progress.batches} batches and"
                f" the data {self._seen}; give the same data, or delete the file to start anew"
            )

    def save(self) -> None:
        """Write the file, if there is a path and a complete batch that was not saved."""
        if self._path is None or self._is_saved or not self._is_sound:
            return
        arrays = self._arrays()  # first, as it may change the progress
        write_state(self._path, self._format, self._progress.spell(), arrays)
        self._is_saved, self._saved_at = True, time.monotonic()
