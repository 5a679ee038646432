"""Records that people look at in a shell or a notebook. What they see is told by the room that speaks to people, which
is found by its name: nothing here may import what stands above.
"""

from importlib import import_module
from typing import Protocol, cast

_TELLER = "mezzo.report.notebook"


class _Teller(Protocol):
    def to_text(self, record: object) -> str: ...
    def to_html(self, record: object) -> str: ...


class Shown:
    """A record that shows itself in three lines, and in a notebook as a table with a picture."""

    __slots__ = ()

    def __repr__(self) -> str:
        return _teller().to_text(self)

    def _repr_html_(self) -> str:
        return _teller().to_html(self)


def _teller() -> _Teller:
    return cast(_Teller, import_module(_TELLER))  # a module is what a protocol of functions describes
