"""Display of a conversion or a search in a shell and in a notebook."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.conversion.summaries import summarise_result
from mezzo.report.notebook.notebook import card_of, draw_card, lines_of, measures_of
from mezzo.report.records.headline import Headline

if TYPE_CHECKING:
    from mezzo.report.text.folder import ConvertedLike
    from mezzo.report.views.picture import Picture

_NAME = "Converted"


def spell_result(converted: "ConvertedLike", path: Path | None) -> str:
    """Three lines about a conversion or a search, for `repr`; `path` is its file, if any."""
    return "\n  ".join(lines_of(_NAME, _summarise(converted, path)))


def draw_result(converted: "ConvertedLike", path: Path | None, picture: "Picture | None") -> str:
    """An HTML fragment about a conversion or a search, for a notebook; with a picture, if any."""
    measures = () if picture is None else measures_of(picture)
    return draw_card(card_of(_NAME, _summarise(converted, path), measures))


def _summarise(converted: "ConvertedLike", path: Path | None) -> Headline:
    return summarise_result("the model", "memory" if path is None else os.fspath(path), converted)
