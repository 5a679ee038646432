"""Report of a benchmark, as text and as JSON data: settings, times, and significant differences."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.machine import Machine
from mezzo.common.sizes import format_size
from mezzo.numerics.measures import Comparison, Interval
from mezzo.numerics.statistics.speeds import Difference, Spread
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count, spell_error, spell_load, spell_share
from mezzo.report.layout.parts import blank, heading, indented, make_table
from mezzo.report.records.documents import Document, document, encode, number, read_schema
from mezzo.report.records.sections import describe_versions
from mezzo.report.text.measured.layers import describe_layers, report_layers

if TYPE_CHECKING:
    from mezzo.io.runtime_profiles import RuntimeProfile
    from mezzo.numerics.timings import FileTimes, Timings

_STYLES = {Difference.FASTER: "green", Difference.SLOWER: "red", Difference.UNKNOWN: "yellow"}
_BUSY = 0.5  # load per core before the benchmark
_MANY = 100  # speeds from here on are printed without decimals


def bench_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the document of `bench`."""
    return read_schema("bench")


def report_timings(layout: Layout, timings: "Timings", top: int) -> list[RenderableType]:
    """Times side by side, and the layers of profiled files."""
    parts: list[RenderableType] = [
        *_report_setting(timings),
        blank(),
        _report_table(layout, timings.files),
    ]
    parts += [
        indented(f"{clean(file.name)}: {file.fault}", style="red")
        for file in timings.files
        if file.fault is not None
    ]
    parts += [
        indented(line, style="red")
        for file in timings.files
        if (line := _tell_wrong(file, timings))
    ]
    if timings.files[0].times is None and len(timings.files) > 1:
        parts.append(
            indented("the reference does not run, so nothing is compared with it", style="yellow")
        )
    profiled = [(file.name, file.layers) for file in timings.files if file.layers]
    return [*parts, *(report_layers(layout, profiled, top) if profiled else [])]


def report_profiles(
    layout: Layout, profiles: "Sequence[RuntimeProfile]", top: int
) -> list[RenderableType]:
    """Imported profiles of runtimes."""
    parts: list[RenderableType] = []
    for profile in profiles:
        total_ms = sum(layer.time_ns for layer in profile.layers) / 1e6
        summary = (
            f"{profile.tool}, {spell_count(profile.runs, 'run')}, {total_ms:.3f} ms in kernels"
            " per run"
        )
        parts.append(heading(f"{clean(profile.name)}: {summary}"))
    return [
        *parts,
        *report_layers(layout, [(profile.name, profile.layers) for profile in profiles], top),
    ]


def spell_file(file: "FileTimes") -> str:
    """A file's time and speed against the reference: "4.300 ms, 2.79x (2.71 .. 2.85) faster"."""
    if file.times is None:
        return "does not run"
    median = _spell_ms(file.times.median_ns)
    if file.speed is None or file.difference is None:
        return f"{median}, the reference" if file.is_reference else median
    speed, ends = spell_speed(file.speed)
    return f"{median}, {speed} ({ends}) {file.difference.value}"


def describe_timings(timings: "Timings") -> Document:
    """Times as JSON data."""
    return document(
        "bench",
        {
            "versions": describe_versions(timings.machine),
            "target": timings.target,
            "runtime": timings.runtime,
            "cores": timings.cores,
            "threads": timings.threads,
            "types": "file" if timings.keeps_types else "runtime",
            "data": encode(timings.data),
            "batch": timings.batch,
            "pause_s": timings.pause_s,
            "load": None if timings.load is None else timings.load._asdict(),
            "files": [_describe_file(file) for file in timings.files],
            "notes": list(timings.notes),
        },
    )


def describe_profiles(profiles: "Sequence[RuntimeProfile]") -> Document:
    """Profiles in the same document as times, with null for what was not measured."""
    unknown = ("target", "runtime", "cores", "threads", "types", "data", "batch", "pause_s", "load")
    rows = [
        {
            **_untimed(profile.name),
            "runs": profile.runs,
            "tool": profile.tool,
            **describe_layers(profile.layers),
        }
        for profile in profiles
    ]
    return document(
        "bench",
        {"versions": describe_versions(None), **dict.fromkeys(unknown), "files": rows, "notes": []},
    )


def _report_setting(timings: "Timings") -> list[RenderableType]:
    """The settings of a benchmark: machine, load, inputs and repetitions."""
    types = "types of the files" if timings.keeps_types else "types of the runtime's choice"
    threads = "as many as the runtime likes" if timings.threads is None else str(timings.threads)
    lines = [
        (
            f"on {spell_machine(timings.machine)}; {spell_count(timings.cores, 'core')}, threads:"
            f" {threads}{spell_load(timings.load)}"
        ),
        f"fed {clean(timings.data.name)}: {_spell_inputs(timings.files)}",
        _spell_care(timings),
        *timings.notes,
    ]
    parts: list[RenderableType] = [
        heading(f"{timings.target}: {timings.runtime}, {types}"),
        *(indented(line) for line in lines)
    ]  # fmt: skip
    if timings.load is not None and timings.load.before > _BUSY * timings.cores:
        busy = (
            f"others were at work here: load {timings.load.before:.1f} on"
            f" {spell_count(timings.cores, 'core')}; on a quiet machine times are shorter and"
            " differences clearer"
        )
        parts.append(indented(busy, style="yellow"))
    return parts


def spell_machine(machine: Machine) -> str:
    """A processor's architecture, with its instruction sets for low types."""
    if machine.features is None:
        return f"{machine.architecture}, whose instruction sets the system does not tell"
    return (
        f"{machine.architecture} with"
        f" {', '.join(machine.features) or 'no instruction set for low types'}"
    )


def _spell_inputs(rows: "Sequence[FileTimes]") -> str:
    """The first file's inputs; the others' are the same, or a note says so."""
    return (
        ", ".join(f"{clean(name)} {kind}" for name, kind in rows[0].inputs.items())
        or "it has no inputs"
    )


def _spell_care(timings: "Timings") -> str:
    file = next((candidate for candidate in timings.files if candidate.fault is None), None)
    if file is None:
        return "nothing ran"
    turns = sum(map(len, file.turns_ns))
    return (
        f"{spell_count(turns, 'turn')} each, loaded {spell_count(len(file.turns_ns), 'time')};"
        f" before each turn a rest of {timings.pause_s * 1e3:.0f} ms and a call that is not timed"
    )


def _tell_wrong(file: "FileTimes", timings: "Timings") -> str | None:
    """A sentence if a file's outputs differ from the reference's on the runtime; else None."""
    if file.answers is None or not file.answers.is_wrong:
        return None
    reason = clean(file.answers.verdict.because)
    return (
        f"{clean(file.name)}: other answers than {clean(timings.files[0].name)} on"
        f" {timings.runtime}: {reason}"
    )


def _spell_answers(file: "FileTimes") -> str:
    return "-" if file.answers is None else spell_error(file.answers.verdict.error.estimate)


def _report_table(layout: Layout, rows: "Sequence[FileTimes]") -> RenderableType:
    right = ("size", "error", "median", "least", "spread", "speed", "95 % interval")
    table = make_table(layout, "file", *right, "", right=right)
    for row in rows:
        table.add_row(
            layout.spell_name(row.name), format_size(row.size_bytes), _spell_answers(row),
            *_spell_times(row.times), *spell_speed(row.speed),
            spell_difference(
                row.difference, has_times=row.times is not None, is_reference=row.is_reference
            ),
        )  # fmt: skip
    return table


def _spell_times(times: Spread | None) -> tuple[str, str, str]:
    if times is None:
        return "-", "-", "-"
    return _spell_ms(times.median_ns), _spell_ms(times.least_ns), spell_share(times.share)


def _spell_ms(time_ns: float) -> str:
    """A time with four digits: 0.1234 ms, 1.234 ms, 12.34 ms."""
    time_ms = time_ns / 1e6
    digits = len(str(int(time_ms))) if time_ms >= 1 else 0
    return f"{time_ms:.{max(0, 4 - digits)}f} ms"


def spell_speed(interval: Interval | None) -> tuple[str, str]:
    """A speedup, and the ends of its interval."""
    if interval is None:
        return "-", "-"
    ends = [_spell_end(end) for end in (interval.low, interval.high)]
    return f"{_spell_end(interval.estimate)}x", " .. ".join(ends)


def _spell_end(end: float) -> str:
    if not math.isfinite(end):
        return "any"
    return f"{end:.2f}" if end < _MANY else f"{end:.0f}"


def spell_difference(difference: Difference | None, *, has_times: bool, is_reference: bool) -> Text:
    """Whether a row is faster or slower than the reference, in a word."""
    if not has_times:
        return Text("does not run", style="red")
    if is_reference:
        return Text("reference")
    return Text("") if difference is None else Text(difference.value, style=_STYLES[difference])


def _untimed(name: str) -> Document:
    """The row of a file without times."""
    absent = (
        "size_bytes", "is_reference", "fault", "calls", "times", "speed", "difference", "answers",
        "runs", "tool",
    )  # fmt: skip
    return {"name": name, **dict.fromkeys(absent), "turns_ns": [], "inputs": {}}


def _describe_file(file: "FileTimes") -> Document:
    row = {
        **_untimed(file.name),
        "size_bytes": file.size_bytes,
        "is_reference": file.is_reference,
        "fault": file.fault,
        "calls": file.calls or None,
        "times": encode(file.times),
        "speed": encode(file.speed),
        "difference": encode(file.difference),
        "answers": None if file.answers is None else _describe_answers(file.answers),
        "turns_ns": encode(file.turns_ns),
        "inputs": dict(file.inputs),
    }
    return {**row, **describe_layers(file.layers)}


def _describe_answers(answers: "Comparison") -> Document:
    verdict = answers.verdict
    return {
        "is_wrong": answers.is_wrong, "error": number(verdict.error.estimate),
        "budget": number(verdict.budget), "because": verdict.because,
    }  # fmt: skip
