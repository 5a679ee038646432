"""How a conversion or a search shows itself in a shell and in a notebook."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from mezzo.converting.summaries import Result, summarise_result
from mezzo.report.headline import Headline
from mezzo.report.notebook import bars_of, lines_of, page_of

if TYPE_CHECKING:
    from mezzo.views.picture import Picture


class Shown(Result, Protocol):
    """A result with the file that it went to, if any, and what a picture of it draws."""

    @property
    def path(self) -> Path | None: ...
    @property
    def picture(self) -> "Picture": ...


def spell_result(converted: Shown) -> str:
    """A conversion or a search in three lines, as Python shows it."""
    return "\n  ".join(lines_of("Converted", _summarise(converted)))


def draw_result(converted: Shown) -> str:
    """A conversion or a search as a fragment of a page, as a notebook shows it."""
    return page_of(_summarise(converted), bars_of(converted.picture))


def _summarise(converted: Shown) -> Headline:
    path = converted.path
    return summarise_result("the model", "memory" if path is None else os.fspath(path), converted)
