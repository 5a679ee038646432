"""mezzo show: a model as typed text."""

import re
from typing import Annotated

import typer

from mezzo.cli.console import print_error, print_text
from mezzo.cli.options import options as shared
from mezzo.common.errors import InputError
from mezzo.report.layout.names import clean


def show(
    model: shared.Model,
    grep: Annotated[
        str | None,
        typer.Option(
            "--grep",
            metavar="PATTERN",
            help="Only lines in which this regular expression is found; case "
            "counts. Exit code 1: there is none.",
            rich_help_panel=shared.FILES_PANEL,
        ),
    ] = None,
    trust_external_paths: shared.TrustExternalPaths = False,
) -> None:
    """Print a model as text, every value with its type; first what made it, if it says so.

    In a terminal it is coloured, and paged where it is long.
    """
    regex = None if grep is None else _read_pattern(grep)

    from mezzo.api import convert as pipeline
    from mezzo.report.layout.listing import colour

    text = pipeline.show(model, trust_external_paths=trust_external_paths)
    origin = pipeline.describe_origin(model, trust_external_paths=trust_external_paths)
    text = "\n".join([*(f"# {clean(line)}" for line in origin), text])
    if regex is not None:
        lines = [line for line in text.splitlines() if regex.search(line)]
        if not lines:
            print_error(f"no line of the model has {grep!r} in it")
            raise typer.Exit(1)
        text = "\n".join(lines)
    print_text(text, colour)


def _read_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a regular expression. Raises InputError: it is invalid."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"--grep {pattern!r} is no regular expression: {error}; put a backslash before signs"
            " meant as they are"
        ) from error
