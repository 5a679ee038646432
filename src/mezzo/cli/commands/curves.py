"""mezzo curves: losses of trainings over seeds, way beside way."""

from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.console import output_layout, print_document, print_report
from mezzo.cli.hints.completion import complete_way
from mezzo.cli.options import options as given
from mezzo.cli.options.report_option import Report, check_report, tell_report
from mezzo.common.safe_paths import write_file


def curves(
    recorded: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.json...", help="Recorded losses, as JSON or JSON lines.", show_default=False),
    ],
    baseline: Annotated[
        str | None,
        typer.Option("--baseline", metavar="WAY", help="The way that the others are compared with.",
                     show_default="FP32, else the first", autocompletion=complete_way),
    ] = None,
    report: Report = None,
    as_json: given.AsJson = False,
    quiet: given.Quiet = False,
) -> None:  # fmt: skip
    """Show how trainings in several precisions end over seeds, and whether that is more than noise.

    A row of a file is {"way": "FP32", "seed": 1, "losses": [...]}, "network" and "held_out" beside it if you like; or a
    line is a step, {"way", "seed", "step", "loss"}. Exit code 0: shown; 2: bad input.
    """
    check_report(report, *recorded)

    from mezzo.api.curves import curves as judge
    from mezzo.numerics.statistics.training_curves import TEST
    from mezzo.report.text.training.curves import describe_curves, report_curves

    networks = judge(recorded, baseline=baseline)
    if report is not None:
        from mezzo.report.html import render_curves

        write_file(report, render_curves(networks, TEST).encode(), "--report")
    if as_json and not quiet:
        print_document(describe_curves(networks, TEST))
    elif not quiet:
        layout = output_layout()
        print_report(report_curves(layout, networks, TEST), layout)
        tell_report(report)
