"""mezzo diff: differences between two saved plans, or between two runs' reports."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.options import options as shared
from mezzo.cli.options.data_options import Top, check_top
from mezzo.cli.options.report_option import (
    Report,
    check_report,
    print_report_path,
    write_report,
)
from mezzo.cli.output import print_result
from mezzo.common.errors import InputError
from mezzo.contracts.plans import Plan
from mezzo.report.layout.names import quote


def diff(
    first: Annotated[
        Path,
        typer.Argument(
            metavar="A.json", help="A saved plan, a report, or its --json.", show_default=False
        ),
    ],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="Another.", show_default=False)],
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="MODEL",
            help="The model of both: tells which casts each plan makes of it.",
            rich_help_panel=shared.FILES_PANEL,
        ),
    ] = None,
    top: Top = 20,
    report: Report = None,
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Say what differs between two saved plans: nodes by precision and reason, settings, and casts
    with --model. Of two reports, or their --json, it compares plans, errors and times.

    Exit code 0: the same; 1: different; 2: bad input. 'mezzo plan diff A.json B.json' does the
    same.
    """
    check_top(top)
    if ".onnx" in (first.suffix, second.suffix):
        models = f"{quote(os.fspath(first))} {quote(os.fspath(second))}"
        raise InputError(
            f"'diff' compares saved plans, and {os.fspath(first)!r} is a model; write mezzo compare"
            f" {models} --data DATA"
        )
    check_report(report, first, second, *([] if model is None else [model]))

    from mezzo.api.convert import casts_of_plan
    from mezzo.api.outlines import load_decided, pair_accounts, pair_plans
    from mezzo.cli.progress import Patience
    from mezzo.report.text.plandiff import describe_difference, report_difference, report_pair
    from mezzo.report.views.plandiff import compare_plans

    names = os.fspath(first), os.fspath(second)
    one, other = load_decided(first), load_decided(second)
    if not isinstance(one, Plan) and not isinstance(other, Plan):
        pair = pair_accounts(names, (one, other))
        if report is not None:
            write_report(report, pair.document)
        print_result(
            lambda: pair.document,
            lambda layout: report_pair(layout, pair),
            as_json=as_json,
            quiet=quiet,
        )
        _end(report, is_same=not pair.differing, is_silent=quiet or as_json)
        return
    if not isinstance(one, Plan) or not isinstance(other, Plan):
        raise InputError(
            f"{names[0]!r} and {names[1]!r}: one is a plan and one a report; give two of a kind"
        )
    if report is not None and model is None:
        raise InputError(
            "a report of two plans needs their graph: give --model MODEL, or two reports in place"
            " of the plans"
        )
    plans = one, other
    casts = None
    if model is not None:
        with Patience() as progress:
            casts_of = [
                casts_of_plan(
                    model, plan, trust_external_paths=trust_external_paths, progress=progress
                )
                for plan in plans
            ]
        casts = casts_of[0], casts_of[1]
    difference = compare_plans(*plans, casts)
    if report is not None and model is not None:
        drawn = pair_plans(names, plans, model, trust_external_paths=trust_external_paths)
        write_report(report, drawn.document)
    print_result(
        lambda: describe_difference(names, difference),
        lambda layout: report_difference(layout, names, plans, difference, top),
        as_json=as_json,
        quiet=quiet,
    )
    _end(report, is_same=difference.is_same, is_silent=quiet or as_json)


def _end(report: Path | None, *, is_same: bool, is_silent: bool) -> None:
    """Print where the page is, and exit with 1 if something differs."""
    if not is_silent:
        print_report_path(report)
    if not is_same:
        raise typer.Exit(1)
