"""Run of `mezzo convert` on a folder: conversion, output, report. Loaded when a folder is given."""

import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path

import typer

from mezzo.api.folders import converting
from mezzo.api.folders.records import ConvertedFile, ConvertedFolder
from mezzo.cli.console import (
    MORE_OR_DRAWN_FOLDER,
    output_layout,
    print_document,
    print_error,
    print_first_screen,
)
from mezzo.cli.convert_folder import FolderWords
from mezzo.cli.exit_codes import BAD_INPUT, end_with_worst
from mezzo.cli.hints.next_commands import steps_after_folder
from mezzo.cli.hints.suggestions import CommandContext, with_step
from mezzo.cli.options.ci_options import write_cases
from mezzo.cli.options.report_option import check_report, print_report_path
from mezzo.cli.options.resume_option import resume_hint
from mezzo.cli.output import Output
from mezzo.cli.progress import Patience
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destinations, write_file
from mezzo.contracts.options.data_files import DataFiles
from mezzo.contracts.options.keywords import request_of
from mezzo.contracts.options.option import NAMING_NODES, Form, about
from mezzo.contracts.options.request import Request
from mezzo.conversion.summaries import find_worst_file, summarise_folder
from mezzo.report.html.folder_page import page_name, render_index
from mezzo.report.html.page import write_account
from mezzo.report.records.cases import cases_of
from mezzo.report.records.documents import Document
from mezzo.report.records.headline import Headline, NextCommand
from mezzo.report.text.conversion import report_next_steps
from mezzo.report.text.folder import File, describe_folder, report_counts, report_folder

# A conversion of a folder, as `converting.convert_models`.
ConvertFolder = Callable[[Path, Path, Request, converting.FolderOptions], ConvertedFolder]
# Options that name parts of one model; other models of the folder may lack them.
_OF_ONE_MODEL = NAMING_NODES | {Form.PORT_DTYPES, Form.PORT_ENDS, Form.PORT_PAIRS}
# Errors that are printed if nothing was converted.
_MOST_ERRORS = 20


def convert_models(
    context: CommandContext,
    output: Output,
    words: FolderWords,
    of_one_model: Mapping[str, object],
) -> None:
    """Convert a folder and print the report. `of_one_model` are options that folders do not accept.

    The exit code is 2 if a file failed, else that of the worst verdict.

    Raises:
        InputError: one of `of_one_model` was given; and as `mezzo.convert_folder`.
    """
    for name, value in of_one_model.items():
        if value is not None:
            raise InputError(
                f"{name} is for single models, and IN is a folder; leave it out, or name one of its"
                " files"
            )
    given = converting.FolderOptions(
        layout=words.layout, data=context.data, labels=tuple(context.labels),
        batch_size=context.batch, overwrite=words.overwrite, resume=words.resume, jobs=words.jobs,
        changes_of=lambda name: context.options.changes_of(context.source / name, name),
    )  # fmt: skip
    run_folder(context, output, request_of(context.options.to_writing()), given)


def run_folder(
    context: CommandContext,
    output: Output,
    request: Request,
    given: converting.FolderOptions,
    convert: ConvertFolder = converting.convert_models,
    next_command: Callable[[Headline], NextCommand | None] | None = None,
) -> None:
    """Convert a folder as a function does, print the report, and exit with its code.

    `next_command`: the next step after a headline; by default that of its aim.
    """
    check_destinations({"--junit": output.junit, "--markdown": output.markdown})
    pages = None if output.report is None else FolderReport(output.report)
    with resume_hint(given.resume), Patience() as progress:
        on_file = None if pages is None else pages.draw
        given = replace(given, progress=progress, on_file=on_file)
        folder = convert(context.source, context.result, request, given)
    _present(context, output, folder, pages, next_command)
    if folder.failed:
        raise typer.Exit(BAD_INPUT)
    end_with_worst(file.ruling for file in folder.files)


class FolderReport:
    """The pages of `--report DIR`: one per model, and an index.

    Raises InputError: DIR is a file, cannot be made, or has another program's index.html.
    """

    def __init__(self, folder: Path) -> None:
        self.index = folder / "index.html"
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--report {os.fspath(folder)!r} cannot be made: {error.strerror}; of a folder of"
                " models the report is a folder too: name a new one"
            ) from error
        check_report(self.index)
        self._folder = folder

    def draw(self, file: ConvertedFile, account: Document) -> None:
        """Write the page of a model, unless an earlier run did. Raises InputError: it cannot be
        written.
        """
        page = self._folder / page_name(file.source)
        if file.is_unchanged and page.is_file():
            return
        page.parent.mkdir(parents=True, exist_ok=True)
        write_account(page, account)

    def finish(self, title: str, headline: Headline | None, folder: ConvertedFolder) -> None:
        """Write the index. Raises InputError: it cannot be written."""
        page = render_index(title, headline, folder)
        write_file(self.index, page.encode(errors="backslashreplace"), "--report")


def _present(
    context: CommandContext,
    output: Output,
    folder: ConvertedFolder,
    pages: FolderReport | None,
    next_command: Callable[[Headline], NextCommand | None] | None,
) -> None:
    """Print and write the result. If every model failed, the failures are printed as errors."""
    names = os.fspath(context.source), os.fspath(context.result)
    title = f"{names[0]} -> {names[1]}"
    headline = _headline(context, folder) if folder.files else None
    step = None if headline is None or next_command is None else next_command(headline)
    if headline is not None and step is not None:
        headline = headline.with_step(step)
    if pages is not None:
        pages.finish(title, headline, folder)
    write_cases(output.junit, output.markdown, context.verb, title, cases_of(folder))
    if output.as_json and not output.quiet:
        print_document(describe_folder(*names, folder, headline=headline))
    elif headline is None or output.quiet:
        for failure in folder.failed[:_MOST_ERRORS]:
            print_error(failure.because)
        if len(folder.failed) > _MOST_ERRORS:
            print_error(f"and {len(folder.failed) - _MOST_ERRORS} more files failed")
    else:
        _print(context, output, folder, headline)
        print_report_path(None if pages is None else pages.index)


def _of_file(context: CommandContext, folder: ConvertedFolder, file: File) -> CommandContext:
    """The context of a file, with the formats chosen for it and without options that name parts of
    one model: other models may lack them.
    """
    settings = dict(file.converted.plan.settings)
    data = settings.get("data")
    of_file_data = None if data is None else DataFiles(data)
    if context.data is not None and context.data.single is None:  # data of the only model
        of_file_data = context.data
    of_parts = (option.name for option in fields(Request) if about(option).form in _OF_ONE_MODEL)
    return replace(
        context, source=folder.source / file.source, result=folder.path / file.result,
        options=context.options.without(*of_parts).with_chosen(settings), data=of_file_data,
    )  # fmt: skip


def _headline(context: CommandContext, folder: ConvertedFolder) -> Headline:
    names = os.fspath(context.source), os.fspath(context.result)
    of_file = _of_file(context, folder, find_worst_file(folder))
    return with_step(summarise_folder(*names, folder), of_file)


def _print(
    context: CommandContext, output: Output, folder: ConvertedFolder, headline: Headline
) -> None:

    names = os.fspath(context.source), os.fspath(context.result)
    options = _of_file(context, folder, folder.files[0]).options
    layout = output_layout()
    rest = report_folder(layout, *names, folder)[1:]  # the headline has its title
    if (folder.source / folder.files[0].source).exists():  # not exported from something else
        rest += report_next_steps(steps_after_folder(folder, options))
    print_first_screen(
        headline, rest, layout, has_all=output.verbose, more=MORE_OR_DRAWN_FOLDER,
        always=report_counts(layout, folder),
    )  # fmt: skip
