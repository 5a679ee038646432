"""`mezzo convert` of a folder: convert every model in it, copy the other files."""

import os
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import MORE, output_layout, print_document, print_first_screen
from mezzo.cli.exit_codes import end_with_worst
from mezzo.cli.options import options as given
from mezzo.common.errors import InputError
from mezzo.contracts.options.option import NAMING_NODES, Form, about
from mezzo.contracts.options.request import Request
from mezzo.report.layout.names import quote

if TYPE_CHECKING:
    from mezzo.api.folders.converting import ConvertedFolder
    from mezzo.cli.hints.next_commands import Steps

# Options that name parts of one model; other models of the folder may lack them.
_OF_ONE_MODEL = NAMING_NODES | {Form.PORT_DTYPES, Form.PORT_ENDS}

LayoutName = Annotated[
    str | None,
    typer.Option(
        "--layout",
        metavar="beside|instead",
        help=(
            "Where IN is a folder: low files beside the originals, as model_fp16.onnx (default), or"
            " in their place (default where genai_config.json names the models)."
        ),
        rich_help_panel=given.FILES_PANEL,
    ),
]


def check_single(layout: str | None) -> None:
    """Raises InputError: an option for folders was given for a single model."""
    if layout is not None:
        raise InputError(
            f"--layout {layout} is for folders, and IN is a file; leave it out, or name a folder"
        )


def convert_models(
    source: Path,
    result: Path,
    options: given.CommandOptions,
    *,
    layout: str | None,
    data: Path | None,
    labels: list[str] | None,
    batch: int | None,
    overwrite: bool,
    verbose: bool,
    as_json: bool,
    quiet: bool,
    unfit: dict[str, object],
) -> None:
    """Convert a folder and print the report. `unfit` are options that folders do not accept.

    Raises:
        InputError: one of `unfit` was given; and as `mezzo.convert_folder`.
    """
    for name, value in unfit.items():
        if value is not None:
            raise InputError(
                f"{name} is for single models, and IN is a folder; leave it out, or name one of its"
                " files"
            )
    from mezzo.api.folders.converting import convert_folder
    from mezzo.cli.hints.suggestions import Given, with_step
    from mezzo.cli.progress import Patience
    from mezzo.common.machine import find_machine
    from mezzo.conversion.summaries import find_told, summarise_folder
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.folder import describe_folder, report_folder

    with Patience() as progress:
        folder = convert_folder(
            source,
            result,
            layout=layout,
            **options.to_writing(),
            data=data,
            labels=tuple(labels or ()),
            batch_size=batch,
            overwrite=overwrite,
            progress=progress,
        )
    names = os.fspath(source), os.fspath(result)
    file = find_told(folder)
    settings = dict(file.converted.plan.settings)
    context = Given(
        verb="convert", source=folder.source / file.source, result=folder.path / file.result,
        options=options.without(*_naming_parts()), labels=labels or (), batch=batch,
        data=Path(settings["data"]) if "data" in settings else None,
    )  # fmt: skip
    headline = with_step(summarise_folder(*names, folder), context)
    if as_json:
        print_document(describe_folder(*names, folder, machine=find_machine(), headline=headline))
    elif not quiet:
        stdout_layout = output_layout()
        rest = report_folder(stdout_layout, *names, folder)[1:]  # the headline has its title
        print_first_screen(
            headline,
            [*rest, *report_next_steps(_steps(folder, options))],
            stdout_layout,
            has_all=verbose,
            more=MORE,
        )
    end_with_worst(file.converted.measured for file in folder.files)


def _naming_parts() -> set[str]:
    """The options that name parts of a model."""
    return {option.name for option in fields(Request) if about(option).form in _OF_ONE_MODEL}


def _steps(folder: "ConvertedFolder", options: given.CommandOptions) -> "Steps":
    """Suggested commands after a folder conversion, without options that name parts of a model."""
    source, result = (
        quote(os.fspath(folder_path / name))
        for folder_path, name in (
            (folder.source, folder.files[0].source),
            (folder.path, folder.files[0].result),
        )
    )
    words = options.without(*_naming_parts()).words("plan")
    steps = [
        (
            " ".join(("mezzo plan", source, *words)),
            "why the nodes of one model run in what they run in",
        )
    ]
    if folder.layout == "beside":
        compare_command = (
            "mezzo compare",
            source,
            result,
            "--data random",
            *options.beside_a_plan().words("compare"),
        )
        steps.append(
            (" ".join(compare_command), "the same answers? --data FILE.npz of yours proves more")
        )
    return steps
