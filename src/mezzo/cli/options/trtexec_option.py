"""The option --from-trtexec: a trtexec line in place of the model and options about precision."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import print_text
from mezzo.contracts.options.option import Panel

FromTrtexec = Annotated[
    str | None,
    typer.Option(
        "--from-trtexec",
        metavar="LINE",
        help="Take IN and precisions from a trtexec line of TensorRT up to 10; print the line for"
        " TensorRT 11.",
        rich_help_panel=Panel.WHAT.value,
    ),
]


@dataclass(frozen=True, slots=True)
class Migration:
    """A trtexec line that a command was given, if any, the formats, and the typed file, None if it
    is not written.
    """

    line: str | None
    to: str | None
    result: Path | None = None

    def print_line(self, *, is_shown: bool = True) -> None:
        """Print the line for TensorRT 11, and what it lacks."""
        if self.line is None or not is_shown:
            return
        from mezzo.cli.options.trtexec_words import spell_migration

        print_text(spell_migration(self.line, self.to or "", self.result))
