"""How a conversion or a search shows itself in a shell and in a notebook."""

import os

from mezzo.converting.results import Converted
from mezzo.converting.summaries import summarise_result
from mezzo.report.headline import Headline
from mezzo.report.notebook import bars_of, lines_of, page_of


def spell_result(converted: Converted) -> str:
    """A conversion or a search in three lines, as Python shows it."""
    return "\n  ".join(lines_of("Converted", _summarise(converted)))


def draw_result(converted: Converted) -> str:
    """A conversion or a search as a fragment of a page, as a notebook shows it."""
    return page_of(_summarise(converted), bars_of(converted.picture))


def _summarise(converted: Converted) -> Headline:
    path = converted.path
    return summarise_result("the model", "memory" if path is None else os.fspath(path), converted)
