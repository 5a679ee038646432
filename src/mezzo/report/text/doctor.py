"""Report of an installation: packages, possible checks, speed on this CPU, and remedies."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.report.layout.layout import Layout
from mezzo.report.layout.names import clean
from mezzo.report.layout.numbers import spell_count
from mezzo.report.layout.parts import blank, heading, indented, make_table, section
from mezzo.report.records.documents import Document, document

if TYPE_CHECKING:
    from mezzo.common.diagnosis import Check, Diagnosis, FoundPackage
    from mezzo.planner.choices.gains import FormatHere

_STYLES = {"works": "green", "missing": "yellow", "broken": "red", "unsupported": "red"}


def report_diagnosis(
    layout: Layout, version: str, diagnosis: "Diagnosis", formats: "Sequence[FormatHere]"
) -> list[RenderableType]:
    """A diagnosis, and what each format gains here. `version` is mezzo's."""
    parts: list[RenderableType] = [
        heading(f"mezzo {version}, {diagnosis.python}"),
        indented(clean(diagnosis.executable)),
        *map(indented, _spell_machine(diagnosis)),
        *section("dependencies", _tabulate_packages(layout, diagnosis.base)),
        *section("optional dependencies", _tabulate_packages(layout, diagnosis.optional)),
        *section("what can be checked here", _tabulate_checks(layout, diagnosis.checks)),
        *section("which format on this machine", _tabulate_formats(layout, formats)),
        blank(),
        indented("'mezzo convert MODEL OUT' measures what gains, and takes the fastest"),
        blank(),
    ]
    if diagnosis.is_sound:
        return [*parts, Text("the installation works", style="bold green")]
    parts.append(Text("the installation is broken", style="bold red"))
    for fault, remedy in diagnosis.faults:
        parts += [indented(clean(fault)), indented(f"  {clean(remedy)}", style="cyan")]
    return parts


def describe_diagnosis(
    version: str, diagnosis: "Diagnosis", formats: "Sequence[FormatHere]"
) -> Document:
    """A diagnosis as JSON data, with what each format gains here."""
    memory = diagnosis.memory_bytes
    return document(
        "doctor",
        {
            "is_sound": diagnosis.is_sound,
            "faults": [{"fault": fault, "remedy": remedy} for fault, remedy in diagnosis.faults],
            "versions": {
                "mezzo": version,
                "python": diagnosis.python,
                "executable": diagnosis.executable,
            },
            "machine": {
                "system": diagnosis.system,
                "architecture": diagnosis.machine.architecture,
                "features": (
                    None if diagnosis.machine.features is None else list(diagnosis.machine.features)
                ),
                "cores": diagnosis.cores,
                "memory_bytes": None if memory is None else memory[0],
                "free_memory_bytes": None if memory is None else memory[1],
                "gpus": list(diagnosis.gpus),
            },
            "base": [_describe_found(package) for package in diagnosis.base],
            "optional": [_describe_found(package) for package in diagnosis.optional],
            "checks": [
                {
                    "name": check.name,
                    "can": check.can,
                    "for": check.purpose,
                    "reason": check.reason,
                    "remedy": check.remedy,
                }
                for check in diagnosis.checks
            ],
            "formats": [row._asdict() for row in formats],
        },
    )


def _spell_machine(diagnosis: "Diagnosis") -> list[str]:
    machine = diagnosis.machine
    memory = "memory unknown"
    if diagnosis.memory_bytes is not None:
        total, free = map(format_size, diagnosis.memory_bytes)
        memory = f"{total} of memory, {free} free"
    features = "unknown: the system does not tell"
    if machine.features is not None:
        features = " ".join(machine.features) or "none that matter here"
    return [
        clean(diagnosis.system),
        f"{machine.architecture}, {spell_count(diagnosis.cores, 'core')}, {memory}",
        f"CPU features: {features}",
        *(f"GPU: {clean(gpu)}" for gpu in diagnosis.gpus),
    ]


def _tabulate_packages(layout: Layout, packages: "Sequence[FoundPackage]") -> RenderableType:
    table = make_table(
        layout, "package", "version", "state", "", fixed=("package", "version", "state")
    )
    for package in packages:
        state = package.state.value
        version = package.version or "-"
        words = [word for word in (package.reason, package.remedy) if word is not None]
        if package.version is None:  # the state column has the reason
            words = [package.purpose, *words[1:]]
        text = ": ".join(words) or ", ".join(package.details) or package.purpose
        table.add_row(
            Text(package.name, style="cyan"),
            clean(version),
            Text(state, style=_STYLES[state]),
            clean(text),
        )
    return table


def _tabulate_checks(layout: Layout, checks: "Sequence[Check]") -> RenderableType:
    table = make_table(layout, "", "what", "for, or how to come by it", fixed=("",))
    for check in checks:
        mark = Text("yes", style="green") if check.can else Text("no", style="yellow")
        text = check.purpose if check.can else ": ".join(filter(None, (check.reason, check.remedy)))
        table.add_row(mark, check.name, clean(text))
    return table


def _tabulate_formats(layout: Layout, formats: "Sequence[FormatHere]") -> RenderableType:
    fixed = ("target", "format", "speed")
    table = make_table(layout, "target", "format", "speed", "why, or what to do", fixed=fixed)
    for row in formats:
        name, outcome = Text(clean(row.target), style="cyan"), Text(row.outcome)
        outcome.stylize("green" if row.outcome == "gains" else "")
        table.add_row(name, row.to, outcome, clean(row.why))
    return table


def _describe_found(package: "FoundPackage") -> Document:
    return {
        "name": package.name,
        "version": package.version,
        "state": package.state.value,
        "wanted": package.wanted,
        "details": list(package.details),
        "reason": package.reason,
        "remedy": package.remedy,
    }
