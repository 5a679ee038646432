"""Options of `mezzo convert` for folders of models."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.options import options as shared
from mezzo.common.errors import InputError

LayoutName = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="beside|instead",
        help=(
            "Where IN is a folder: low files beside the originals, as model_fp16.onnx (default), or"
            " in their place (default where genai_config.json names the models)."
        ),
        rich_help_panel=shared.FILES_PANEL,
    ),
]


Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        help="Where IN is a folder: how many models to convert at a time, each in a process.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWords:
    """The options that are for folders alone, and those that mean a folder for them."""

    layout: str | None
    jobs: int
    resume: Path | None
    overwrite: bool


def check_single(words: FolderWords) -> None:
    """Raises InputError: an option for folders was given for a single model."""
    given = {"--layout": words.layout, "--jobs": words.jobs if words.jobs != 1 else None}
    for name, value in given.items():
        if value is not None:
            raise InputError(
                f"{name} {value} is for folders, and IN is a file; leave it out, or name a folder"
            )


def check_jobs(words: FolderWords, cluster: str | None) -> None:
    """Raises InputError: several processes here, and a cluster."""
    if words.jobs != 1 and cluster is not None:
        raise InputError(
            f"--jobs is {words.jobs} and --cluster is {cluster!r}: the cluster's workers run the"
            " data of one model at a time; leave one out"
        )
