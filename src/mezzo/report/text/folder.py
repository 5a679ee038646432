"""Account and report of a converted folder."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import RenderableType

from mezzo.common.sizes import format_size
from mezzo.contracts.plans import Plan
from mezzo.formats.dtypes import DType
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean, join_some
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import blank, heading, indented, make_table, section
from mezzo.report.records.account import schema as account_schema
from mezzo.report.records.documents import Document, document, number, read_schema
from mezzo.report.records.groups import count_precisions
from mezzo.report.records.headline import Headline, describe_headline
from mezzo.report.records.summary import Summary
from mezzo.report.text.conversion import settings_line
from mezzo.report.text.measured.comparison import RULINGS, report_notes

if TYPE_CHECKING:
    from mezzo.numerics.measures import Measured, Ruling

_SHOWN = 3
_FAILURES_SHOWN = 20
_STATES = {
    "converted": "written by this run",
    "unchanged": "written by an earlier run; source and options are the same",
    "kept": "low or quantized already",
    "failed": "at fault; left as they are",
}


class ConvertedLike(Protocol):
    """The fields of a conversion that a report uses."""

    @property
    def plan(self) -> Plan: ...
    @property
    def summary(self) -> Summary: ...
    @property
    def measured(self) -> "Measured | None": ...


class File(Protocol):
    """The fields of a model in a folder that a report uses."""

    @property
    def source(self) -> str: ...
    @property
    def result(self) -> str: ...
    @property
    def converted(self) -> ConvertedLike: ...
    @property
    def account(self) -> Document: ...
    @property
    def headline(self) -> Headline: ...
    @property
    def ruling(self) -> "Ruling | None": ...
    @property
    def seconds(self) -> float: ...
    @property
    def is_unchanged(self) -> bool: ...


class Failure(Protocol):
    """The fields of a failed file that a report uses."""

    @property
    def source(self) -> str: ...
    @property
    def because(self) -> str: ...


class TieLike(Protocol):
    """The fields of a tie that a report uses: ports that share a type."""

    @property
    def name(self) -> str: ...
    @property
    def outputs(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def inputs(self) -> tuple[tuple[str, str], ...]: ...


class TypedTieLike(Protocol):
    """A tie with its type."""

    @property
    def tie(self) -> TieLike: ...
    @property
    def dtype(self) -> DType: ...


class Folder(Protocol):
    """The fields of a converted folder that a report uses."""

    @property
    def layout(self) -> str: ...
    @property
    def files(self) -> Iterable[File]: ...
    @property
    def skipped(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def failed(self) -> Sequence[Failure]: ...
    @property
    def copied(self) -> tuple[str, ...]: ...
    @property
    def left_out(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def ties(self) -> Iterable[TypedTieLike]: ...
    @property
    def settings(self) -> tuple[tuple[str, str], ...]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


def folder_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a folder's account, with that of accounts inside."""
    schema = read_schema("folder")
    schema["$defs"]["account"] = {**account_schema(), "$id": "account.schema.json"}
    return schema


def describe_folder(
    source: str,
    result: str,
    folder: Folder,
    *,
    headline: Headline | None = None,
) -> Document:
    """Account of a folder conversion: one account per model, and what applies to all."""
    accounts = [
        {
            "source": file.source,
            "result": file.result,
            "state": "unchanged" if file.is_unchanged else "converted",
            "seconds": number(file.seconds),
            "account": file.account,
        }
        for file in folder.files
    ]
    return document(
        "folder",
        {
            "summary": describe_headline(headline),
            "source": source,
            "result": result,
            "layout": folder.layout,
            "counts": count_states(folder),
            "settings": dict(folder.settings),
            "files": accounts,
            "ties": [_describe_tie(typed_tie) for typed_tie in folder.ties],
            "skipped": [{"name": name, "because": reason} for name, reason in folder.skipped],
            "failed": [{"name": f.source, "because": f.because} for f in folder.failed],
            "copied": list(folder.copied),
            "left_out": [{"name": name, "because": reason} for name, reason in folder.left_out],
            "notes": list(folder.notes),
        },
    )


def count_states(folder: Folder) -> dict[str, int]:
    """How many models were converted, were converted by an earlier run, stay as they are because
    they are low, and failed.
    """
    unchanged = sum(file.is_unchanged for file in folder.files)
    return {
        "converted": len(tuple(folder.files)) - unchanged,
        "unchanged": unchanged,
        "kept": len(folder.skipped),
        "failed": len(folder.failed),
    }


def report_counts(layout: Layout, folder: Folder) -> list[RenderableType]:
    """Counts by state and the failures, if not every model was simply converted."""
    counts = count_states(folder)
    if counts["converted"] == sum(counts.values()):
        return []
    table = make_table(layout, "models", "count", "", right=("count",))
    for state, count in counts.items():
        table.add_row(state, str(count), _STATES[state])
    shown = folder.failed[:_FAILURES_SHOWN]
    lines = [indented(clean(failure.because)) for failure in shown]
    if len(folder.failed) > len(shown):
        lines.append(indented(f"and {len(folder.failed) - len(shown)} more, with -v or --json"))
    return [blank(), table, *(section("failed", *lines) if lines else [])]


def _describe_tie(typed: TypedTieLike) -> Document:
    return {
        "name": typed.tie.name,
        "dtype": str(typed.dtype),
        "outputs": [{"file": file, "name": name} for file, name in typed.tie.outputs],
        "inputs": [{"file": file, "name": name} for file, name in typed.tie.inputs],
    }


def report_folder(layout: Layout, source: str, result: str, folder: Folder) -> list[RenderableType]:
    """A folder conversion, one line per model."""
    all_files = tuple(folder.files)
    plan = all_files[0].converted.plan
    levels = (*plan.lows, plan.high)
    columns = (*map(str, levels), "casts", "size")
    table = make_table(layout, "result", *columns, right=columns)
    for file in all_files:
        summary, counts = file.converted.summary, count_precisions(file.converted.plan)
        sizes = (
            f"{format_size(summary.size_before_bytes)} -> {format_size(summary.size_after_bytes)}"
        )
        nodes = (str(counts.get(dtype, 0)) for dtype in levels)
        table.add_row(clean(file.result), *nodes, str(summary.casts), sizes)
    parts: list[RenderableType] = [
        heading(f"{clean(source)} -> {clean(result)}"),
        # The settings as given: those of single files would list every port's type.
        settings_line(replace(plan, settings=folder.settings)),
        blank(),
        table,
    ]
    parts += _report_ties(folder)
    parts += _report_checks(all_files)
    failures = tuple((failure.source, failure.because) for failure in folder.failed)
    for title, rows in (
        ("not converted", folder.skipped),
        ("failed", failures),
        ("left out", folder.left_out),
    ):
        if rows:
            lines = [indented(f"{clean(name)}: {clean(why)}") for name, why in rows]
            parts += section(title, *lines)
    if folder.copied:
        parts += [blank(), indented(f"copied: {join_some(folder.copied, _SHOWN)}")]
    notes = [*folder.notes, *(note for file in all_files for note in file.converted.summary.notes)]
    return parts + report_notes(notes)


def _report_ties(folder: Folder) -> list[RenderableType]:
    by_dtype: dict[DType, list[str]] = {}
    for typed_tie in folder.ties:
        by_dtype.setdefault(typed_tie.dtype, []).append(typed_tie.tie.name)
    if not by_dtype:
        return []
    parts = section("what one file hands to another")
    for dtype, names in by_dtype.items():
        which = "it" if len(names) == 1 else "them"
        parts.append(
            indented(
                f"{dtype}: {join_some(names, _SHOWN)}, in every file that makes or reads {which}"
            )
        )
    return parts


def _report_checks(all_files: tuple[File, ...]) -> list[RenderableType]:
    """One line per model that was compared on data."""
    lines = []
    for file in all_files:
        if file.is_unchanged and file.ruling is not None:
            lines.append(indented(f"{clean(file.result)}: {file.headline.verdict}"))
        measured = file.converted.measured
        if measured is not None and measured.comparison is not None:
            verdict = measured.comparison.verdict
            word = RULINGS[verdict.ruling.value][0]
            samples = spell_count(measured.comparison.data.samples, "sample")
            lines.append(
                indented(f"{clean(file.result)}: {word} on {samples}; {clean(verdict.because)}")
            )
    return section("the check", *lines) if lines else []
