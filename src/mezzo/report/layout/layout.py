"""How a report looks: ruled and coloured in a terminal, plain columns in a pipe."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from mezzo.formats.dtypes import DType
from mezzo.report.layout.names import clean, shorten

# Low is what one looks for, so it stands out. Colours that both dark and light terminals show.
_DTYPE_STYLES = {
    "f16": "green", "bf16": "cyan", "f32": "yellow", "f64": "magenta",
    "int8": "blue", "f8e4m3fn": "blue", "f8e5m2": "blue", "f8e4m3fnuz": "blue", "f8e5m2fnuz": "blue",
}  # fmt: skip


_LONGEST_NAME = 40
_UNKNOWN_SHOWN = 8


class Layout(enum.Enum):
    """Where a report goes. PLAIN has no colour, no rules and no line breaks but its own."""

    TERMINAL = "terminal"
    PLAIN = "plain"

    def make_table(self, *columns: RenderableType, right: Sequence[str] = (), fixed: Sequence[str] = ()) -> Table:
        """Start a table. `right` columns align right; `fixed` ones keep their width while others wrap."""
        is_ruled = self is Layout.TERMINAL
        table = Table(
            box=box.SIMPLE_HEAD if is_ruled else None,
            pad_edge=False,
            padding=(0, 2, 0, 0) if not is_ruled else (0, 1, 0, 0),
            header_style="bold",
            show_edge=False,
        )
        for column in columns:
            table.add_column(
                Text(column) if isinstance(column, str) else column,
                justify="right" if column in right else "left",
                no_wrap=column in fixed or column in right,
                overflow="fold",
            )
        return table

    def spell_name(self, name: str, most: int = _LONGEST_NAME) -> str:
        """A name for a column. Long ones lose their middle in a terminal, where a table has no room; a pipe has all."""
        said = clean(name)
        return shorten(said, most) if self is Layout.TERMINAL else said


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy: its line is never broken, whatever the width. Text by itself would lose that where it is
    printed; whoever prints says `crop=False`.
    """

    words: str
    depth: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"{' ' * self.depth}{self.words}", style="cyan", no_wrap=True, overflow="ignore")


def heading(text: str) -> Text:
    """The title of one part of a report."""
    return Text(text, style="bold")


def blank() -> Text:
    """An empty line."""
    return Text("")


def dtype_style(dtype: DType | str) -> str:
    """The colour of a precision, the same wherever one is named."""
    return _DTYPE_STYLES.get(str(dtype), "")


def report_unknown(unknown: "Sequence[str]") -> list[RenderableType]:
    """Lay out what the data cannot tell, a line per reason."""
    lines = [indented(f"cannot tell: {clean(reason)}", style="yellow") for reason in unknown[:_UNKNOWN_SHOWN]]
    more = len(unknown) - len(lines)
    return [*lines, *([indented(f"and {more} more that it cannot tell", style="yellow")] if more else [])]


def indented(text: str, style: str = "", depth: int = 2) -> RenderableType:
    """A line under a heading, kept in its column where it wraps."""
    grid = Table.grid(padding=0)
    grid.add_column(width=depth, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("", Text(text, style=style))
    return grid
