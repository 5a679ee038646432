"""mezzo quantize-report: comparison of calibrators on a model."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli import run_context
from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.exit_codes import CANNOT_TELL
from mezzo.cli.options import choices, cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as given
from mezzo.cli.options.durations import read_duration
from mezzo.contracts.options.option import Panel
from mezzo.report.layout.names import quote

if TYPE_CHECKING:
    from mezzo.numerics.calibrations import Calibrations


@given.with_options
def quantize_report(
    *,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The FP32 ONNX model.", show_default=False)
    ],
    data: data_options.Data,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="DATA",
            rich_help_panel=data_options.PANEL,
            show_default=False,
            help="Data that judges and that no scale has seen; else a quarter of --data.",
        ),
    ] = None,
    options: given.CommandOptions,
    labels: data_options.Labels = None,
    metric: data_options.Metric = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    calibrators: Annotated[
        str | None,
        typer.Option(
            "--calibrators",
            metavar="NAME,NAME",
            help="Which, with their settings, as of --calibrator.",
            show_default="all that there are",
            rich_help_panel=Panel.WHAT.value,
            autocompletion=choices.completing_plug_ins("calibrator"),
        ),
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="10m",
            help="End with what is judged by then, one row at least: 90s, 10m.",
            rich_help_panel=data_options.PANEL,
            show_default=False,
        ),
    ] = None,
    resume: resume_option.Resume = None,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Quantize a model by one calibrator after the other, and show what each makes of its answers.

    Values are collected once; each row is what 'mezzo convert' writes with that calibrator, judged
    on data that no scale has seen. With --labels naming an integer per sample it counts top-1 and
    top-5. Nothing is written. Exit code 0: it was told; 2: bad input; 3: the data cannot tell.
    """
    cluster_options.check_spread(cluster, workers, data)
    chosen = options.to_library()
    limit_s = None if time_limit is None else read_duration(time_limit)

    from mezzo.api.quantize_report import quantize_report as find
    from mezzo.common.machine import find_machine
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.calibrations import describe_calibrations, report_calibrations

    with run_context.at_work(memory, cluster, workers, resume) as (progress, memory_bound):
        calibrations = find(
            model, data, held_out=held_out, labels=tuple(labels or ()), metric=metric,
            batch_size=batch, calibrators=calibrators or (), time_limit_s=limit_s, resume=resume,
            progress=progress, **chosen,
        )  # fmt: skip
    if as_json and not quiet:
        account = describe_calibrations(os.fspath(model), calibrations, find_machine())
        print_document(memory_option.with_memory(account, memory_bound))
    elif not quiet:
        layout = output_layout()
        parts = report_calibrations(layout, os.fspath(model), calibrations)
        steps = _steps(model, data, labels or (), batch, options, calibrations)
        print_report([*parts, *(report_next_steps(steps) if steps else [])], layout)
    if all(row.verdict.ruling.value == "cannot tell" for row in calibrations.rows):
        raise typer.Exit(CANNOT_TELL)


def _steps(
    model: Path, data: Path, labels: "list[str] | tuple[str, ...]", batch: int | None,
    options: given.CommandOptions, calibrations: "Calibrations",
) -> list[tuple[str, str]]:  # fmt: skip
    """The command that writes the result of the best calibrator."""
    best = calibrations.best
    if best is None:
        return []
    result = model.with_name(f"{model.stem}.{calibrations.to.replace(',', '-')}.onnx")
    best_options = options.with_words("to", calibrations.to).with_words(
        "calibrator", best.calibrator
    )
    words = [
        "mezzo",
        "convert",
        quote(os.fspath(model)),
        quote(os.fspath(result)),
        "--data",
        quote(os.fspath(data)),
    ]
    words += [word for label in labels for word in ("--labels", quote(label))]
    words += [] if batch is None else ["--batch", str(batch)]
    why = (
        "writes it: of those that are right with most products on integers, the one that errs least"
    )
    return [(" ".join([*words, *best_options.words("convert")]), why)]
