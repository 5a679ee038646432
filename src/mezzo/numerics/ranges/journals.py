"""How far a pass over data has come, as a JSON text beside arrays in a file that may be hostile."""

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
class Journal:
    """How far a pass over data has come. `content` tells files of the same names apart, more of which may have come;
    `last` is the origin of the last batch. A kind of pass adds fields, and has a `version`, the `name` of the text
    among the arrays, and what it `keeps` in words.
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
        """Where a batch came from; None where that is not kept."""
        return self.last if number == self.batches - 1 else None

    def spell(self) -> dict[str, object]:
        """The fields as JSON has them."""
        return asdict(self)

    @classmethod
    def revive(cls, document: Mapping[str, Any]) -> Self:
        """The journal of such fields. Raises ValueError, TypeError, KeyError or AttributeError: they are none."""
        return cls(**{**document, "content": tuple(map(str, document["content"]))})

    def difference(self, wanted: Self) -> str | None:
        """What a pass that is wanted is of, in words, that this one is not of."""
        if self.model != wanted.model:
            return "another model"
        if self.data != wanted.data:
            return f"other data: {self.data!r}, wanted {wanted.data!r}"
        if self.content != wanted.content[: len(self.content)]:
            return "other data: a file has changed since"
        return None


J = TypeVar("J", bound=Journal)


def dump_journal(journal: Journal, arrays: Mapping[str, Array]) -> bytes:
    """Spell a journal and what goes with it as the content of an .npz file."""
    return pack(journal.name, {"version": journal.version, **journal.spell()}, arrays)


def read_journal(opened: NpzFile, wanted: J) -> J:
    """Read the journal of a file of the kind that is wanted. Raises InputError: it is damaged, or of another pass."""
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


def _parse(opened: NpzFile, wanted: J, text: Array) -> J:
    kind = type(wanted)
    try:
        document = parse_json(text.tobytes())
        if document.pop("version") != kind.version:
            raise InputError(f"{opened.path}: is of another version of mezzo; {_REMEDY}")
        journal = kind.revive(document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise damaged(opened, wanted, "its text cannot be read") from error
    checks: Mapping[type, Callable[[Any], bool]] = {
        str: lambda held: type(held) is str,
        int: lambda held: type(held) is int and 0 <= held < 1 << 62,
    }
    for field in fields(kind):
        check = checks.get(type(getattr(wanted, field.name)))
        if check is not None and not check(getattr(journal, field.name)):
            raise damaged(opened, wanted, "its text does not say what it should")
    return journal


def damaged(opened: NpzFile, journal: Journal, what: str) -> InputError:
    """The error of a file that does not hold what such a journal goes with."""
    return InputError(f"{opened.path}: the {journal.keeps} is damaged, {what}; {_REMEDY}")
