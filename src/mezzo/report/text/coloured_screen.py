"""First screen in colours, as wide as the terminal."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from mezzo.report.text.first_screen import ScreenRow


@dataclass(frozen=True, slots=True)
class _ColouredRow:
    """A row; print it with `crop=False`, as commands are never broken."""

    row: ScreenRow

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.row.label is None:  # a title may wrap
            yield Text(self.row.sentence, style=self.row.style)
            return
        for label, text in self.row.lines(options.max_width):
            parts = (label, "dim"), (text, self.row.style)
            yield Text.assemble(*parts, no_wrap=True, overflow="ignore")


def colour_rows(rows: Iterable[ScreenRow]) -> list[RenderableType]:
    """The rows for a terminal."""
    return [_ColouredRow(row) for row in rows]
