"""What `mezzo convert` does where IN is a folder: every model in it converted, all else copied."""

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

# Forms of options that name parts of a model; the folder's other models need not have them.
_OF_ONE_MODEL = NAMING_NODES | {Form.PORT_DTYPES, Form.PORT_ENDS}

LayoutName = Annotated[
    str | None,
    typer.Option("--layout", metavar="beside|instead", help="Where IN is a folder: low files beside the originals, as "
                 "model_fp16.onnx (default), or in their place (default where genai_config.json names the models).",
                 rich_help_panel=given.FILES_PANEL),
]  # fmt: skip


def check_single(layout: str | None) -> None:
    """Raises InputError: an option of folders was given for a single model."""
    if layout is not None:
        raise InputError(f"--layout {layout} is for folders, and IN is a file; leave it out, or name a folder")


def convert_models(
    source: Path,
    result: Path,
    options: given.Options,
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
    """Convert a folder and tell about it. `unfit` are options, by name, that a folder cannot take, as given.

    Raises:
        InputError: one of them was given; and as `mezzo.convert_folder`.
    """
    for name, value in unfit.items():
        if value is not None:
            raise InputError(f"{name} is for single models, and IN is a folder; leave it out, or name one of its files")
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
    again = Given(
        verb="convert", source=folder.source / file.source, result=folder.path / file.result,
        options=options.without(*_naming_parts()), labels=labels or (), batch=batch,
        data=Path(settings["data"]) if "data" in settings else None,
    )  # fmt: skip
    headline = with_step(summarise_folder(*names, folder), again)
    if as_json:
        print_document(describe_folder(*names, folder, machine=find_machine(), headline=headline))
    elif not quiet:
        how = output_layout()
        rest = report_folder(how, *names, folder)[1:]  # the headline has its title
        print_first_screen(
            headline, [*rest, *report_next_steps(_steps(folder, options))], how, has_all=verbose, more=MORE
        )
    end_with_worst(file.converted.measured for file in folder.files)


def _naming_parts() -> set[str]:
    """The options that name parts of a model."""
    return {option.name for option in fields(Request) if about(option).form in _OF_ONE_MODEL}


def _steps(folder: "ConvertedFolder", options: given.Options) -> "Steps":
    """What to look at once a folder is written. What names parts of a model is left out: it may fit another one."""
    source, result = (
        quote(os.fspath(where / name))
        for where, name in ((folder.source, folder.files[0].source), (folder.path, folder.files[0].result))
    )
    words = options.without(*_naming_parts()).words("plan")
    steps = [(" ".join(("mezzo plan", source, *words)), "why the nodes of one model run in what they run in")]
    if folder.layout == "beside":
        comparing = ("mezzo compare", source, result, "--data random", *options.beside_a_plan().words("compare"))
        steps.append((" ".join(comparing), "the same answers? --data FILE.npz of yours proves more"))
    return steps
