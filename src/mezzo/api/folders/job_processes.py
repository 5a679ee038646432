"""Processes that convert the models of a folder in parallel.

Each is a fresh Python that reads jobs from its stdin, a JSON document a line, and writes results to
its stdout. A process that ends, by a crash of a runtime or for lack of memory, fails the model it
had, and another one takes its place.
"""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self

from mezzo.api.folders.job_documents import read_job, revive_result, spell_job, spell_result
from mezzo.api.folders.json_process import JsonProcess
from mezzo.api.folders.model_jobs import JobResult, ModelJob, failure_of, try_job
from mezzo.api.folders.records import FailedFile
from mezzo.common.errors import InputError
from mezzo.common.memory import MemoryLimit, current_memory_limit, limited
from mezzo.common.message_style import (
    MessageStyle,
    current_message_style,
    option,
    using_message_style,
)
from mezzo.report.records.documents import Document

_PROGRAM = "from mezzo.api.folders.job_processes import serve; serve()"

JobOutcome = JobResult | FailedFile


def check_processes(count: int) -> None:
    """Raises InputError: there can be no such number of processes."""
    if count < 1:
        raise InputError(f"{option('jobs')} is {count}; give 1 or more")


class _Process:
    """A process that runs one job at a time. `setting` is its first line."""

    def __init__(self, setting: Document) -> None:
        self._process = JsonProcess(_PROGRAM)
        self.is_over = False
        self._process.send(setting)

    def run(self, job: ModelJob, document: Document) -> JobOutcome:
        """Run a job and wait for its outcome."""
        self._process.send(document)
        reply = self._process.receive()
        if reply is None:
            self.is_over = True
            return FailedFile(job.name, f"{job.name!r}: its process {self._spell_end()}")
        if "failure" in reply:
            return FailedFile(*reply["failure"])
        return revive_result(reply, job.staged)

    def end(self) -> None:
        """End the process, at once if it runs a job."""
        self.is_over = True
        self._process.end()

    def _spell_end(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"ended with code {code}; convert it alone to see why"
        memory = ", as for lack of memory" if -code == signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{memory}; convert it alone to see why"


class JobProcesses:
    """A number of processes, each with a thread that waits for it; they share the memory limit in
    effect.
    """

    def __init__(self, count: int) -> None:
        limit = current_memory_limit()
        room = limit.room_bytes() if limit.is_asked else limit.bound_bytes
        self._setting: Document = {
            "bound_bytes": None if room is None else room // count,
            "is_asked": limit.is_asked,
            "style": current_message_style().name,
        }
        self._count = count
        self._lock = threading.Lock()
        self._processes: list[_Process] = []
        self._threads: list[threading.Thread] = []
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_over = True
            for process in self._processes:
                process.end()
        for thread in self._threads:
            thread.join()

    def run(self, jobs: Iterable[ModelJob]) -> Iterator[tuple[ModelJob, JobOutcome]]:
        """Run jobs and yield each with its outcome, in the order in which they end.

        Raises InputError: options or data cannot be sent to another process.
        """
        waiting = [(job, spell_job(job)) for job in jobs]
        remaining = len(waiting)
        waiting.reverse()
        done: SimpleQueue[tuple[ModelJob, JobOutcome]] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, args=(waiting, done)) for _ in range(self._count)
        ]
        for thread in self._threads:
            thread.start()
        for _ in range(remaining):
            yield done.get()

    def _work(
        self,
        waiting: list[tuple[ModelJob, Document]],
        done: SimpleQueue[tuple[ModelJob, JobOutcome]],
    ) -> None:
        """Run jobs in one process after the other until none is left."""
        process: _Process | None = None
        while True:
            with self._lock:
                if self._is_over or not waiting:
                    return
                job, document = waiting.pop()
            outcome: JobOutcome
            try:
                if process is None or process.is_over:
                    process = self._start()
                outcome = process.run(job, document)
            except Exception as error:  # noqa: BLE001  # the caller waits for an outcome
                outcome = failure_of(job.name, error)
            done.put((job, outcome))

    def _start(self) -> _Process:
        """Start a process, which ends with this context. Raises OSError: the system starts none."""
        with self._lock:
            process = _Process(self._setting)
            self._processes.append(process)
            if self._is_over:
                process.end()
        return process


def serve() -> None:
    """Run jobs from stdin until it is closed. The parent ends this process on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What libraries print is no answer.
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        setting: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
        limit = MemoryLimit(bound_bytes=setting["bound_bytes"], is_asked=setting["is_asked"])
        with limited(limit), using_message_style(MessageStyle[setting["style"]]):
            for line in sys.stdin.buffer:
                outcome = try_job(read_job(json.loads(line)))
                if isinstance(outcome, FailedFile):
                    answer: Document = {"failure": list(outcome)}
                else:
                    answer = spell_result(outcome)
                answers.write(json.dumps(answer).encode() + b"\n")
                answers.flush()
