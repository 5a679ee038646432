"""Report of tokens per second, as text and as JSON data."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType

from mezzo.common.sizes import format_size
from mezzo.numerics.statistics.speeds import Spread
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count, spell_load, spell_share
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.documents import Document, document, encode, number
from mezzo.report.records.sections import describe_versions
from mezzo.report.text.measured.timings import spell_difference, spell_machine, spell_speed

if TYPE_CHECKING:
    from mezzo.numerics.token_times import TokenTimes, TokenTimings


def report_tokens(layout: Layout, timings: "TokenTimings") -> list[RenderableType]:
    """Tokens per second, side by side."""
    threads = "as many as the runtime likes" if timings.threads is None else str(timings.threads)
    turns = max((len(folder.decode_ns) for folder in timings.folders), default=0)
    lines = (
        f"on {spell_machine(timings.machine)}; {spell_count(timings.cores, 'core')}, threads:"
        f" {threads}{spell_load(timings.load)}",
        f"a prompt of {timings.prompt_tokens} random tokens, {timings.new_tokens} new ones;"
        f" {spell_count(turns, 'turn')} each, in alternation",
    )
    return [
        heading(f"{timings.runtime}: tokens per second"),
        *(indented(line) for line in lines),
        blank(),
        _table(layout, timings.folders),
        *(
            indented(f"{clean(folder.name)}: {clean(folder.fault)}", style="red")
            for folder in timings.folders
            if folder.fault is not None
        ),
    ]


def _table(layout: Layout, folders: "Sequence[TokenTimes]") -> RenderableType:
    right = ("size", "prefill", "decode", "spread", "speed", "95 % interval")
    is_mixed = len({folder.runtime for folder in folders}) > 1
    table = make_table(
        layout, "folder", *(["runtime"] if is_mixed else []), *right, "", right=right
    )
    for folder in folders:
        runtime = [folder.runtime.partition(" ")[0]] if is_mixed else []
        spread = "-" if folder.decode is None else spell_share(folder.decode.share)
        table.add_row(
            layout.spell_name(folder.name), *runtime, format_size(folder.size_bytes),
            _per_second(folder.prefill), _per_second(folder.decode), spread,
            *spell_speed(folder.speed),
            spell_difference(
                folder.difference,
                has_times=folder.decode is not None,
                is_reference=folder.is_reference,
            ),
        )  # fmt: skip
    return table


def _per_second(spread: Spread | None) -> str:
    return "-" if spread is None else f"{1e9 / spread.median_ns:.1f}"


def describe_tokens(timings: "TokenTimings") -> Document:
    """Tokens per second as JSON data."""
    return document(
        "tokens",
        {
            "versions": describe_versions(timings.machine),
            "runtime": timings.runtime,
            "cores": timings.cores,
            "threads": timings.threads,
            "prompt_tokens": timings.prompt_tokens,
            "new_tokens": timings.new_tokens,
            "load": None if timings.load is None else timings.load._asdict(),
            "folders": [_describe(folder) for folder in timings.folders],
        },
    )


def _describe(folder: "TokenTimes") -> Document:
    return {
        "name": folder.name,
        "runtime": folder.runtime,
        "size_bytes": folder.size_bytes,
        "is_reference": folder.is_reference,
        "fault": folder.fault,
        "prefill_tokens_per_s": _rate(folder.prefill),
        "decode_tokens_per_s": _rate(folder.decode),
        "prefill_ns": encode(folder.prefill_ns),
        "decode_ns": encode(folder.decode_ns),
        "speed": encode(folder.speed),
        "difference": encode(folder.difference),
    }


def _rate(spread: Spread | None) -> float | str | None:
    return None if spread is None else number(1e9 / spread.median_ns)
