"""Rendering of a report as plain text."""

import io
import shutil
from collections.abc import Sequence

from rich.console import Console, RenderableType

_USUAL = (100, 24)


def terminal_width() -> int:
    """The number of columns of the terminal."""
    return shutil.get_terminal_size(_USUAL).columns


def as_text(parts: Sequence[RenderableType], width: int) -> str:
    """Render parts to text of this width, without colours."""
    console = Console(
        file=io.StringIO(),
        width=width,
        color_system=None,
        markup=False,
        highlight=False,
        emoji=False,
    )
    for part in parts:
        console.print(part, crop=False)
    assert isinstance(console.file, io.StringIO), "it was made here"
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
