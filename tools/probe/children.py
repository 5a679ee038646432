"""Child process of a probe: a crash or hang of the runtime costs only one answer."""

import multiprocessing
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Self

from probe.attempts import Attempt, Feeds

_PATIENCE_S = 60.0
_LONGEST_REASON = 300
# Source locations in error messages of OpenVINO and ONNX Runtime.
_PLACE = re.compile(r"Exception from \S+:\d+: |Check '.*?' failed at \S+: |/onnxruntime_src/\S+:\d+ ")


class Child:
    """A process that runs attempts, restarted after each crash. Use it as a context manager.

    `attempt` must be a module-level function, so that it can be pickled.
    """

    def __init__(self, attempt: Attempt, patience_s: float = _PATIENCE_S) -> None:
        self._attempt = attempt
        self._patience_s = patience_s
        # A fresh interpreter: a fork would share the locks of the threads that libraries start.
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, model: bytes, feeds: Feeds | None) -> str | None:
        """The runtime's error message for a model; None if it runs."""
        if self._process is None:
            self._start()
        assert self._pipe is not None, "a started child has a pipe"
        try:
            self._pipe.send((model, feeds))
            if not self._pipe.poll(self._patience_s):
                self._stop()
                return f"no answer within {self._patience_s:.0f} s"
            reason: str | None = self._pipe.recv()
        except (EOFError, OSError):
            code = self._stop()
            return f"the process crashed (exit code {code})"
        return reason

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _start(self) -> None:
        self._pipe, child_end = self._context.Pipe()
        self._process = self._context.Process(target=_answer, args=(self._attempt, child_end), daemon=True)
        with _untouchable():
            self._process.start()
        child_end.close()

    def _stop(self) -> int | None:
        """End the process if it still runs, and return its exit code."""
        if self._process is None or self._pipe is None:
            return None
        self._pipe.close()
        self._process.join(1.0)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode
        self._process = self._pipe = None
        return code


@contextmanager
def _untouchable() -> Iterator[None]:
    """Block SIGINT for processes started inside: the parent gets Ctrl-C, and ends them."""
    block = getattr(signal, "pthread_sigmask", None)
    before = None if block is None else block(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if block is not None:
            block(signal.SIG_SETMASK, before)


def _answer(attempt: Attempt, pipe: Connection) -> None:
    """Main loop of the child, until the pipe closes. The runtime's output is discarded."""
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(silence, stream.fileno())
    while True:
        try:
            model, feeds = pipe.recv()
        except (EOFError, KeyboardInterrupt):
            return
        pipe.send(_explain(attempt, model, feeds))


def _explain(attempt: Attempt, model: bytes, feeds: Feeds | None) -> str | None:
    """The error message of an attempt; None if it succeeds."""
    try:
        attempt(model, feeds)
    except Exception as error:  # noqa: BLE001  any exception of the runtime is the answer
        return _essence(str(error)) or type(error).__name__
    return None


def _essence(text: str) -> str:
    """A runtime's message without source locations, from its last detail on."""
    words = _PLACE.sub("", " ".join(text.split()))
    for mark in ("Details: ", "with a message: ", "_message: "):
        words = words.rpartition(mark)[2]
    return words[:_LONGEST_REASON].strip()
