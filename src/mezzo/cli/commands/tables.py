"""mezzo policies, strategies, targets and ops: the tables behind decisions."""

import fnmatch
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mezzo.cli.console import print_error
from mezzo.cli.hints.completion import complete_operator
from mezzo.cli.options import choices
from mezzo.cli.options.options import AsJson, CommandOptions, with_options
from mezzo.cli.options.report_option import Report, check_report, draw_report, print_report_path
from mezzo.cli.output import print_result
from mezzo.common.errors import InputError
from mezzo.common.name_matching import did_you_mean
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.contracts.options.option import about
from mezzo.contracts.options.request import Request
from mezzo.tables.facts import OpFacts

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mezzo.plugins.discovery import Table
    from mezzo.plugins.entries import Origin
    from mezzo.report.layout.layout import Layout
    from mezzo.report.records.documents import Document
    from mezzo.report.records.strategies import StrategyRow

T = TypeVar("T")


def _named(kind: str) -> Any:
    """Typer's argument for the name of a table's row."""
    return typer.Argument(
        metavar="[NAME]",
        help="Show this one alone.",
        show_default=False,
        autocompletion=choices.completing_plug_ins(kind),
    )


PolicyName = Annotated[str | None, _named("policy")]
TargetName = Annotated[str | None, _named("target")]


def policies(name: PolicyName = None, as_json: AsJson = False) -> None:
    """List the policies: which operators each prefers low. With a name, that one's rules."""
    from mezzo.plugins import discovery
    from mezzo.report.text.catalogue import report_policies, report_policy_list

    table = _chosen(discovery.policies(), "policy", name)
    report = report_policy_list if name is None else report_policies
    _print_rows("policies", table, report, as_json=as_json)


@with_options
def strategies(
    model: Annotated[
        Path | None,
        typer.Argument(metavar="[MODEL]", help="A model to try them all on.", show_default=False),
    ] = None,
    *,
    options: CommandOptions,
    report: Report = None,
    as_json: AsJson = False,
) -> None:
    """List the strategies: how casts are placed. With a model, what each makes of it, the cheapest
    first.
    """
    from mezzo.plugins import discovery
    from mezzo.report.records.documents import document, encode_fields
    from mezzo.report.text.catalogue import report_strategies, report_strategy_rows

    name = None if model is None or model.exists() else _strategy_of(os.fspath(model))
    model = model if name is None else None
    if model is None and report is not None:
        raise InputError("--report draws what the strategies make of a model; name one")
    if model is not None:
        check_report(report, model)
        title, rows = str(model), _try_strategies(model, options, report)
        # All digits of the ratio, not the nine of measured numbers.
        encoded = [{**encode_fields(row), "to_least": row.to_least} for row in rows]
        print_result(
            lambda: document("strategies", {"model": title, "strategies": encoded}),
            lambda layout: report_strategy_rows(layout, title, rows),
            as_json=as_json,
        )
        if not as_json:
            print_report_path(report)
        return
    table = _chosen(discovery.strategies(), "strategy", name)
    summaries = {key: table[key].summary for key in sorted(table)}
    rows_json = [{"name": key, "summary": summary} for key, summary in summaries.items()]
    print_result(
        lambda: _describe_rows("strategies", table, rows_json),
        lambda layout: report_strategies(layout, summaries, table.origins),
        as_json=as_json,
    )
    _print_broken(table)


def _try_strategies(
    model: Path, options: CommandOptions, report: Path | None
) -> "tuple[StrategyRow, ...]":
    """The counts of every strategy for a model, with a report if one is requested."""
    chosen = options.to_library()

    from mezzo.api.strategies import compare_strategies
    from mezzo.cli.progress import Patience

    with Patience() as progress:
        if report is None:
            return compare_strategies(model, **chosen, progress=progress)

        from mezzo.api.outlines import outline_strategies
        from mezzo.report.records.account import describe_strategies

        rows, outline = outline_strategies(model, **chosen, progress=progress)
        settings = sorted(_spell(planning_request_of(chosen)))
        draw_report(report, describe_strategies(str(model), settings=settings), lambda: outline)
        return rows


def _spell(request: Request) -> Iterator[tuple[str, str]]:
    """The settings of a plan that have a value, by name, for an account."""
    settings = (
        (option.name, getattr(request, option.name))
        for option in fields(request)
        if about(option).is_setting
    )
    return ((name.replace("_", "-"), str(value)) for name, value in settings if value)


def targets(name: TargetName = None, as_json: AsJson = False) -> None:
    """List the targets: which formats run and gain on each runtime or device. With a name, that
    one's rows: what it refuses, what it runs quantized, and who says so.
    """
    from mezzo.plugins import discovery
    from mezzo.report.text.catalogue import report_target_matrix, report_targets

    table = _chosen(discovery.targets(), "target", name)
    report = report_target_matrix if name is None else report_targets
    _print_rows("targets", table, report, as_json=as_json)


def _print_rows(
    title: str,
    table: "Table[T]",
    report: "Callable[[Layout, Sequence[T], Mapping[str, Origin]], Iterable[RenderableType]]",
    *,
    as_json: bool,
) -> None:
    """Print the rows of a table, and which plug-ins are missing in it."""
    from mezzo.report.records.documents import encode_fields

    rows = [table[key] for key in sorted(table)]
    print_result(
        lambda: _describe_rows(title, table, list(map(encode_fields, rows))),
        lambda layout: report(layout, rows, table.origins),
        as_json=as_json,
    )
    _print_broken(table)


def _describe_rows(
    title: str, table: "Table[T]", rows: Sequence[Mapping[str, object]]
) -> dict[str, object]:
    """A table's rows with their origins, as a document."""
    from mezzo.report.records.documents import document

    described = [{**row, "origin": str(table.origins[str(row["name"])])} for row in rows]
    return document(title, {title: described, "broken": list(table.broken)})


def _chosen(table: "Table[T]", kind: str, name: str | None) -> "Table[T]":
    """The table, or its row of this name. Raises InputError: there is none, or it is broken."""
    if name is None:
        return table
    from mezzo.plugins.discovery import Table, settle_name

    row = settle_name(kind, name)
    if row not in table:
        quoted = f"{kind} {row!r}"
        raise InputError(next(line for line in table.broken if quoted in line))
    return Table({row: table[row]}, {row: table.origins[row]})


def _strategy_of(word: str) -> str | None:
    """The strategy that a word names; None if the word is a path."""
    from mezzo.plugins.discovery import settle_name

    is_path = "." in word or os.sep in word
    return None if is_path else settle_name("strategy", word)


def _print_broken(table: "Table[T]") -> None:
    """Print plug-ins that cannot be loaded; they are missing in the list."""
    for line in table.broken:
        print_error(line)


def ops(
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATTERN]",
            help="A glob on operator names; case is ignored.",
            show_default=False,
            autocompletion=complete_operator,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Count the operators that mezzo knows. With a pattern, list what is true of each in any model:
    its cost, its numeric risks.
    """
    from mezzo.plugins import discovery
    from mezzo.report.records.documents import document, encode_fields
    from mezzo.report.text.catalogue import report_operator_counts, report_operators

    rows = _match(pattern or "*")
    presets = [policy for _, policy in sorted(discovery.policies().items())]

    def account() -> "Document":
        rows_json = [{"dialect": dialect, **encode_fields(row)} for dialect, row in rows]
        return document("ops", {"ops": rows_json})

    def report(layout: "Layout") -> "Iterable[RenderableType]":
        if pattern is None:
            return report_operator_counts(layout, rows)
        return report_operators(layout, rows, presets)

    print_result(account, report, as_json=as_json)


def _match(pattern: str) -> list[tuple[str, OpFacts]]:
    """Rows of operators that match. Raises InputError: there are none."""
    from mezzo.tables.ops import dialects, op_facts

    all_rows = [(dialect, row) for dialect in dialects() for row in op_facts(dialect).values()]
    matching = [
        (dialect, row)
        for dialect, row in all_rows
        if fnmatch.fnmatchcase(row.op.lower(), pattern.lower())
    ]
    if not matching:
        names = {row.op for _, row in all_rows}
        hint = did_you_mean(pattern.strip("*"), sorted(names)) or "'mezzo ops' lists every operator"
        raise InputError(f"no operator matches {pattern!r}; {hint}")
    return matching
