"""mezzo quantize-report: comparison of calibrators on a model."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.exit_codes import CANNOT_TELL
from mezzo.cli.options import choices, cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as shared
from mezzo.cli.options.durations import read_duration
from mezzo.cli.output import print_result
from mezzo.cli.run_context import Resources
from mezzo.contracts.options.option import Panel

_HeldOut = Annotated[
    list[Path] | None,
    typer.Option(
        "--held-out",
        metavar="DATA",
        rich_help_panel=data_options.PANEL,
        show_default=False,
        help="Data that judges and that no scale has seen; else a quarter of --data.",
    ),
]
_Calibrators = Annotated[
    str | None,
    typer.Option(
        "--calibrators",
        metavar="NAME,NAME",
        help="Which, with their settings, as of --calibrator.",
        show_default="all that there are",
        rich_help_panel=Panel.WHAT.value,
        autocompletion=choices.completing_plug_ins("calibrator"),
    ),
]
_TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="10m",
        help="End with what is judged by then, one row at least: 90s, 10m.",
        rich_help_panel=data_options.PANEL,
        show_default=False,
    ),
]


@shared.with_options
def quantize_report(
    *,
    model: shared.SourceModel,
    data: data_options.Data,
    held_out: _HeldOut = None,
    options: shared.CommandOptions,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    labels: data_options.Labels = None,
    metric: data_options.Metric = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    calibrators: _Calibrators = None,
    time_limit: _TimeLimit = None,
    resume: resume_option.Resume = None,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Quantize a model by one calibrator after the other, and show what each makes of its answers.

    Values are collected once; each row is what 'mezzo convert' writes with that calibrator, judged
    on data that no scale has seen. With --labels naming an integer per sample it counts top-1 and
    top-5. Nothing is written. Exit code 0: done; 2: bad input; 3: the data cannot tell.
    """
    resources = Resources(memory=memory, cluster=cluster, workers=workers, resume=resume)
    data_files = data_options.read_data(data, preprocess, tokenizer)
    held_out_files = data_options.read_data(held_out, preprocess, tokenizer) if held_out else None
    resources.check(data_files)
    chosen = options.to_library()
    limit_s = read_duration(time_limit)

    from mezzo.api.quantize_report import quantize_report as find
    from mezzo.cli.hints.next_commands import steps_after_calibrations
    from mezzo.cli.hints.suggestions import CommandContext
    from mezzo.common.machine import find_machine
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.calibrations import describe_calibrations, report_calibrations

    with resources.at_work() as (progress, memory_bound):
        calibrations = find(
            model, data_files, held_out=held_out_files, labels=tuple(labels or ()), metric=metric,
            batch_size=batch, calibrators=calibrators or (), time_limit_s=limit_s, resume=resume,
            progress=progress, **chosen,
        )  # fmt: skip
    name = os.fspath(model)
    context = CommandContext(
        verb="quantize-report", source=model, result=model, options=options, data=data_files,
        labels=labels or (), batch=batch,
    )  # fmt: skip

    steps = steps_after_calibrations(context, calibrations)
    advice = report_next_steps(steps) if steps else []
    print_result(
        lambda: describe_calibrations(name, calibrations, find_machine()),
        lambda layout: [*report_calibrations(layout, name, calibrations), *advice],
        as_json=as_json,
        quiet=quiet,
        memory=memory_bound,
    )
    if all(row.verdict.ruling.value == "cannot tell" for row in calibrations.rows):
        raise typer.Exit(CANNOT_TELL)
