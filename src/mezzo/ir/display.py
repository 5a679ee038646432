"""Records that people look at in a shell or a notebook. What they see is told by the room that speaks to people, which
is found by its name: nothing here may import what stands above.
"""

import json
import os
from importlib import import_module
from typing import Protocol, cast

from mezzo.common.safe_paths import write_file

_TELLER = "mezzo.report.notebook.notebook"


class _Teller(Protocol):
    def to_text(self, record: object) -> str: ...
    def to_html(self, record: object) -> str: ...
    def to_table(self, record: object) -> str: ...
    def to_document(self, record: object) -> dict[str, object]: ...


class Shown:
    """A record that shows itself in three lines, and in a notebook as a table with a picture."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _teller().to_text(self)

    def _repr_html_(self) -> str:
        return _teller().to_html(self)


class Tabled(Shown):
    """A record that prints as a table too, and that is kept as JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return _teller().to_table(self)

    def to_dict(self) -> dict[str, object]:
        """The record as plain data, for `json.dumps`; what JSON has no number for is a word."""
        return _teller().to_document(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON, all of it or nothing. Raises InputError: the place cannot be written."""
        write_file(path, f"{json.dumps(self.to_dict(), indent=1, allow_nan=False)}\n".encode(), "errors")


def _teller() -> _Teller:
    return cast(_Teller, import_module(_TELLER))  # a module is what a protocol of functions describes
