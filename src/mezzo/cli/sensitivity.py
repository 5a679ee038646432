"""mezzo sensitivity: what each operator costs in output error."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli import bounding, measuring, resuming, spreading, working
from mezzo.cli import options as given
from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.verdicts import end_unless_told
from mezzo.core.request import SEARCH_DEFAULTS


@given.with_search_options
def sensitivity(
    *,
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The FP32 ONNX model.", show_default=False)],
    data: measuring.Data,
    options: given.Options,
    labels: measuring.Labels = None,
    batch: measuring.BatchSize = None,
    cluster: spreading.Cluster = None,
    workers: spreading.Workers = None,
    memory: bounding.Memory = None,
    runs: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most forward runs to spend.", rich_help_panel=measuring.PANEL)
    ] = 48,
    resume: resuming.Resume = None,
    accumulate: measuring.Accumulate = None,
    tile: measuring.Tile = None,
    top: measuring.Top = 20,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:
    """Find what each operator costs in output error, by runs of it alone or as its share of several.

    A few dozen runs on the first samples of the data: what stands in the same place of blocks that repeat runs
    together, groups that cost much are split, groups that cost nothing are not. What may run low at all is the policy's
    to say, aggressive unless given. Exit code 3: the data cannot tell.
    """
    chosen = options.to_library()
    measuring.check_top(top)
    spreading.check_spread(cluster, workers, data)
    chosen.setdefault("policy", SEARCH_DEFAULTS["policy"])

    from mezzo.core.keywords import planning_request_of
    from mezzo.deciding.options import asked_formats
    from mezzo.machine import find_machine
    from mezzo.report.account import describe_sensitivity
    from mezzo.report.sensitivity import report_sensitivity
    from mezzo.verbs.sensitivity import sensitivity as find

    with working.at_work(memory, cluster, workers, resume) as (progress, held):
        found = find(
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
        asked = measuring.spell_settings(
            data=data,
            batch=batch,
            runs=runs,
            accumulate=accumulate,
            tile=tile,
            to=asked_formats(planning_request_of(chosen)),
            policy=chosen["policy"],
        )
        account = describe_sensitivity(os.fspath(model), found, settings=asked, machine=find_machine())
        print_document(bounding.with_memory(account, held))
    elif not quiet:
        layout = output_layout()
        print_report(report_sensitivity(layout, os.fspath(model), found, top), layout)
    end_unless_told(found.unknown)
