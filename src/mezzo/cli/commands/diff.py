"""mezzo diff: differences between two saved plans."""

import os
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.options import options as shared
from mezzo.cli.options.data_options import Top, check_top
from mezzo.cli.output import print_result
from mezzo.common.errors import InputError
from mezzo.report.layout.names import quote


def diff(
    first: Annotated[
        Path, typer.Argument(metavar="A.json", help="A saved plan.", show_default=False)
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
    trust_external_paths: shared.TrustExternalPaths = False,
    as_json: shared.AsJson = False,
    quiet: shared.Quiet = False,
) -> None:
    """Say what differs between two saved plans: nodes by precision and reason, settings, and casts
    with --model.

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

    from mezzo.api.convert import casts_of_plan
    from mezzo.cli.progress import Patience
    from mezzo.io.planfile import load_plan
    from mezzo.report.text.plandiff import describe_difference, report_difference
    from mezzo.report.views.plandiff import compare_plans

    plans = load_plan(first), load_plan(second)
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
    names = os.fspath(first), os.fspath(second)
    print_result(
        lambda: describe_difference(names, difference),
        lambda layout: report_difference(layout, names, plans, difference, top),
        as_json=as_json,
        quiet=quiet,
    )
    if not difference.is_same:
        raise typer.Exit(1)
