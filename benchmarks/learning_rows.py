"""Rows of whole trainings: a file that `learning_curves.py` reads, and the table of where they end."""

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from learning_curves import COLUMNS, TEST, judge_trainings, spell_ends
from rich.console import Console
from rich.table import Table

from mezzo.common.safe_paths import write_file


class RecordError(Exception):
    """A file of rows that cannot be gone on with, in a line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One training. `losses` are those of every step, `held_out` the loss on data that was not trained on."""

    network: str
    way: str
    seed: int
    held_out: float
    accuracy: float | None
    time_s: float
    losses: list[float] = field(repr=False)


class Record:
    """The rows that there are, kept in a file where one is named: what stands in it is not trained again."""

    def __init__(self, path: Path | None, environment: Mapping[str, Any]) -> None:
        """Take up a file that is there. Raises RecordError: it is none of ours, or of another machine or version."""
        self.rows: list[Row] = []
        self._path, self._environment = path, environment
        if path is None or not path.exists():
            return
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            self.rows = [Row(**row) for row in document["rows"]]
            differing = [key for key, value in environment.items() if document["environment"].get(key) != value]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RecordError(f"{path} is no record of trainings ({error!r}); name another file") from error
        if differing:
            raise RecordError(f"{path} was written with other {', '.join(differing)}; name another file")

    def has(self, network: str, way: str, seed: int, steps: int) -> bool:
        """Whether a training is there. Raises RecordError: its network was trained for other steps than these."""
        others = {len(row.losses) for row in self.rows if row.network == network} - {steps}
        if others:
            raise RecordError(f"{self._path} has {network} with {min(others)} steps, not {steps}; name another file")
        return any((row.network, row.way, row.seed) == (network, way, seed) for row in self.rows)

    def add(self, row: Row) -> None:
        """Keep a row; the file is whole at any time."""
        self.rows.append(row)
        if self._path is not None:
            document = {"environment": self._environment, "rows": [asdict(one) for one in self.rows]}
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_file(self._path, f"{json.dumps(document, indent=1)}\n".encode(), "--json")


def show(console: Console, rows: Sequence[Row]) -> None:
    """A line for each way on each network, judged as `learning_curves.py` does."""
    table = Table("network", "way", box=None)
    for column in (*COLUMNS, "accuracy"):
        table.add_column(column, justify="right")
    table.add_column("")
    for cells in _cells(rows):
        table.add_row(*cells)
    console.print(table)
    console.print(f"judged {TEST}", highlight=False)


def _cells(rows: Sequence[Row]) -> Iterator[Sequence[str]]:
    for ends in judge_trainings(asdict(row) for row in rows):
        shares = [
            row.accuracy
            for row in rows
            if (row.network, row.way) == (ends.network, ends.way) and row.accuracy is not None
        ]
        accuracy = f"{statistics.fmean(shares):.2%}" if shares else "-"
        yield ends.network, ends.way, *spell_ends(ends), accuracy, ends.judged.ending.value
