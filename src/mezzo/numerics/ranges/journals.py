"""Checkpoint journal: progress of a pass over data, as JSON in an untrusted .npz file."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import numpy.typing as npt

from mezzo.common.errors import InputError
from mezzo.io.documents import parse_json
from mezzo.numerics.data.npz import NpzFile, pack

_MOST_TEXT = 1 << 26
_REMEDY = "delete it, or name another file, to start anew"
Array = npt.NDArray[Any]


@dataclass(kw_only=True)
class RangeJournal:
    """Progress of a pass over data. `content`: one digest per data file, to which later files may
    be added; `last`: origin of the last batch. A subclass adds fields, a `version`, the `name` of
    the JSON among the arrays, and what the file `keeps`, for messages.
    """

    version: ClassVar[str]
    name: ClassVar[str]
    keeps: ClassVar[str]

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
        """A journal from JSON. Raises ValueError, TypeError, KeyError or AttributeError."""
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


J = TypeVar("J", bound=RangeJournal)


def dump_journal(journal: RangeJournal, arrays: Mapping[str, Array]) -> bytes:
    """The content of an .npz file with a journal and its arrays."""
    return pack(journal.name, {"version": journal.version, **journal.spell()}, arrays)


def read_journal(opened: NpzFile, wanted: J) -> J:
    """Read a file's journal. Raises InputError: damaged, or of another pass than `wanted`."""
    path, kind = opened.path, type(wanted)
    if kind.name not in opened.names:
        raise InputError(f"{path}: keeps no {kind.keeps}; {_REMEDY}")
    header = opened.header(kind.name)
    if header.dtype != np.uint8 or len(header.shape) != 1 or header.shape[0] > _MOST_TEXT:
        raise damaged(opened, wanted, f"its text is {header.dtype}{list(header.shape)}")
    journal = _parse(opened, wanted, opened.read(kind.name))
    difference = journal.difference(wanted)
    if difference is not None:
        raise InputError(f"{path}: the {kind.keeps} is of {difference}; {_REMEDY}")
    journal.content = wanted.content
    return journal


def _parse(opened: NpzFile, requested: J, text: Array) -> J:
    """Parse and validate the JSON text of a journal."""
    kind = type(requested)
    try:
        document = parse_json(text.tobytes())
        if document.pop("version") != kind.version:
            raise InputError(f"{opened.path}: is of another version of mezzo; {_REMEDY}")
        journal = kind.revive(document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(opened, requested, "its text cannot be read") from error
    checks: Mapping[type, Callable[[Any], bool]] = {
        str: lambda entry: type(entry) is str,
        int: lambda entry: type(entry) is int and 0 <= entry < 1 << 62,
    }
    for field in fields(kind):
        check = checks.get(type(getattr(requested, field.name)))
        if check is not None and not check(getattr(journal, field.name)):
            raise damaged(opened, requested, "its text does not say what it should")
    return journal


def damaged(opened: NpzFile, journal: RangeJournal, what: str) -> InputError:
    """The error for a file that does not match its kind of journal."""
    return InputError(f"{opened.path}: the {journal.keeps} is damaged, {what}; {_REMEDY}")
