"""How a report looks: ruled and coloured in a terminal, plain columns in a pipe."""

import enum
from collections.abc import Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text


class Layout(enum.Enum):
    """Where a report goes. PLAIN has no colour, no rules and no line breaks but its own."""

    TERMINAL = "terminal"
    PLAIN = "plain"

    def make_table(self, *columns: str, right: Sequence[str] = (), fixed: Sequence[str] = ()) -> Table:
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
                Text(column),
                justify="right" if column in right else "left",
                no_wrap=column in fixed or column in right,
                overflow="fold",
            )
        return table


def heading(text: str) -> Text:
    """The title of one part of a report."""
    return Text(text, style="bold")


def blank() -> Text:
    """An empty line."""
    return Text("")


def indented(text: str, style: str = "") -> RenderableType:
    """A line under a heading, kept in its column where it wraps."""
    grid = Table.grid(padding=0)
    grid.add_column(width=2, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("", Text(text, style=style))
    return grid
