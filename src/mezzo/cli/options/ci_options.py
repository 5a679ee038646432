"""The options `--junit` and `--markdown`: a command's verdicts for continuous integration."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from mezzo.cli.options.options import FILES_PANEL
from mezzo.common.errors import MezzoError
from mezzo.common.safe_paths import write_file
from mezzo.report.records.cases import Case, CaseState, Suite

Junit = Annotated[
    Path | None,
    typer.Option(
        "--junit",
        metavar="FILE.xml",
        show_default=False,
        rich_help_panel=FILES_PANEL,
        help="Write the verdicts as JUnit XML, one test case per model.",
    ),
]
Markdown = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE.md",
        show_default=False,
        rich_help_panel=FILES_PANEL,
        help="Write the verdicts as Markdown, for a pull request or $GITHUB_STEP_SUMMARY.",
    ),
]


def write_cases(
    junit: Path | None, markdown: Path | None, command: str, title: str, cases: Iterable[Case]
) -> None:
    """Write the cases in the requested forms. Raises InputError: a file cannot be written."""
    if junit is None and markdown is None:
        return
    from mezzo.report.text.junit import to_junit
    from mezzo.report.text.markdown import to_markdown

    suite = Suite(command, title, tuple(cases))
    if junit is not None:
        write_file(junit, to_junit(suite), "--junit")
    if markdown is not None:
        write_file(markdown, to_markdown(suite).encode(errors="backslashreplace"), "--markdown")


@contextmanager
def writing_errors(
    junit: Path | None, markdown: Path | None, command: str, model: str
) -> Iterator[None]:
    """Write an error inside this context as the case of a model."""
    try:
        yield
    except MezzoError as error:
        if junit is not None or markdown is not None:
            case = Case(name=model, state=CaseState.ERROR, message=str(error))
            write_cases(junit, markdown, command, model, [case])
        raise
