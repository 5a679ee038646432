"""First screen: a headline in about eight lines; without colour and at 80 columns in a pipe."""

import textwrap
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from mezzo.report.layout.layout import heading
from mezzo.report.records.headline import Headline, ResultStanding

_WIDTH = 80  # in a pipe
_WIDEST = 100  # longer lines are hard to read
_MARGIN = 8
_STYLES = {
    ResultStanding.UNJUDGED: "bold yellow",
    ResultStanding.RIGHT: "bold green",
    ResultStanding.UNREFUTED: "bold yellow",
    ResultStanding.WRONG: "bold red",
    ResultStanding.OPEN: "bold yellow",
}


@dataclass(frozen=True, slots=True)
class _Row:
    """A label and a sentence, which wraps between words inside its column."""

    label: str
    sentence: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width if console.is_terminal else _WIDTH
        room = max(20, min(width, _WIDEST) - _MARGIN)
        lines = textwrap.wrap(
            self.sentence, room, break_long_words=False, break_on_hyphens=False
        ) or [""]
        for number, line in enumerate(lines):
            label = f"{self.label if number == 0 else '':{_MARGIN}}"
            yield Text.assemble((label, "dim"), (line, self.style), no_wrap=True, overflow="ignore")


@dataclass(frozen=True, slots=True)
class _Next:
    """A command to copy after its label; never broken if it is printed with `crop=False`."""

    command: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = (f"{'next':{_MARGIN}}", "dim"), (self.command, "cyan")
        yield Text.assemble(*parts, no_wrap=True, overflow="ignore")


def report_headline(headline: Headline, more: str = "") -> list[RenderableType]:
    """A headline for the terminal. `more`: how to see the full report."""
    parts: list[RenderableType] = [heading(headline.title)]
    for label, sentence in headline.rows():
        parts.append(
            _Row(label, sentence, _STYLES[headline.standing] if label == "verdict" else "")
        )
    if headline.step is not None:
        parts += [_Next(headline.step.command), _Row("", headline.step.why, "dim")]
    return [*parts, *([_Row("", more, "dim")] if more else [])]
