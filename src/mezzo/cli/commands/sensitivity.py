"""mezzo sensitivity: the output error of each operator in low precision."""

import os
from typing import Annotated

import typer

from mezzo.cli.exit_codes import end_if_unknown
from mezzo.cli.options import cluster_options, data_options, memory_option, resume_option
from mezzo.cli.options import options as shared
from mezzo.cli.output import print_result
from mezzo.cli.run_context import Resources
from mezzo.contracts.options.request import SEARCH_DEFAULTS

_Runs = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        help="Most forward runs to spend.",
        rich_help_panel=data_options.PANEL,
    ),
]


@shared.with_search_options
def sensitivity(
    *,
    model: shared.SourceModel,
    data: data_options.Data,
    options: shared.CommandOptions,
    preprocess: data_options.Preprocess = None,
    tokenizer: data_options.Tokenizer = None,
    labels: data_options.Labels = None,
    batch: data_options.BatchSize = None,
    cluster: cluster_options.Cluster = None,
    workers: cluster_options.Workers = None,
    memory: memory_option.Memory = None,
    runs: _Runs = 48,
    resume: resume_option.Resume = None,
    accumulate: data_options.Accumulate = None,
    tile: data_options.Tile = None,
    top: data_options.Top = 20,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
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
    resources = Resources(memory=memory, cluster=cluster, workers=workers, resume=resume)
    data_files = data_options.read_data(data, preprocess, tokenizer)
    resources.check(data_files)
    chosen.setdefault("policy", SEARCH_DEFAULTS["policy"])

    from mezzo.api.sensitivity import sensitivity as find
    from mezzo.common.machine import find_machine
    from mezzo.contracts.options.keywords import planning_request_of
    from mezzo.planner.options import requested_formats
    from mezzo.report.records.account import describe_sensitivity
    from mezzo.report.text.measured.sensitivity import report_sensitivity

    with resources.at_work() as (progress, memory_bound):
        result = find(
            model, data_files, labels=tuple(labels or ()), batch_size=batch, max_runs=runs,
            accumulate=accumulate, tile=tile, resume=resume, progress=progress, **chosen,
        )  # fmt: skip
    settings = data_options.spell_settings(
        data=data_files, batch=batch, runs=runs, accumulate=accumulate, tile=tile,
        to=requested_formats(planning_request_of(chosen)), policy=chosen["policy"],
    )  # fmt: skip
    name = os.fspath(model)
    print_result(
        lambda: describe_sensitivity(name, result, settings=settings, machine=find_machine()),
        lambda layout: report_sensitivity(layout, name, result, top),
        as_json=as_json,
        quiet=quiet,
        memory=memory_bound,
    )
    end_if_unknown(result.unknown)
