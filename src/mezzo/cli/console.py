"""Printing: reports and documents to stdout, errors to stderr."""

import io
import json
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import typer

from mezzo.common.errors import InputError, bound_line
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, clean_lines

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from mezzo.report.records.headline import Headline

# Lines in a pipe are not wrapped: the reader is another program, or a pager that wraps.
_UNBOUNDED = 10_000
_PAGER_MARGIN = 2
# Hints on how to see the full report.
MORE = "-v tells all that was decided and why"
MORE_OR_DRAWN = f"{MORE}; --report FILE.html draws it"
MORE_OR_DRAWN_FOLDER = f"{MORE}; --report DIR draws it"
# What precedes a command at the end of an error.
_COMMAND = "; write mezzo "
_BROKEN_PIPE = 141  # 128 + SIGPIPE, what a shell reports of `cat` in the same place


def print_report(
    parts: "Iterable[RenderableType]", layout: Layout, *, is_paged: bool = False
) -> None:
    """Print the parts of a report one below the other; in a terminal through a pager if that is
    asked for and the report is longer than the screen.
    """
    from rich.console import Console

    if layout is Layout.TERMINAL:
        console = Console(markup=False, highlight=False, emoji=False)
        with console.capture() if is_paged else nullcontext() as captured:
            for part in parts:
                console.print(part, crop=False)  # long commands wrap and are not cropped
        if captured is not None:
            screen = captured.get()
            _page(screen, screen.count("\n"))
        return
    text = io.StringIO()
    plain = Console(
        file=text,
        width=_UNBOUNDED,
        color_system=None,
        force_terminal=False,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for part in parts:
        plain.print(part)
    _write("\n".join(line.rstrip() for line in text.getvalue().splitlines()))


def print_first_screen(
    headline: "Headline",
    rest: "Iterable[RenderableType]",
    layout: Layout,
    *,
    has_all: bool,
    more: str,
    always: "Iterable[RenderableType]" = (),
) -> None:
    """Print a headline, `always`, and the full report with `has_all`, else the hint `more`."""
    from mezzo.report.text.first_screen import rows_of, spell_rows

    rows = rows_of(headline, "" if has_all else more)
    below = [*always, *(["", *rest] if has_all else [])]
    if layout is Layout.PLAIN:
        _write(spell_rows(rows))
        if below:
            print_report(below, layout)
        return
    from mezzo.report.text.coloured_screen import colour_rows

    print_report([*colour_rows(rows), *below], layout)


def output_layout() -> Layout:
    """The layout for stdout: terminal or pipe."""
    return Layout.TERMINAL if sys.stdout.isatty() else Layout.PLAIN


def print_document(document: Mapping[str, object]) -> None:
    """Print a JSON document in ASCII, with control characters escaped."""
    from mezzo.report.records.documents import to_json

    _write(to_json(document))


def print_json(text: str) -> None:
    """Print a JSON text with its layout, in ASCII."""
    _write(
        re.sub(r"[^\n\x20-\x7e]", lambda match: json.dumps(match.group())[1:-1], text.rstrip("\n"))
    )


def print_text(text: str, colour: "Callable[[str], Text] | None" = None) -> None:
    """Print lines with names from a model; in a terminal coloured, and through a pager if long."""
    lines = clean_lines(text.rstrip("\n")).split("\n")
    if not sys.stdout.isatty():
        _write("\n".join(lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(markup=False, highlight=False, emoji=False)
    with console.capture() as captured:
        for line in lines:
            console.print((colour or Text)(line), soft_wrap=True)
    columns = shutil.get_terminal_size().columns
    _page(captured.get(), sum(max(1, -(-len(line) // columns)) for line in lines))


def _page(text: str, rows: int) -> None:
    """Print coloured text to a terminal, through a pager if its rows are more than the screen's."""
    if not sys.stdin.isatty() or rows <= shutil.get_terminal_size().lines - _PAGER_MARGIN:
        _write(text.rstrip("\n"))
        return
    import pydoc

    # less, as set by git: exit if one screen suffices, show colours, keep the text on the screen.
    os.environ.setdefault("LESS", "FRX")
    pydoc.pager(text)


def print_help(text: str) -> None:
    """Print help after a usage error to stderr; empty in a terminal, as rich has printed it."""
    if text.strip():
        print(text, file=sys.stderr)


def print_error(message: str) -> None:
    """Print an error line to stderr. In a terminal it wraps between words, and a command that it
    ends with has a line of its own, unbroken, to be copied.
    """
    line = f"mezzo: {clean(bound_line(message))}"
    if sys.stderr.isatty():
        width = max(20, shutil.get_terminal_size().columns)
        text, _, command = line.partition(_COMMAND)
        line = textwrap.fill(
            f"{text}{_COMMAND.rstrip()}" if command else text, width,
            subsequent_indent="  ", break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        line = f"{line.removesuffix(' mezzo')}\n  mezzo {command}" if command else line
    with suppress(OSError, ValueError):  # stderr may be closed; the exit code remains
        print(line, file=sys.stderr, flush=True)


def print_log(text: str) -> None:
    """Print lines of another program to stderr."""
    with suppress(OSError, ValueError):
        print(clean_lines(text), file=sys.stderr, flush=True)


def _write(text: str) -> None:
    """Print to stdout. A closed pipe ends the program quietly, as it ends other programs.

    Raises InputError: stdout cannot be written to.
    """
    try:
        print(text, flush=True)
    except OSError as error:
        # The interpreter flushes stdout again at exit: redirect it to the null device.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(_BROKEN_PIPE) from None
        raise InputError(
            f"cannot print to stdout: {error.strerror}; files that were asked for are written"
        ) from error
