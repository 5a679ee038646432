"""Asks a runtime in a child process: what crashes or hangs there costs one answer, not the probe."""

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
# Where in the runtime's sources an exception was raised, as OpenVINO and ONNX Runtime spell it.
_PLACE = re.compile(r"Exception from \S+:\d+: |Check '.*?' failed at \S+: |/onnxruntime_src/\S+:\d+ ")


class Child:
    """A process that makes attempts, started anew after each crash. Use it as a context.

    `attempt` is a function of a module, so that another process finds it.
    """

    def __init__(self, attempt: Attempt, patience_s: float = _PATIENCE_S) -> None:
        self._attempt = attempt
        self._patience_s = patience_s
        # A fresh interpreter: a fork would share the locks of the threads that libraries start.
        self._context = multiprocessing.get_context("spawn")
        self._process: multiprocessing.process.BaseProcess | None = None
        self._pipe: Connection | None = None

    def ask(self, model: bytes, feeds: Feeds | None) -> str | None:
        """Why the runtime cannot run a model, in its own words; None where it can."""
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
        self._pipe, theirs = self._context.Pipe()
        self._process = self._context.Process(target=_answer, args=(self._attempt, theirs), daemon=True)
        with _untouchable():
            self._process.start()
        theirs.close()

    def _stop(self) -> int | None:
        """End the process, if it has not ended by itself, and give its exit code."""
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
    """Let a process that is started here never see Ctrl-C: this one gets it, and ends the other in its own way."""
    block = getattr(signal, "pthread_sigmask", None)
    before = None if block is None else block(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if block is not None:
            block(signal.SIG_SETMASK, before)


def _answer(attempt: Attempt, pipe: Connection) -> None:
    """Answer until nobody asks any more. What the runtime prints goes nowhere."""
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
    """Why an attempt fails; None where it does not."""
    try:
        attempt(model, feeds)
    except Exception as error:  # noqa: BLE001  whatever a runtime raises is its answer
        return _essence(str(error)) or type(error).__name__
    return None


def _essence(text: str) -> str:
    """A runtime's message without the places in its sources, and from its last detail on."""
    words = _PLACE.sub("", " ".join(text.split()))
    for mark in ("Details: ", "with a message: ", "_message: "):
        words = words.rpartition(mark)[2]
    return words[:_LONGEST_REASON].strip()
