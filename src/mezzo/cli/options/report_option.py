"""The option `--report FILE`: one HTML page about a command's result."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mezzo.cli.console import print_text
from mezzo.cli.options.options import FILES_PANEL, CommandOptions
from mezzo.common.errors import InputError
from mezzo.common.safe_paths import check_destinations, open_regular, write_file
from mezzo.common.sizes import format_size
from mezzo.formats.format_words import spell_formats
from mezzo.report.layout.names import quote

if TYPE_CHECKING:
    from mezzo.numerics.measures import Comparison
    from mezzo.report.views.outline import Outline

Document = dict[str, object]
Report = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE.html",
        show_default=False,
        rich_help_panel=FILES_PANEL,
        help="Draw what was decided and measured: one page that opens anywhere, without network.",
    ),
]


def check_report(
    report: Path | None, *models: Path, save_plan: Path | None = None, resume: Path | None = None
) -> None:
    """Check the paths that a command writes besides its models, before the work starts.

    Raises InputError: one cannot be written, two are equal, or the report would replace another
    file.
    """
    check_destinations({"--report": report, "--save-plan": save_plan, "--resume": resume}, models)
    if report is None:
        return
    from mezzo.report.html.page import MARK

    if report.exists():
        with _telling(report, "read"):
            handle, _ = open_regular(report)
        with handle:
            begin = handle.read(len(MARK))
        if begin and begin != MARK.encode():
            raise InputError(
                f"--report {os.fspath(report)!r} exists and is no report of mezzo's; give another"
                " name or remove it"
            )


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
    from mezzo.report.html import render
    from mezzo.report.records.account import with_graph

    drawn = with_graph(dict(account), draw(), steps)
    write_file(report, render(drawn).encode(), "--report")
    return drawn


def tell_report(report: Path | None) -> None:
    """Print where the report is."""
    if report is not None:
        size = format_size(report.stat().st_size)
        print_text(f"\nreport: {os.fspath(report)} ({size}), for any browser")


def steps_to_the_beginning(
    reference: Path, model: Path, trust_external_paths: bool, comparison: "Comparison"
) -> list[tuple[str, str]]:
    """A command that explains the first layer with an excessive error, if two models differ.

    It asks the compared model if its metadata has its decisions, else the reference.
    """
    from mezzo.conversion.results import decided_nodes
    from mezzo.report.text.measured.comparison import bounds_errors, find_beginning

    if comparison.verdict.ruling.value != "different":
        return []
    begins = find_beginning(
        comparison.layers, comparison.verdict.budget if bounds_errors(comparison) else math.inf
    )
    if begins is None:
        return []
    explained = (
        model if decided_nodes(model, trust_external_paths=trust_external_paths) else reference
    )
    words = " --trust-external-paths" if trust_external_paths else ""
    name = f"-- {quote(begins.name)}" if begins.name.startswith("-") else quote(begins.name)
    return [
        (
            f"mezzo explain {_words(explained)}{words} {name}",
            "why what makes the first wrong value runs in what it does",
        )
    ]


def steps_after_comparison(
    reference: Path, model: Path, data: Path, labels: Sequence[str], batch: int | None,
    options: CommandOptions, comparison: "Comparison",
) -> list[tuple[str, str]]:  # fmt: skip
    """Suggestions after a comparison."""
    names = _words(reference, model)
    shared = " ".join([_data_words(data, labels, batch), *options.words("compare")])
    steps = [
        (
            f"mezzo ranges {_words(reference)} {shared}",
            "what values hold, and what a format would lose",
        )
    ]
    if comparison.verdict.ruling.value in ("different", "undecided"):
        steps += [
            (f"mezzo sensitivity {_words(reference)} {shared}", "which operators cost the error"),
            (
                f"mezzo tune {names} {shared} --max-error 1e-3",
                "the fastest model inside a budget, in place of this one",
            ),
        ]
    return steps


def steps_after_tuning(
    source: Path, result: Path, data: Path, held_out: Path | None, labels: Sequence[str],
    batch: int | None, options: CommandOptions,
) -> list[tuple[str, str]]:  # fmt: skip
    """Suggestions after a search."""
    data_words = _data_words(held_out if held_out is not None else data, labels, batch)
    judge = " ".join([data_words, *options.beside_a_plan().words("compare")])
    to = options.word("to")
    first_format, *tail = ("",) if to is None else spell_formats(to).split(",")
    # Sensitivity takes one format.
    narrowed = options.with_words("to", first_format) if tail else options
    shared = " ".join([_data_words(data, labels, batch), *narrowed.words("sensitivity")])
    compare_steps = [
        (
            f"mezzo compare {_words(source, result)} {judge}",
            "judge the result again, layer by layer",
        )
    ]
    return [
        *(() if source.samefile(result) else compare_steps),
        (f"mezzo sensitivity {_words(source)} {shared}", "what each operator costs in error"),
    ]


def _data_words(data: Path, labels: Sequence[str], batch: int | None) -> str:
    words = [_words("--data", data), *(_words("--labels", label) for label in labels)]
    return " ".join(words if batch is None else [*words, f"--batch {batch}"])


def _words(*words: str | Path) -> str:
    return " ".join(quote(os.fspath(word)) for word in words)


@contextmanager
def _telling(report: Path, action: str) -> Iterator[None]:
    """Turn an OSError into an InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot {action} the report {os.fspath(report)!r}: {error.strerror}"
        ) from error
