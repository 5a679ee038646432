"""mezzo tune: search for the fastest model within an error budget."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.exit_codes import NO, end_if_unknown
from mezzo.cli.options import cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as shared
from mezzo.cli.options.durations import read_duration
from mezzo.cli.options.report_option import Report, check_report
from mezzo.cli.output import Output
from mezzo.cli.run_context import Resources
from mezzo.common.safe_paths import check_destination
from mezzo.contracts.options.request import SEARCH_DEFAULTS

if TYPE_CHECKING:
    from mezzo.cli.hints.suggestions import CommandContext
    from mezzo.common.memory import MemoryLimit
    from mezzo.conversion.results import Converted
    from mezzo.numerics.measures import Measured
    from mezzo.report.records.documents import Document

_PANEL = "Search"
_Result = Annotated[
    Path, typer.Argument(metavar="OUT", help="Where the typed model goes.", show_default=False)
]
MaxError = Annotated[
    float | None,
    typer.Option(
        "--max-error",
        metavar="E",
        min=0.0,
        rich_help_panel=shared.COMMON_PANEL,
        help="The budget: the largest relative L2 error of an output, such as 1e-3.",
    ),
]
MaxBytes = Annotated[
    str | None,
    typer.Option(
        "--max-bytes",
        metavar="SIZE",
        rich_help_panel=_PANEL,
        help="Instead, for weights in int4 or int8w: the size of the result, such as 80MB; the"
        " plan of least error is chosen.",
        show_default=False,
    ),
]
HeldOut = Annotated[
    list[Path] | None,
    typer.Option(
        "--held-out",
        metavar="DATA",
        rich_help_panel=_PANEL,
        help="Data that only the last check sees; else a quarter of --data.",
        show_default=False,
    ),
]
_Measure = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Weigh with times measured on the target here, not with its table, and time the "
        "result at the end.",
        rich_help_panel=_PANEL,
    ),
]
TimeLimit = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="10m",
        help="End with the best plan found by then: 90s, 10m, 2h.",
        rich_help_panel=_PANEL,
        show_default=False,
    ),
]
_Overwrite = Annotated[
    bool,
    typer.Option(
        "--overwrite",
        help="Let OUT replace the input model itself.",
        rich_help_panel=shared.FILES_PANEL,
    ),
]


@shared.with_search_options
def tune(
    *,
    source: shared.Source,
    result: _Result,
    data: data_options.Data,
    max_error: MaxError = None,
    metric: data_options.Metric = None,
    max_drop: data_options.MaxDrop = None,
    max_bytes: MaxBytes = None,
    held_out: HeldOut = None,
    options: shared.CommandOptions,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    steps: data_options.Steps = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    measure: _Measure = False,
    time_limit: TimeLimit = None,
    resume: resume_option.Resume = None,
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    save_plan: shared.SavePlan = None,
    overwrite: _Overwrite = False,
    report: Report = None,
    verbose: shared.Verbose = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Find the fastest mixed-precision model whose answers stay inside a budget of error.

    Every plan that it weighs is the cheapest for its predicted error; what it chooses is verified
    in the true precision, on data that the search has not seen. It always writes a model, and says
    what stopped it. Exit code 0: inside the budget; 1: not; 3: the data cannot tell, and what
    reaches only outputs that it shows nothing of stays FP32.
    """
    check_destination(result)
    resources = Resources(memory=memory, cluster=cluster, workers=workers, resume=resume)
    data_files = data_options.read_data(data, preprocess, tokenizer)
    held_out_files = data_options.read_data(held_out, preprocess, tokenizer) if held_out else None
    resources.check(data_files)
    check_report(report, source, result, save_plan=save_plan, resume=resume)
    chosen = options.to_writing()
    chosen.setdefault("policy", SEARCH_DEFAULTS["policy"])

    from mezzo.api.tune import tune as find
    from mezzo.cli.hints.suggestions import CommandContext

    search = partial(
        find, source, result, data=data_files, max_error=max_error, metric=metric,
        max_drop=max_drop, max_bytes=max_bytes, held_out=held_out_files,
        labels=tuple(labels or ()), batch_size=batch, steps=steps, measure=measure,
        accumulate=accumulate, tile=tile, time_limit_s=read_duration(time_limit), resume=resume,
        overwrite=overwrite, **chosen,
    )  # fmt: skip
    context = CommandContext(
        verb="tune", source=source, result=result, options=options, data=data_files,
        held_out=held_out_files,
        labels=labels or (), batch=batch, steps=steps,
        teller=result if options.is_recorded else save_plan,
        budget=None if max_error is None else f"{max_error:g}",
    )  # fmt: skip
    output = Output(report=report, verbose=verbose, as_json=as_json, quiet=quiet)
    _run(search, context, output, resources, save_plan, sums=(accumulate, tile))


def _run(
    search: "Callable[..., Converted]",
    context: "CommandContext",
    output: Output,
    resources: Resources,
    save_plan: Path | None,
    sums: tuple[str | None, int | None],
) -> None:
    """Search, and print the result. `sums`: the options of emulated sums."""
    from mezzo.io.planfile import save_plan as write_plan

    with resources.at_work() as (progress, memory_bound):
        converted = search(progress=progress)
        if save_plan is not None:
            write_plan(converted.plan, save_plan)
    if not output.is_nothing:
        _present(context, output, converted, memory_bound, sums)
    assert converted.measured is not None, "tuning measures"
    _end(converted.measured)


def _present(
    context: "CommandContext",
    output: Output,
    converted: "Converted",
    memory_bound: "MemoryLimit",
    sums: tuple[str | None, int | None],
) -> None:
    """Print the result, and draw its page."""
    from mezzo.cli.hints.next_commands import steps_after_tuning
    from mezzo.cli.hints.suggestions import with_step
    from mezzo.common.machine import find_machine
    from mezzo.conversion.summaries import summarise_result
    from mezzo.evaluate.answers import read_accumulation
    from mezzo.report.records.account import describe_tuning
    from mezzo.report.text.conversion import report_next_steps
    from mezzo.report.text.measured.tuning import report_tuning

    names = os.fspath(context.source), os.fspath(context.result)
    headline = with_step(summarise_result(*names, converted), context)
    measured = converted.measured
    assert measured is not None, "tuning measures"
    described = (*names, converted.plan, converted.summary, measured)
    steps = steps_after_tuning(context)

    def account() -> "Document":
        accumulation = read_accumulation(*sums, "emulated")
        return describe_tuning(
            *described, accumulation=accumulation, machine=find_machine(), headline=headline
        )

    output.present(
        headline,
        account,
        converted.outline,
        steps,
        lambda layout: [
            *report_tuning(layout, *described)[1:],  # the headline has its title
            *report_next_steps(steps),
        ],
        memory_bound,
    )


def _end(measured: "Measured") -> None:
    """Exit with the budget's code: 0 within, 1 exceeded, 3 cannot tell."""
    from mezzo.report.text.measured.tuning import is_wrong

    search = measured.search
    assert search is not None, "tuning searches"
    if search.unknown and not is_wrong(measured):
        end_if_unknown(search.unknown)
    if not search.is_within_budget:
        raise typer.Exit(NO)
