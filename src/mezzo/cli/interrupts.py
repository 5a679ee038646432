"""Ctrl-C, SIGTERM and SIGHUP: a command unwinds once, removes what it was writing undisturbed, and ends."""

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# What each signal does in a process that nobody told otherwise; Windows has no SIGHUP.
_UNHANDLED = {
    number: signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None
}
# A second Ctrl-C within this time is one too many, and not a wish to end the cleaning up.
_QUIET_S = 2.0
_AGAIN_S = 0.01


class Interrupts:
    """Turns signals that end a process into one KeyboardInterrupt while open. A signal that the process ignores or
    handles is left alone, and all are in threads, which cannot set handlers. `ends_process`: nothing follows, so they
    are ignored from the end on. `number` is the signal that was raised last.
    """

    number: int = signal.SIGINT

    def __init__(self, *, ends_process: bool) -> None:
        self.was_raised = False
        self._ends_process = ends_process
        self._raised_at_s = -_QUIET_S
        self._before: dict[int, Any] = {}
        self._hook: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number, unhandled in _UNHANDLED.items():
                if signal.getsignal(number) is unhandled:
                    self._before[number] = signal.signal(number, self._raise)
        if self._before:
            self._hook, sys.unraisablehook = sys.unraisablehook, self._raise_again
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._ends_process else before)
        if self._before and not self._ends_process:
            sys.unraisablehook = self._hook

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if time.monotonic() - self._raised_at_s < _QUIET_S:
            return
        self.was_raised, self.number, self._raised_at_s = True, number, time.monotonic()
        raise KeyboardInterrupt

    def _raise_again(self, unraisable: "UnraisableHookArgs") -> None:
        """A KeyboardInterrupt in a finalizer reaches nobody: let the next instruction get it."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._raised_at_s = -_QUIET_S
        threading.Timer(_AGAIN_S, signal.raise_signal, [self.number]).start()
