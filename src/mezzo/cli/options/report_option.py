"""The option `--report FILE`: one HTML page about a command's result."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import print_text
from mezzo.cli.options.options import COMMON_PANEL
from mezzo.common.safe_paths import check_destinations
from mezzo.common.sizes import format_size

if TYPE_CHECKING:
    from mezzo.report.views.outline import Outline

Document = dict[str, object]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        show_default=False,
        rich_help_panel=COMMON_PANEL,
        help=(
            "Draw what was decided and measured: one page that opens anywhere, without network. Of"
            " a folder of models: a folder with an index and a page for each."
        ),
    ),
]


def check_report(
    report: Path | None, *models: Path, save_plan: Path | None = None, resume: Path | None = None,
    junit: Path | None = None, markdown: Path | None = None,
) -> None:  # fmt: skip
    """Check the paths that a command writes besides its models, before the work starts.

    Raises InputError: one cannot be written, two are equal, or the report would replace another
    file.
    """
    outputs = {
        "--report": report, "--save-plan": save_plan, "--resume": resume, "--junit": junit,
        "--markdown": markdown,
    }  # fmt: skip
    check_destinations(outputs, models)
    if report is None:
        return
    from mezzo.report.html.page import check_page_path

    check_page_path(report)


def draw_report(
    report: Path | None,
    account: Mapping[str, object],
    draw: "Callable[[], Outline]",
    steps: Iterable[tuple[str, str]] = (),
) -> Document:
    """Write the HTML page atomically, if requested. Returns the account, then with its graph.

    Raises InputError: the file cannot be written.
    """
    if report is None:
        return dict(account)
    from mezzo.report.records.account import with_graph

    drawn = with_graph(dict(account), draw(), steps)
    write_report(report, drawn)
    return drawn


def write_report(report: Path, account: Mapping[str, object]) -> None:
    """Write the page of an account that has its graph, atomically. Raises InputError: the file
    cannot be written.
    """
    from mezzo.report.html.page import write_account

    write_account(report, account)


def print_report_path(report: Path | None) -> None:
    """Print where the report is, if there is one."""
    if report is not None:
        size = format_size(report.stat().st_size)
        print_text(f"\nreport: {os.fspath(report)} ({size}), for any browser")
