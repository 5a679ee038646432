"""A progress bar that only long work shows, and only people see."""

import sys
import threading
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

_PATIENCE_S = 2.0


class Patience:
    """Shows the stage and a bar on stderr once the work lasts longer than two seconds. Call it to report progress."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._lock = threading.Lock()
        self._timer = threading.Timer(patience_s, self._show)
        self._timer.daemon = True
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._state = ("reading", 0, 0)
        self._is_over = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        with self._lock:
            self._state = (stage, done, total)
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, description=stage, completed=done, total=total or None)

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            bar, self._bar, self._task = self._bar, None, None
            self._is_over = True  # a timer that fired just now shows nothing any more
        if bar is not None:
            bar.stop()

    def _show(self) -> None:
        with self._lock:
            if self._is_over:
                return
            columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            stage, done, total = self._state
            self._task = self._bar.add_task(stage, completed=done, total=total or None)
            self._bar.start()
