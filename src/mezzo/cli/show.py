"""mezzo show: a model as typed text."""

from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli import options as given
from mezzo.cli.console import print_text


def show(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The ONNX model.", show_default=False)],
    trust_external_paths: given.TrustExternalPaths = False,
) -> None:
    """Print a model as text, every value with its type. Long text in a terminal is paged."""
    from mezzo import pipeline

    print_text(pipeline.show(model, trust_external_paths=trust_external_paths))
