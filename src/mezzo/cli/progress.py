"""Progress display on stderr for long work in a terminal: stage, bar, rate, remaining time."""

import os
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mezzo.report.layout.names import clean, shorten

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_S = 1.0
_LONGEST_STAGE = 24
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
            from mezzo.cli.progress_bar import make_bar

            self._bar = make_bar(self._started_s)
            self._task = self._add(self._bar)
            self._bar.start()

    def _add(self, bar: "Progress") -> "TaskID":
        stage, done, total = self._state
        return bar.add_task(_spell_stage(stage), completed=done, total=total or None, stage=stage)


def _spell_stage(stage: str) -> str:
    return shorten(clean(stage), _LONGEST_STAGE)
