"""mezzo sensitivity: the output error of each operator in low precision."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli import run_context
from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.exit_codes import end_unless_told
from mezzo.cli.options import cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as given
from mezzo.contracts.options.request import SEARCH_DEFAULTS


@given.with_search_options
def sensitivity(
    *,
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="The FP32 ONNX model.", show_default=False)
    ],
    data: data_options.Data,
    options: given.CommandOptions,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    runs: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Most forward runs to spend.",
            rich_help_panel=data_options.PANEL,
        ),
    ] = 48,
    resume: resume_option.Resume = None,
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    top: data_options.Top = 20,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Find what each operator costs in output error, by runs of it alone or as its share of
    several.

    A few dozen runs on the first samples of the data: what stands in the same place of blocks that
    repeat runs together, groups that cost much are split, groups that cost nothing are not. What
    may run low at all is the policy's to say, aggressive unless given. Exit code 3: the data cannot
    tell.
    """
    chosen = options.to_library()
    data_options.check_top(top)
    cluster_options.check_spread(cluster, workers, data)
    chosen.setdefault("policy", SEARCH_DEFAULTS["policy"])

    from mezzo.api.sensitivity import sensitivity as find
    from mezzo.common.machine import find_machine
    from mezzo.contracts.options.keywords import planning_request_of
    from mezzo.planner.options import asked_formats
    from mezzo.report.records.account import describe_sensitivity
    from mezzo.report.text.measured.sensitivity import report_sensitivity

    with run_context.at_work(memory, cluster, workers, resume) as (progress, memory_bound):
        result = find(
            model,
            data,
            labels=tuple(labels or ()),
            batch_size=batch,
            max_runs=runs,
            accumulate=accumulate,
            tile=tile,
            resume=resume,
            progress=progress,
            **chosen,
        )
    if as_json and not quiet:
        settings = data_options.spell_settings(
            data=data,
            batch=batch,
            runs=runs,
            accumulate=accumulate,
            tile=tile,
            to=asked_formats(planning_request_of(chosen)),
            policy=chosen["policy"],
        )
        account = describe_sensitivity(
            os.fspath(model), result, settings=settings, machine=find_machine()
        )
        print_document(memory_option.with_memory(account, memory_bound))
    elif not quiet:
        layout = output_layout()
        print_report(report_sensitivity(layout, os.fspath(model), result, top), layout)
    end_unless_told(result.unknown)
