"""Display of a conversion or a search in a shell and in a notebook."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mezzo.conversion.summaries import summarise_result
from mezzo.report.notebook.fragments import bars_of
from mezzo.report.notebook.notebook import lines_of, page_of
from mezzo.report.records.headline import Headline

if TYPE_CHECKING:
    from mezzo.report.text.folder import ConvertedLike
    from mezzo.report.views.picture import Picture


def spell_result(converted: "ConvertedLike", path: Path | None) -> str:
    """Three lines about a conversion or a search, for `repr`; `path` is its file, if any."""
    return "\n  ".join(lines_of("Converted", _summarise(converted, path)))


def draw_result(converted: "ConvertedLike", path: Path | None, picture: "Picture") -> str:
    """An HTML fragment about a conversion or a search, for a notebook."""
    return page_of(_summarise(converted, path), bars_of(picture))


def _summarise(converted: "ConvertedLike", path: Path | None) -> Headline:
    return summarise_result("the model", "memory" if path is None else os.fspath(path), converted)
