"""Display of result records in a shell or a notebook. The renderer, in `report`, is imported by
name at run time, because `ir` may not import packages above it.
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


class Displayed:
    """A record with a `repr` of up to five lines, and an HTML table with a chart in notebooks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _teller().to_text(self)

    def _repr_html_(self) -> str:
        return _teller().to_html(self)


class Tabled(Displayed):
    """A record that also prints as a table and saves as JSON."""

    __slots__ = ()

    def __str__(self) -> str:
        return _teller().to_table(self)

    def to_dict(self) -> dict[str, object]:
        """The record as plain data for `json.dumps`; numbers that JSON lacks (infinity, NaN) are
        strings.
        """
        return _teller().to_document(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the record as JSON, atomically. Raises InputError: the file cannot be written."""
        write_file(
            path, f"{json.dumps(self.to_dict(), indent=1, allow_nan=False)}\n".encode(), "errors"
        )


def _teller() -> _Teller:
    # The module implements the protocol with its functions.
    return cast(_Teller, import_module(_TELLER))
