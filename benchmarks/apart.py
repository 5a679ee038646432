"""Runs work in a process of its own, which a runtime may end and a clock ends. No script."""

import multiprocessing
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


def run_apart(
    work: Callable[[Callable[[_T], None]], _T],
    otherwise: _T,
    *,
    limit_s: float | None = None,
    too_long: _T | None = None,
) -> _T:
    """What work gives; if its process ends before, what it reported last, or else `otherwise`.

    Work is called with what reports. Past a limit the process is killed, and `too_long` is the result.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=lambda: sender.send(work(sender.send)))
    process.start()
    sender.close()
    ends = None if limit_s is None else time.monotonic() + limit_s
    result = otherwise
    try:
        while receiver.poll(None if ends is None else max(0.0, ends - time.monotonic())):
            result = receiver.recv()
        process.kill()
        assert too_long is not None, "a limit comes with what it leads to"
        result = too_long
    except EOFError:
        pass
    process.join()
    return result
