"""mezzo tune: search for the fastest model within an error budget."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli import run_context
from mezzo.cli.console import MORE_OR_DRAWN, output_layout, print_document, print_first_screen
from mezzo.cli.exit_codes import NO, end_unless_told
from mezzo.cli.options import cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as given
from mezzo.cli.options.durations import read_duration
from mezzo.cli.options.report_option import (
    Report,
    check_report,
    draw_report,
    steps_after_tuning,
    tell_report,
)
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.options.request import SEARCH_DEFAULTS

if TYPE_CHECKING:
    from mezzo.numerics.measures import Measured

_PANEL = "Budget and search"


@given.with_search_options
def tune(
    *,
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="The FP32 ONNX model.", show_default=False)
    ],
    result: Annotated[
        Path, typer.Argument(metavar="OUT", help="Where the typed model goes.", show_default=False)
    ],
    data: data_options.Data,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error",
            metavar="E",
            min=0.0,
            rich_help_panel=_PANEL,
            help="The budget: the largest relative L2 error of an output, such as 1e-3.",
        ),
    ] = None,
    metric: data_options.Metric = None,
    max_drop: data_options.MaxDrop = None,
    held_out: Annotated[
        Path | None,
        typer.Option(
            "--held-out",
            metavar="DATA",
            rich_help_panel=_PANEL,
            help="Data that only the last check sees; else a quarter of --data.",
            show_default=False,
        ),
    ] = None,
    options: given.CommandOptions,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure",
            help="Weigh with times measured on the target here, not with its table, and time the "
            "result at the end.",
            rich_help_panel=_PANEL,
        ),
    ] = False,
    time_limit: Annotated[
        str | None,
        typer.Option(
            "--time-limit",
            metavar="10m",
            help="End with the best plan found by then: 90s, 10m, 2h.",
            rich_help_panel=_PANEL,
            show_default=False,
        ),
    ] = None,
    resume: resume_option.Resume = None,
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    save_plan: given.SavePlan = None,
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Let OUT replace the input model itself.",
            rich_help_panel=given.FILES_PANEL,
        ),
    ] = False,
    report: Report = None,
    verbose: given.Verbose = False,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Find the fastest mixed-precision model whose answers stay inside a budget of error.

    Every plan that it weighs is the cheapest for its predicted error; what it chooses is verified
    in the true precision, on data that the search has not seen. It always writes a model, and says
    what stopped it. Exit code 0: inside the budget; 1: not; 3: the data cannot tell, and what
    reaches only outputs that it shows nothing of stays FP32.
    """
    check_destination(result)
    cluster_options.check_spread(cluster, workers, data)
    check_report(report, source, result, save_plan=save_plan, resume=resume)
    chosen = options.to_writing()
    chosen.setdefault("policy", SEARCH_DEFAULTS["policy"])
    limit_s = None if time_limit is None else read_duration(time_limit)

    from mezzo.api.tune import tune as find
    from mezzo.cli.hints.suggestions import Given, with_step
    from mezzo.common.machine import find_machine
    from mezzo.conversion.summaries import summarise_result
    from mezzo.evaluate.answers import read_accumulation
    from mezzo.io.planfile import save_plan as write_plan
    from mezzo.report.records.account import describe_tuning
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.tuning import report_tuning

    with run_context.at_work(memory, cluster, workers, resume) as (progress, memory_bound):
        converted = find(
            source, result, data=data, max_error=max_error, metric=metric, max_drop=max_drop,
            held_out=held_out, labels=tuple(labels or ()), batch_size=batch, measure=measure,
            accumulate=accumulate, tile=tile, time_limit_s=limit_s, resume=resume,
            overwrite=overwrite, progress=progress, **chosen,
        )  # fmt: skip
        if save_plan is not None:
            write_plan(converted.plan, save_plan)
    assert converted.measured is not None, "tuning measures"
    measured = converted.measured
    if quiet and report is None:
        _end(measured)
        return
    names = os.fspath(source), os.fspath(result)
    steps = steps_after_tuning(source, result, data, held_out, labels or (), batch, options)
    described = (*names, converted.plan, converted.summary, measured)
    context = Given(
        verb="tune", source=source, result=result, options=options, data=data, held_out=held_out,
        labels=labels or (), batch=batch, teller=result if options.is_recorded else save_plan,
        budget=None if max_error is None else f"{max_error:g}",
    )  # fmt: skip
    headline = with_step(summarise_result(*names, converted), context)
    if as_json or report is not None:
        accumulation = read_accumulation(accumulate, tile, "emulated")
        account = describe_tuning(
            *described, accumulation=accumulation, machine=find_machine(), headline=headline
        )
        account = draw_report(
            report, memory_option.with_memory(account, memory_bound), converted.outline, steps
        )
        if as_json and not quiet:
            print_document(account)
    if not as_json and not quiet:
        layout = output_layout()
        parts = report_tuning(layout, *described)[1:]  # the headline has its title
        print_first_screen(
            headline,
            [*parts, *report_next_steps(steps)],
            layout,
            has_all=verbose,
            more=MORE_OR_DRAWN,
        )
        tell_report(report)
    _end(measured)


def _end(measured: "Measured") -> None:
    """Exit with the budget's code: 0 within, 1 exceeded, 3 cannot tell."""
    from mezzo.report.text.measured.tuning import is_wrong

    search = measured.search
    assert search is not None, "tuning searches"
    if search.unknown and not is_wrong(measured):
        end_unless_told(search.unknown)
    if not search.is_within_budget:
        raise typer.Exit(NO)
