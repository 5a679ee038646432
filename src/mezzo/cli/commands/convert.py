"""mezzo convert: conversion of a model or a folder, with an account of the decisions."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli import convert_folder, run_context
from mezzo.cli.console import MORE_OR_DRAWN, output_layout, print_document, print_first_screen
from mezzo.cli.exit_codes import end_with_worst
from mezzo.cli.options import cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as given
from mezzo.cli.options.report_option import Report, check_report, draw_report, tell_report
from mezzo.common.safe_paths import check_destination

if TYPE_CHECKING:
    from mezzo.cli.hints.suggestions import Given
    from mezzo.common.memory import MemoryLimit as Bound
    from mezzo.conversion.results import Converted


@given.with_options
def convert(
    *,
    source: Annotated[
        Path,
        typer.Argument(
            metavar="IN", help="The FP32 ONNX model, or a folder of them.", show_default=False
        ),
    ],
    result: Annotated[
        Path,
        typer.Argument(
            metavar="OUT", help="Where the typed model, or the folder, goes.", show_default=False
        ),
    ],
    options: given.CommandOptions,
    plan_file: given.PlanFile = None,
    data: data_options.MaybeData = None,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    resume: resume_option.Resume = None,
    memory: memory_option.Memory = None,
    save_plan: given.SavePlan = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Let OUT replace the input model itself, or files of a folder.",
            rich_help_panel=given.FILES_PANEL,
        ),
    ] = False,
    layout_name: convert_folder.LayoutName = None,
    report: Report = None,
    verbose: given.Verbose = False,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Convert an FP32 model to a typed mixed-precision one, or every model of a folder.

    With --data the exit code is that of the check: 0 the same answers on these samples, 1 not, 3
    where the data cannot tell; the result is written all the same, safe by what is known without
    data.
    """
    cluster_options.check_spread(cluster, workers, data)
    if source.is_dir():
        unfit: dict[str, object] = {
            "--plan": plan_file,
            "--save-plan": save_plan,
            "--report": report,
            "--resume": resume,
        }
        with memory_option.bounded(memory, cluster), cluster_options.spread(cluster, workers):
            convert_folder.convert_models(
                source, result, options, layout=layout_name, data=data, labels=labels, batch=batch,
                overwrite=overwrite, verbose=verbose, as_json=as_json, quiet=quiet, unfit=unfit,
            )  # fmt: skip
        return
    convert_folder.check_single(layout_name)
    check_destination(result)
    check_report(report, source, result, save_plan=save_plan, resume=resume)
    chosen = options.to_writing()

    from mezzo.api import convert as pipeline
    from mezzo.cli.hints.suggestions import Given
    from mezzo.io.planfile import save_plan as write_plan

    with run_context.at_work(memory, cluster, workers, resume) as (progress, memory_bound):
        converted = pipeline.convert(
            source,
            result,
            **chosen,
            plan=plan_file,
            data=data,
            labels=tuple(labels or ()),
            batch_size=batch,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
        )
        if save_plan is not None:
            write_plan(converted.plan, save_plan)
    if not quiet or report is not None:
        teller = _find_teller(source, result, options, converted, plan_file, save_plan)
        context = Given(
            verb="convert", source=source, result=result, options=options, data=data,
            labels=labels or (), batch=batch, teller=teller, saved=plan_file,
        )  # fmt: skip
        _tell(
            context,
            converted,
            memory_bound,
            teller,
            report,
            as_json=as_json,
            verbose=verbose,
            quiet=quiet,
        )
    end_with_worst([converted.measured])


def _find_teller(
    source: Path,
    result: Path,
    options: given.CommandOptions,
    converted: "Converted",
    plan_file: Path | None,
    save_plan: Path | None,
) -> Path | None:
    """The file that 'mezzo explain' can answer from; None if there is none.

    It is the plan if one was replayed, the source if options alone decided, else the result's
    metadata or the saved plan.
    """
    if plan_file is not None:
        return plan_file
    if converted.measured is None or converted.measured.data is None:
        return source
    return result if options.is_recorded else save_plan


def _tell(
    context: "Given",
    converted: "Converted",
    memory_bound: "Bound",
    teller: Path | None,
    report: Path | None,
    *,
    as_json: bool,
    verbose: bool,
    quiet: bool,
) -> None:
    """Print the result, and write the report if one is requested."""
    from mezzo.cli.hints.suggestions import with_step
    from mezzo.conversion.summaries import summarise_result

    source, options, plan_file = context.source, context.options, context.saved
    names = os.fspath(source), os.fspath(context.result)
    headline = with_step(summarise_result(*names, converted), context)
    if not (verbose or as_json or report is not None):
        print_first_screen(headline, (), output_layout(), has_all=False, more=MORE_OR_DRAWN)
        return
    from mezzo.cli.hints.next_commands import steps_after_conversion, steps_to_free
    from mezzo.common.machine import find_machine
    from mezzo.report.records.account import describe_conversion
    from mezzo.report.text.conversion import report_conversion, report_next_steps
    from mezzo.report.text.picture import report_whole_picture

    plan = converted.plan
    described = (*names, plan, converted.summary, converted.measured)
    remedies = steps_to_free(source, converted.picture, plan, options, plan_file)
    steps = steps_after_conversion(source, plan, options, plan_file, teller)
    if as_json or report is not None:
        account = describe_conversion(*described, machine=find_machine(), headline=headline)
        freeing = [(command, why) for command, why in remedies if command is not None]
        account = draw_report(
            report,
            memory_option.with_memory(account, memory_bound),
            converted.outline,
            [*freeing, *steps],
        )
        if as_json and not quiet:
            print_document(account)
    if as_json or quiet:
        return
    layout = output_layout()
    parts = report_conversion(layout, *described)[1:]  # the headline has its title
    parts += report_whole_picture(layout, plan, converted.picture, remedies)
    print_first_screen(
        headline, [*parts, *report_next_steps(steps)], layout, has_all=verbose, more=MORE_OR_DRAWN
    )
    tell_report(report)
