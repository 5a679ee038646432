"""First screen: a headline in about eight lines; without colour and at 80 columns in a pipe."""

import textwrap
from dataclasses import dataclass

from mezzo.report.records.headline import Headline, ResultStanding

_WIDTH = 80  # in a pipe
_WIDEST = 100  # longer lines are hard to read
_MARGIN = 8
_TITLE = "bold"
_COMMAND = "cyan"
_STYLES = {
    ResultStanding.UNJUDGED: "bold yellow",
    ResultStanding.RIGHT: "bold green",
    ResultStanding.UNREFUTED: "bold yellow",
    ResultStanding.WRONG: "bold red",
    ResultStanding.OPEN: "bold yellow",
}


@dataclass(frozen=True, slots=True)
class ScreenRow:
    """A row of the first screen: a sentence behind a label, None for the title. A sentence wraps
    between words inside its column; a command is never broken.
    """

    label: str | None
    sentence: str
    style: str = ""

    def lines(self, width: int = _WIDTH) -> list[tuple[str, str]]:
        """The lines at a width: the label with its column's spaces, and a part of the sentence."""
        if self.label is None:
            return [("", self.sentence)]
        room = max(20, min(width, _WIDEST) - _MARGIN)
        texts = (
            [self.sentence]
            if self.style == _COMMAND
            else textwrap.wrap(self.sentence, room, break_long_words=False, break_on_hyphens=False)
        )
        labels = (self.label, *("" for _ in texts[1:]))
        return [
            (f"{label:{_MARGIN}}", text) for label, text in zip(labels, texts or [""], strict=True)
        ]


def rows_of(headline: Headline, more: str = "") -> list[ScreenRow]:
    """The rows of a headline. `more`: how to see the full report."""
    rows = [ScreenRow(None, headline.title, _TITLE)]
    for label, sentence in headline.rows():
        style = _STYLES[headline.standing] if label == "verdict" else ""
        rows.append(ScreenRow(label, sentence, style))
    if headline.step is not None:
        rows.append(ScreenRow("next", headline.step.command, _COMMAND))
        rows.append(ScreenRow("", headline.step.why, "dim"))
    return [*rows, *([ScreenRow("", more, "dim")] if more else [])]


def spell_rows(rows: list[ScreenRow]) -> str:
    """The rows as plain text, for a pipe."""
    return "\n".join((label + text).rstrip() for row in rows for label, text in row.lines())
