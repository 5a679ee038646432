"""The option `--resume`, and its hint when a command is interrupted."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import print_error
from mezzo.cli.options import data_options

Resume = Annotated[
    Path | None,
    typer.Option(
        "--resume",
        metavar="FILE",
        help=(
            "Keep what was run here, and go on from it where it exists. Of a folder of models: a"
            " folder with a record for each."
        ),
        rich_help_panel=data_options.PANEL,
        show_default=False,
    ),
]


@contextmanager
def resume_hint(resume: Path | None) -> Iterator[None]:
    """Print on Ctrl-C where the state of the run is saved, if it is."""
    try:
        yield
    except KeyboardInterrupt:
        if resume is not None and _is_begun(resume):
            print_error(
                f"what was run is kept in {os.fspath(resume)!r}; the same command goes on from"
                " there"
            )
        raise


def _is_begun(resume: Path) -> bool:
    """Whether the file, or one of its .npz companions, exists."""
    return os.path.lexists(resume) or any(resume.parent.glob(f"{glob.escape(resume.name)}.*.npz"))
