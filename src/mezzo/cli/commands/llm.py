"""mezzo llm: a language model with low-bit weights for onnxruntime-genai or OpenVINO GenAI, from
Hugging Face.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.commands.tune import HeldOut, MaxBytes, MaxError, TimeLimit
from mezzo.cli.options import data_options, memory_option, resume_option
from mezzo.cli.options import options as shared
from mezzo.cli.options.durations import read_duration
from mezzo.cli.options.report_option import Report
from mezzo.cli.output import Output
from mezzo.common.errors import InputError
from mezzo.contracts.options.request import LLM_DEFAULTS

if TYPE_CHECKING:
    from mezzo.cli.hints.suggestions import CommandContext
    from mezzo.report.records.headline import Headline, NextCommand

# The budget of error that is suggested where the result is wrong.
_BUDGET = "0.1"
_Folder = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        help="A Hugging Face folder: config.json, safetensors, tokenizer. Or one with ONNX models"
        " in FP32.",
        show_default=False,
    ),
]
_Result = Annotated[
    Path, typer.Argument(metavar="OUT", help="The folder that is written.", show_default=False)
]
_Text = Annotated[
    list[Path] | None,
    typer.Option(
        "--data",
        metavar="TEXT",
        help="Running text (.txt) of the kind that the model is used on: the result is checked on"
        " it, and a search chooses by it. Repeatable.",
        rich_help_panel=shared.COMMON_PANEL,
    ),
]
_Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Let files of OUT be replaced.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


@functools.partial(shared.with_options, usual=LLM_DEFAULTS)
def llm(
    *,
    source: _Folder,
    result: _Result,
    options: shared.CommandOptions,
    data: _Text = None,
    max_error: MaxError = None,
    max_bytes: MaxBytes = None,
    held_out: HeldOut = None,
    batch: data_options.BatchSize = None,
    memory: memory_option.Memory = None,
    time_limit: TimeLimit = None,
    resume: resume_option.Resume = None,
    overwrite: _Overwrite = False,
    report: Report = None,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Write a language model with weights in four or eight bits, as onnxruntime-genai runs it, or
    with OpenVINO's target as OpenVINO GenAI runs it.

    A Hugging Face folder is exported in FP32 by onnxruntime-genai's builder, offline, and then
    converted; one with ONNX models is converted as it is. With --max-error or --max-bytes the
    storage of each weight is searched on the text, as 'mezzo tune' does. The folder's own tokenizer
    splits the text. Exit codes are those of 'mezzo convert'.
    """
    if "to" not in options.written:
        options = options.with_words("to", LLM_DEFAULTS["to"])
    is_search = max_error is not None or max_bytes is not None
    of_search = {"--held-out": held_out, "--time-limit": time_limit, "--resume": resume}
    for name, value in of_search.items():
        if value is not None and not is_search:
            raise InputError(
                f"{name} is of a search; give --max-error or --max-bytes too, or leave it out"
            )
    text = data_options.read_maybe_data(data, None, None)
    held_out_text = data_options.read_maybe_data(held_out, None, None)

    from mezzo.api.folders.converting import FolderOptions
    from mezzo.api.folders.model_jobs import Search
    from mezzo.api.language_models.llm import convert_language_model, request_with_defaults
    from mezzo.cli import folder_run
    from mezzo.cli.hints.suggestions import CommandContext

    search = None
    if is_search:
        search = Search(max_error, max_bytes, held_out_text, read_duration(time_limit), resume)
    context = CommandContext(
        verb="llm", source=source, result=result, options=options, data=text, batch=batch
    )
    output = Output(report=report, verbose=verbose, as_json=as_json, quiet=quiet)
    given = FolderOptions(data=text, batch_size=batch, overwrite=overwrite, search=search)
    request = request_with_defaults(dict(options.to_writing()), search)
    with memory_option.bounded(memory, None):
        folder_run.run_folder(
            context, output, request, given, convert_language_model,
            functools.partial(_next_command, context),
        )  # fmt: skip


def _next_command(context: "CommandContext", headline: "Headline") -> "NextCommand | None":
    """A search if the result is wrong, else how to run it; None for what no runtime runs."""
    from mezzo.api.folders.genai import CONFIG, OPENVINO_MODEL
    from mezzo.cli.hints.suggestions import spell_command
    from mezzo.report.records.headline import Move, NextCommand

    if context.data is not None and headline.aim.move in (Move.TUNE, Move.LOOSEN):
        budget = headline.aim.words.get("max_error", _BUDGET)
        words = [*context.data_words(context.data), "--max-error", budget, "--overwrite"]
        words += context.options.with_words("to", "int4,int8w").words("llm")
        command = spell_command("llm", context.source, context.result, *words)
        return NextCommand(command, "the smallest model inside a budget of error, in its place")
    if not any((context.result / name).is_file() for name in (CONFIG, OPENVINO_MODEL)):
        return None
    return NextCommand(spell_command("bench", context.result), "runs it: tokens per second")
