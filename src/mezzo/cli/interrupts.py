"""Signal handling: Ctrl-C, SIGTERM and SIGHUP unwind a command once, with undisturbed clean-up."""

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Default handlers of the signals; Windows has no SIGHUP.
_UNHANDLED = {
    number: signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None
}
# A second Ctrl-C within this time is ignored, so that it does not interrupt the clean-up.
_QUIET_S = 2.0
_AGAIN_S = 0.01


class Interrupts:
    """Context that turns terminating signals into one KeyboardInterrupt.

    Signals that the process ignores or handles are left alone, and so are all in threads, which
    cannot set handlers. `ends_process`: the process ends afterwards, so signals are ignored from
    then on. `number` is the last signal.
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
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
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
        """Raise a KeyboardInterrupt again that a finalizer swallowed, at the next instruction."""
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            self._hook(unraisable)
            return
        self._raised_at_s = -_QUIET_S
        threading.Timer(_AGAIN_S, signal.raise_signal, [self.number]).start()
