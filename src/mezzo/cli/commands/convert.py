"""mezzo convert: conversion of a model or a folder, with an account of the decisions."""

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli import convert_folder
from mezzo.cli.exit_codes import end_with_worst
from mezzo.cli.options import (
    ci_options,
    cluster_options,
    data_options,
    memory_option,
    resume_option,
    trtexec_option,
)
from mezzo.cli.options import options as shared
from mezzo.cli.options.report_option import Report, check_report
from mezzo.cli.options.result_path import name_result
from mezzo.cli.output import Output
from mezzo.cli.run_context import Resources
from mezzo.common.safe_paths import check_destination

if TYPE_CHECKING:
    from mezzo.cli.hints.suggestions import CommandContext
    from mezzo.common.memory import MemoryLimit
    from mezzo.conversion.results import Converted

_Source = Annotated[
    Path,
    typer.Argument(
        metavar="IN", help="The FP32 ONNX model, or a folder of them.", show_default=False
    ),
]
_Result = Annotated[
    Path | None,
    typer.Argument(
        metavar="OUT",
        help="Where the typed model, or the folder, goes; for a model by default the folder of IN,"
        " as model.fp16.onnx.",
        show_default=False,
    ),
]
_Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Let OUT replace the input model itself, or files of a folder.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


@shared.with_options
def convert(
    *,
    source: _Source,
    result: _Result = None,
    options: shared.CommandOptions,
    from_trtexec: trtexec_option.FromTrtexec = None,
    plan_file: shared.PlanFile = None,
    data: data_options.MaybeData = None,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    steps: data_options.Steps = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    resume: resume_option.Resume = None,
    memory: memory_option.Memory = None,
    save_plan: shared.SavePlan = None,
    overwrite: _Overwrite = False,
    layout_name: convert_folder.LayoutName = None,
    jobs: convert_folder.Jobs = 1,
    report: Report = None,
    junit: ci_options.Junit = None,
    markdown: ci_options.Markdown = None,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Convert an FP32 model to a typed mixed-precision one, or every model of a folder.

    With --data the exit code is that of the check: 0 the same answers on these samples, 1 not, 3
    where the data cannot tell; the result is written all the same, safe by what is known without
    data.
    """
    from mezzo.cli.hints.suggestions import CommandContext

    resources = Resources(memory=memory, cluster=cluster, workers=workers, resume=resume)
    data_files = data_options.read_maybe_data(data, preprocess, tokenizer)
    resources.check(data_files)
    output = Output(
        report=report, junit=junit, markdown=markdown, verbose=verbose, as_json=as_json,
        quiet=quiet,
    )  # fmt: skip
    if plan_file is None:
        options = options.with_default_format()
    result = name_result(source, result, options.to_writing(), plan=plan_file, overwrite=overwrite)
    context = CommandContext(
        verb="convert", source=source, result=result, options=options, data=data_files,
        labels=labels or (), batch=batch, steps=steps, saved=plan_file,
    )  # fmt: skip
    words = convert_folder.FolderWords(
        layout=layout_name, jobs=jobs, resume=resume, overwrite=overwrite
    )
    if source.is_dir():
        convert_folder.check_jobs(words, cluster)
        from mezzo.cli import folder_run

        of_one_model = {
            "--plan": plan_file, "--save-plan": save_plan, "--from-trtexec": from_trtexec,
            "--steps": steps,
        }  # fmt: skip
        with memory_option.bounded(memory, cluster), cluster_options.spread(cluster, workers):
            folder_run.convert_models(context, output, words, of_one_model)
    else:
        convert_folder.check_single(words)
        trtexec = trtexec_option.Migration(from_trtexec, options.word("to"), result)
        with ci_options.writing_errors(junit, markdown, "convert", os.fspath(source)):
            _convert_model(context, output, resources, save_plan, trtexec, overwrite=overwrite)


def _convert_model(
    context: "CommandContext",
    output: Output,
    resources: Resources,
    save_plan: Path | None,
    trtexec: trtexec_option.Migration,
    *,
    overwrite: bool,
) -> None:
    """Convert a single model and print the result."""
    source, result = context.source, context.result
    check_destination(result)
    check_report(
        output.report, source, result, save_plan=save_plan, resume=resources.resume,
        junit=output.junit, markdown=output.markdown,
    )  # fmt: skip
    chosen = context.options.to_writing()

    from mezzo.api import convert as pipeline
    from mezzo.io.planfile import save_plan as write_plan

    with resources.at_work() as (progress, memory_bound):
        converted = pipeline.convert(
            source, result, **chosen, plan=context.saved, data=context.data,
            labels=tuple(context.labels), batch_size=context.batch, steps=context.steps,
            resume=resources.resume, overwrite=overwrite, progress=progress,
        )  # fmt: skip
        if save_plan is not None:
            write_plan(converted.plan, save_plan)
    if not output.is_nothing:
        options = context.options.with_chosen(dict(converted.plan.settings))
        context = replace(context, options=options)
        teller = _find_teller(context, converted, save_plan)
        _present(replace(context, teller=teller), output, converted, memory_bound)
        trtexec.print_line(is_shown=not output.as_json)
    end_with_worst([None if converted.measured is None else converted.measured.ruling])


def _find_teller(
    context: "CommandContext", converted: "Converted", save_plan: Path | None
) -> Path | None:
    """The file that 'mezzo explain' can answer from; None if there is none.

    It is the plan if one was replayed, the source if options alone decided, else the result's
    metadata or the saved plan.
    """
    if context.saved is not None:
        return context.saved
    if converted.measured is None or converted.measured.data is None:
        return context.source
    return context.result if context.options.is_recorded else save_plan


def _present(
    context: "CommandContext", output: Output, converted: "Converted", memory_bound: "MemoryLimit"
) -> None:
    """Print the result, and draw its page."""
    from mezzo.cli.hints.suggestions import with_step
    from mezzo.conversion.summaries import summarise_result

    names = os.fspath(context.source), os.fspath(context.result)
    headline = with_step(summarise_result(*names, converted), context)
    output.write_case(context.verb, names[0], headline)
    if not output.has_details:
        output.print_headline(headline)
        return
    from mezzo.cli.hints.next_commands import steps_after_conversion, steps_to_free
    from mezzo.common.machine import find_machine
    from mezzo.report.records.account import describe_conversion
    from mezzo.report.text.conversion import report_conversion, report_next_steps
    from mezzo.report.text.picture import report_whole_picture

    plan = converted.plan
    described = (*names, plan, converted.summary, converted.measured)
    remedies = steps_to_free(context, converted.picture, plan)
    steps = steps_after_conversion(context, plan)
    freeing = [(command, why) for command, why in remedies if command is not None]
    output.present(
        headline,
        lambda: describe_conversion(*described, machine=find_machine(), headline=headline),
        converted.outline,
        [*freeing, *steps],
        lambda layout: [
            *report_conversion(layout, *described)[1:],  # the headline has its title
            *report_whole_picture(layout, plan, converted.picture, remedies),
            *report_next_steps(steps),
        ],
        memory_bound,
    )
