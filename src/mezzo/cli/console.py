"""The places that print: reports and documents to stdout, errors and progress to stderr."""

import io
import json
import pydoc
import re
import shutil
import sys
from collections.abc import Iterable, Mapping

from rich.console import Console, RenderableType

from mezzo.report.layout import Layout
from mezzo.report.names import clean, clean_lines

# In a pipe a line is as long as what it says: the reader is another program, or a pager that wraps.
_UNBOUNDED = 10_000
_PAGER_MARGIN = 2


def print_report(parts: Iterable[RenderableType], layout: Layout) -> None:
    """Print the parts of a report below each other."""
    if layout is Layout.TERMINAL:
        console = Console(markup=False, highlight=False, emoji=False)
        for part in parts:
            console.print(part)
        return
    text = io.StringIO()
    plain = Console(
        file=text, width=_UNBOUNDED, color_system=None, force_terminal=False, markup=False, highlight=False, emoji=False
    )
    for part in parts:
        plain.print(part)
    sys.stdout.writelines(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def output_layout() -> Layout:
    """Find out where stdout goes."""
    return Layout.TERMINAL if sys.stdout.isatty() else Layout.PLAIN


def print_document(document: Mapping[str, object]) -> None:
    """Print one JSON document, in ASCII: what a terminal would act on is escaped."""
    print(json.dumps(document, indent=2))


def print_json(text: str) -> None:
    """Print a JSON text as it is laid out, in ASCII."""
    print(re.sub(r"[^\n\x20-\x7e]", lambda found: json.dumps(found.group())[1:-1], text.rstrip("\n")))


def print_text(text: str) -> None:
    """Print lines that may hold names from a model; long text in a terminal goes through a pager."""
    shown = clean_lines(text.rstrip("\n"))
    height = shutil.get_terminal_size().lines - _PAGER_MARGIN
    if sys.stdout.isatty() and sys.stdin.isatty() and shown.count("\n") > height:
        pydoc.pager(shown)
    else:
        print(shown)


def print_help(text: str) -> None:
    """Print help that was not asked for, to stderr. Empty where the help has printed itself, as it does in a terminal."""
    if text.strip():
        print(text, file=sys.stderr)


def print_error(message: str) -> None:
    """Print one line to stderr."""
    print(f"mezzo: {clean(' '.join(message.split()))}", file=sys.stderr)
