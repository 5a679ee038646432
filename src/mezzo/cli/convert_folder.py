"""`mezzo convert` of a folder: convert every model in it, copy the other files."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import MORE, output_layout, print_document, print_first_screen
from mezzo.cli.exit_codes import end_with_worst
from mezzo.cli.options import options as shared
from mezzo.cli.output import Output
from mezzo.common.errors import InputError
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.option import NAMING_NODES, Form, about
from mezzo.contracts.options.request import Request

if TYPE_CHECKING:
    from mezzo.api.folders.converting import ConvertedFolder
    from mezzo.cli.hints.suggestions import CommandContext

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
        rich_help_panel=shared.FILES_PANEL,
    ),
]


def check_single(layout: str | None) -> None:
    """Raises InputError: an option for folders was given for a single model."""
    if layout is not None:
        raise InputError(
            f"--layout {layout} is for folders, and IN is a file; leave it out, or name a folder"
        )


def convert_models(
    context: "CommandContext",
    output: Output,
    layout: str | None,
    overwrite: bool,
    of_one_model: Mapping[str, object],
) -> None:
    """Convert a folder and print the report. `of_one_model` are options that folders do not accept.

    Raises:
        InputError: one of `of_one_model` was given; and as `mezzo.convert_folder`.
    """
    for name, value in of_one_model.items():
        if value is not None:
            raise InputError(
                f"{name} is for single models, and IN is a folder; leave it out, or name one of its"
                " files"
            )
    chosen = context.options.to_writing()

    from mezzo.api.folders.converting import convert_folder
    from mezzo.cli.progress import Patience

    with Patience() as progress:
        folder = convert_folder(
            context.source, context.result, layout=layout, **chosen, data=context.data,
            labels=tuple(context.labels), batch_size=context.batch, overwrite=overwrite,
            progress=progress,
        )  # fmt: skip
    _present(context, output, folder)
    end_with_worst(file.converted.measured for file in folder.files)


def _present(context: "CommandContext", output: Output, folder: "ConvertedFolder") -> None:
    """Print the result, without options that name parts of one model in the next commands."""
    from mezzo.cli.hints.next_commands import steps_after_folder
    from mezzo.cli.hints.suggestions import with_step
    from mezzo.common.machine import find_machine
    from mezzo.conversion.summaries import find_worst_file, summarise_folder
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.folder import describe_folder, report_folder

    names = os.fspath(context.source), os.fspath(context.result)
    file = find_worst_file(folder)
    data = dict(file.converted.plan.settings).get("data")
    of_parts = (option.name for option in fields(Request) if about(option).form in _OF_ONE_MODEL)
    options = context.options.without(*of_parts)
    of_file = replace(
        context, source=folder.source / file.source, result=folder.path / file.result,
        options=options, data=None if data is None else DataFiles(data),
    )  # fmt: skip
    headline = with_step(summarise_folder(*names, folder), of_file)
    if output.as_json:
        print_document(describe_folder(*names, folder, machine=find_machine(), headline=headline))
    elif not output.quiet:
        layout = output_layout()
        rest = report_folder(layout, *names, folder)[1:]  # the headline has its title
        rest += report_next_steps(steps_after_folder(folder, options))
        print_first_screen(headline, rest, layout, has_all=output.verbose, more=MORE)
