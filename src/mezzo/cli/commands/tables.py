"""mezzo policies, strategies, targets and ops: the tables behind decisions."""

import fnmatch
import os
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from mezzo.cli.console import output_layout, print_document, print_error, print_report
from mezzo.cli.hints.completion import complete_operator
from mezzo.cli.options import choices
from mezzo.cli.options.options import AsJson, CommandOptions, with_options
from mezzo.cli.options.report_option import Report, check_report, draw_report, tell_report
from mezzo.common.errors import InputError
from mezzo.common.name_matching import did_you_mean
from mezzo.contracts.options.keywords import planning_request_of
from mezzo.contracts.options.option import about
from mezzo.contracts.options.request import Request
from mezzo.tables.facts import OpFacts

if TYPE_CHECKING:
    from mezzo.api.strategies import StrategyRow
    from mezzo.plugins.discovery import Table

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
    """List the policies: what is wanted, rule by rule. With a name, that one."""
    from mezzo.plugins import discovery
    from mezzo.report.records.account import document, spell
    from mezzo.report.text.catalogue import report_policies

    table = _chosen(discovery.policies(), "policy", name)
    selected = [table[key] for key in sorted(table)]
    if as_json:
        rows = [spell(policy) for policy in selected]
        print_document(
            document(
                "policies", {"policies": _with_origins(table, rows), "broken": list(table.broken)}
            )
        )
    else:
        layout = output_layout()
        print_report(report_policies(layout, selected, table.origins), layout)
    _tell_broken(table)


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
    from mezzo.report.records.account import document, spell
    from mezzo.report.text.catalogue import report_strategies, report_strategy_rows

    layout = output_layout()
    name = None if model is None or model.exists() else _strategy_of(os.fspath(model))
    model = model if name is None else None
    if model is None and report is not None:
        raise InputError("--report draws what the strategies make of a model; name one")
    if model is not None:
        check_report(report, model)
        rows = _try_strategies(model, options, report)
        if as_json:
            print_document(
                document(
                    "strategies", {"model": str(model), "strategies": [spell(row) for row in rows]}
                )
            )
        else:
            print_report(report_strategy_rows(layout, str(model), rows), layout)
            tell_report(report)
        return
    table = _chosen(discovery.strategies(), "strategy", name)
    if as_json:
        rows_json = [{"name": key, "summary": table[key].summary} for key in sorted(table)]
        content = {"strategies": _with_origins(table, rows_json), "broken": list(table.broken)}
        print_document(document("strategies", content))
    else:
        summaries = {key: table[key].summary for key in sorted(table)}
        print_report(report_strategies(layout, summaries, table.origins), layout)
    _tell_broken(table)


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
    """List the targets: what each runtime or device cannot run. With a name, that one."""
    from mezzo.plugins import discovery
    from mezzo.report.records.account import document, spell
    from mezzo.report.text.catalogue import report_targets

    table = _chosen(discovery.targets(), "target", name)
    selected = [table[key] for key in sorted(table)]
    if as_json:
        rows = [spell(target) for target in selected]
        print_document(
            document(
                "targets", {"targets": _with_origins(table, rows), "broken": list(table.broken)}
            )
        )
    else:
        layout = output_layout()
        print_report(report_targets(layout, selected, table.origins), layout)
    _tell_broken(table)


def _chosen(table: "Table[T]", kind: str, name: str | None) -> "Table[T]":
    """The table, or its row of this name. Raises InputError: there is none."""
    if name is None:
        return table
    from mezzo.plugins.discovery import Table, settle_name

    row = settle_name(kind, name)
    return Table({row: table[row]}, {row: table.origins[row]})


def _strategy_of(word: str) -> str | None:
    """The strategy that a word names; None if the word is a path."""
    from mezzo.plugins.discovery import settle_name

    is_path = "." in word or os.sep in word
    return None if is_path else settle_name("strategy", word)


def _with_origins(table: "Table[T]", rows: Sequence[object]) -> list[dict[str, object]]:
    """JSON rows with their origins."""
    mappings = map(_as_mapping, rows)
    return [{**row, "origin": str(table.origins[str(row["name"])])} for row in mappings]


def _tell_broken(table: "Table[T]") -> None:
    """Print plug-ins that cannot be loaded; they are missing in the list."""
    for line in table.broken:
        print_error(line)


def ops(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="[PATTERN]",
            help="A glob on operator names; case is ignored.",
            show_default=False,
            autocompletion=complete_operator,
        ),
    ] = "*",
    as_json: AsJson = False,
) -> None:
    """List what is true of each operator in any model: its cost, its numeric risks."""
    from mezzo.plugins import discovery
    from mezzo.report.records.account import document, spell
    from mezzo.report.text.catalogue import report_operators

    rows = _match(pattern)
    if as_json:
        rows_json = [{"dialect": dialect, **_as_mapping(spell(row))} for dialect, row in rows]
        print_document(document("ops", {"ops": rows_json}))
        return
    layout = output_layout()
    presets = [policy for _, policy in sorted(discovery.policies().items())]
    print_report(report_operators(layout, rows, presets), layout)


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


def _as_mapping(value: object) -> dict[str, object]:
    assert isinstance(value, dict), "a row is spelled as a mapping"
    return value
