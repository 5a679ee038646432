"""The bar of a progress display, and its figures. Imports rich, which takes a command's time."""

import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from mezzo.common.sizes import format_size

_BAR_WIDTH = 16
# Stages that count bytes; all others count items.
_IN_BYTES = frozenset({"writing", "reading", "hashing"})


def make_bar(started_s: float) -> Progress:
    """A bar on stderr, which vanishes when it stops. `started_s`: on the monotonic clock."""
    columns = (
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(_BAR_WIDTH),
        _Figures(started_s),
    )  # fmt: skip
    return Progress(*columns, console=Console(stderr=True), transient=True)


class _Figures(ProgressColumn):
    """Column with count, total, rate, elapsed and remaining time."""

    def __init__(self, started_s: float) -> None:
        super().__init__()
        self._started_s = started_s

    def render(self, task: Task) -> Text:
        return Text(
            spell_progress(task, time.monotonic() - self._started_s), style="dim", no_wrap=True
        )


def spell_progress(task: Task, elapsed_s: float) -> str:
    """The figures of a bar, without unknown ones: "12 of 60, 3.1/s, 0:04, 0:16 left"."""
    is_bytes = task.fields.get("stage") in _IN_BYTES
    parts = []
    done, total = int(task.completed), None if task.total is None else int(task.total)
    if done or total:
        count = format_size(done) if is_bytes else str(done)
        parts.append(
            count if total is None else f"{count} of {format_size(total) if is_bytes else total}"
        )
    if task.speed:
        parts.append(f"{format_size(round(task.speed))}/s" if is_bytes else _spell_rate(task.speed))
    parts.append(_spell_clock(elapsed_s))
    if task.time_remaining is not None and total is not None and done < total:
        parts.append(f"{_spell_clock(task.time_remaining)} left")
    return ", ".join(parts)


def _spell_rate(speed: float) -> str:
    return f"{speed:.3g}/s" if speed >= 1 else f"{1 / speed:.2g} s each"


def _spell_clock(time_s: float) -> str:
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
