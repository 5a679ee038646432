"""Parts of a report: headings, tables, indented lines."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from mezzo.formats.dtypes import DType
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean

# Low precisions stand out. All colours are legible on dark and light terminals.
_DTYPE_STYLES = {
    "f16": "green", "bf16": "cyan", "f32": "yellow", "f64": "magenta", "int8": "blue",
    "f8e4m3fn": "blue", "f8e5m2": "blue", "f8e4m3fnuz": "blue", "f8e5m2fnuz": "blue",
}  # fmt: skip

_UNKNOWN_SHOWN = 8


def make_table(
    layout: Layout,
    *columns: RenderableType,
    right: Sequence[str] = (),
    fixed: Sequence[str] = (),
) -> Table:
    """A new table: `right` columns align right, `fixed` ones never wrap."""
    is_ruled = layout is Layout.TERMINAL
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


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy, whose line is never broken; print it with `crop=False`."""

    words: str
    depth: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(f"{' ' * self.depth}{self.words}", style="cyan", no_wrap=True, overflow="ignore")


def heading(text: str) -> Text:
    """The title of a section of a report."""
    return Text(text, style="bold")


def blank() -> Text:
    """An empty line."""
    return Text("")


def dtype_style(dtype: DType | str) -> str:
    """The colour of a precision, the same in all reports."""
    return _DTYPE_STYLES.get(str(dtype), "")


def section(title: str, *parts: RenderableType) -> list[RenderableType]:
    """An empty line, a title and the parts below it."""
    return [blank(), heading(title), *parts]


def report_lines(lines: "Sequence[str]", limit: int) -> list[RenderableType]:
    """Indented lines, at most `limit` of them, and the number of the others."""
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return [indented(clean(line)) for line in [*lines[:limit], *more]]


def report_unknown(unknown: "Sequence[str]") -> list[RenderableType]:
    """Lines on what the data cannot show, one per reason."""
    lines = [f"cannot tell: {clean(reason)}" for reason in unknown[:_UNKNOWN_SHOWN]]
    if len(unknown) > _UNKNOWN_SHOWN:
        lines.append(f"and {len(unknown) - _UNKNOWN_SHOWN} more that it cannot tell")
    return [indented(line, style="yellow") for line in lines]


def indented(text: str, style: str = "", depth: int = 2) -> RenderableType:
    """An indented line that keeps its indent when it wraps."""
    grid = Table.grid(padding=0)
    grid.add_column(width=depth, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row("", Text(text, style=style))
    return grid
