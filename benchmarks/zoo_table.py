"""Lines of the zoo's benchmark: the table of docs/figures/trained-networks.md, and a file that grows. No script."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

Column = tuple[str, str]  # a format and a way of conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One line. `state`: right, wrong, refused (an error), invalid (does not load, or the checker refuses it), crashed,
    too long.
    """

    network: str
    to: str
    way: str
    state: str
    low: float | None = None
    agreement: float | None = None
    error: float | None = None
    size: float | None = None  # of the FP32 file
    seconds: float | None = None
    speed: float | None = None  # as a multiple of FP32's on the same runtime
    note: str = ""

    @property
    def cell(self) -> tuple[str, str, str]:
        """The network, the format and the way, which no other line has."""
        return self.network, self.to, self.way


def read(paths: Sequence[Path]) -> list[Outcome]:
    """The lines of several files; of a cell that several have, the last file's."""
    lines = [Outcome(**line) for path in paths for line in json.loads(path.read_text())["outcomes"]]
    return list({line.cell: line for line in lines}.values())


def write(path: Path, environment: Mapping[str, Any], outcomes: Sequence[Outcome]) -> None:
    document = {"environment": environment, "outcomes": [asdict(line) for line in outcomes]}
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def print_lines(console: Console, outcomes: Sequence[Outcome]) -> None:
    """Every figure of every line."""
    table = Table("network", "to", "way", "", "low", "agree", "error", "size", "seconds", "speed", "note", box=None)
    for line in outcomes:
        values = (line.low, line.agreement, line.error, line.size, line.seconds, line.speed)
        pairs = zip(values, (".2f", ".3f", ".2g", ".2f", ".1f", ".2f"), strict=True)
        numbers = ["" if value is None else format(value, form) for value, form in pairs]
        table.add_row(line.network, line.to, line.way, line.state, *numbers, line.note[:60])
    console.print(table)


def print_table(outcomes: Sequence[Outcome], titles: Mapping[Column, str], networks: Sequence[str]) -> None:
    """A row per network in Markdown: the share that runs low, the error, and what is not right."""
    lines = {line.cell: line for line in outcomes}
    print(f"| network | {' | '.join(titles.values())} |\n|{'---|' * (len(titles) + 1)}")
    for network in networks:
        row = [lines.get((network, *column)) for column in titles]
        if any(row):
            print(f"| {network} | {' | '.join(map(_spell, row))} |")


def print_reasons(outcomes: Sequence[Outcome]) -> None:
    """Why a cell has no figures."""
    for line in outcomes:
        if line.error is None:
            print(f"{line.network}, {line.way} to {line.to}: {line.state}{': ' * bool(line.note)}{line.note}")


def print_shares(outcomes: Sequence[Outcome]) -> None:
    """How much of the share that data lets run in FP16 runs so without data, per network and on the average."""
    low = {(line.network, line.way): line.low for line in outcomes if line.to == "fp16" and line.state == "right"}
    ratios = {}
    for network, way in low:
        without, allowed = low[network, way], low.get((network, "mezzo-data"))
        if way == "mezzo" and without is not None and allowed:
            ratios[network] = without / allowed
    if ratios:
        spelled = ", ".join(f"{network} {ratio:.2f}" for network, ratio in ratios.items())
        mean = sum(ratios.values()) / len(ratios)
        print(f"FP16 without data, of the low share with data: {mean:.3f} on the average; {spelled}")


def _spell(line: Outcome | None) -> str:
    """A cell: "0.97 0.0004"; mezzo's verdict where it was another one than "right"."""
    if line is None:
        return ""
    if line.error is None:
        return line.state
    low = "none" if line.low is None else f"{line.low:.2f}"
    verdict = {"same": "called right", "different": "called wrong"}.get(line.note, line.note)
    is_told = verdict and (line.state, line.note) != ("right", "same")
    state = f" **{line.state}**" if line.state in ("wrong", "invalid") else ""
    return f"{low} {line.error:.1g}{state}{f' ({verdict})' * bool(is_told)}"
