"""What was laid out for a terminal, as text."""

import io
import shutil
from collections.abc import Sequence

from rich.console import Console, RenderableType

_USUAL = (100, 24)


def terminal_width() -> int:
    """How many columns the terminal has."""
    return shutil.get_terminal_size(_USUAL).columns


def as_text(parts: Sequence[RenderableType], width: int) -> str:
    """Lay parts out in so many columns, without colours."""
    console = Console(file=io.StringIO(), width=width, color_system=None, markup=False, highlight=False, emoji=False)
    for part in parts:
        console.print(part, crop=False)
    assert isinstance(console.file, io.StringIO), "it was made here"
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
