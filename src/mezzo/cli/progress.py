"""Progress display on stderr for long work in a terminal: stage, bar, rate, remaining time."""

import os
import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
)
from rich.text import Text

from mezzo.common.sizes import format_size
from mezzo.report.layout.names import clean, shorten

_PATIENCE_S = 1.0
_LONGEST_STAGE = 24
_BAR_WIDTH = 16
# Stages that count bytes; all others count items.
_IN_BYTES = frozenset({"writing", "reading", "hashing"})
_DUMB = frozenset({"dumb", "unknown"})


class Patience:
    """Progress callback that shows a bar on stderr after a second.

    A total of 0 is unknown: then there is no remaining time. `patience_s` counts from construction;
    by default it is the rest of a second since the process started.
    """

    def __init__(self, patience_s: float | None = None) -> None:
        self._lock = threading.Lock()
        # Processor time approximates the time since the process started: startup never waits.
        left_s = max(0.0, _PATIENCE_S - time.process_time()) if patience_s is None else patience_s
        self._timer = threading.Timer(left_s, self._show)
        self._timer.daemon = True
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._state = ("reading", 0, 0)
        self._is_over = False
        self._started_s = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            is_same = (stage, total > 0) == (self._state[0], self._state[2] > 0)
            self._state = (stage, done, total)
            if self._bar is None or self._task is None:
                return
            if is_same:
                self._bar.update(self._task, completed=done, total=total or None)
            else:  # a new task, as a stage has its own rate and a bar keeps its total
                self._bar.remove_task(self._task)
                self._task = self._add(self._bar)

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and os.environ.get("TERM", "") not in _DUMB:
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        with self._lock:
            bar, self._bar, self._task = self._bar, None, None
            self._is_over = True  # for a timer that fires at this moment
        if bar is not None:
            bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._is_over:
                return
            columns = (
                SpinnerColumn(), TextColumn("{task.description}", markup=False),
                BarColumn(_BAR_WIDTH), _Figures(self._started_s),
            )  # fmt: skip
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._add(self._bar)
            self._bar.start()

    def _add(self, bar: Progress) -> TaskID:
        stage, done, total = self._state
        return bar.add_task(_spell_stage(stage), completed=done, total=total or None, stage=stage)


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


def _spell_stage(stage: str) -> str:
    return shorten(clean(stage), _LONGEST_STAGE)
