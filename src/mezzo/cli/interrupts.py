"""Ctrl-C: a command unwinds once, removes what it was writing undisturbed, and ends."""

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# A second Ctrl-C within this time is one too many, and not a wish to end the cleaning up.
_QUIET_S = 2.0
_AGAIN_S = 0.01


class Interrupts:
    """Turns Ctrl-C into one KeyboardInterrupt while open. Of a process that ignores Ctrl-C nothing changes, nor in
    threads, which cannot set handlers. `ends_process`: nothing follows, so Ctrl-C is ignored from the end on.
    """

    def __init__(self, *, ends_process: bool) -> None:
        self.was_raised = False
        self._ends_process = ends_process
        self._raised_at_s = -_QUIET_S
        self._before: Any = None
        self._hook: Any = None

    def __enter__(self) -> Self:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._raise)
            self._hook, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        signal.signal(signal.SIGINT, signal.SIG_IGN if self._ends_process else self._before)
        if not self._ends_process:
            sys.unraisablehook = self._hook

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._raised_at_s < _QUIET_S:
            return
        self.was_raised, self._raised_at_s = True, time.monotonic()
        raise KeyboardInterrupt

    def _raise_again(self, unraisable: "UnraisableHookArgs") -> None:
        """A KeyboardInterrupt in a finalizer reaches nobody: let the next instruction get it."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._raised_at_s = -_QUIET_S
        threading.Timer(_AGAIN_S, signal.raise_signal, [signal.SIGINT]).start()
