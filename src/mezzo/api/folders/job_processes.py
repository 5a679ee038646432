"""Processes that convert the models of a folder in parallel.

Each is a fresh Python that gets pickled jobs through a pipe and returns pickled results; both ends
are this program. A process that ends, by a crash of a runtime or for lack of memory, fails the
model it had, and another one takes its place.
"""

import copyreg
import io
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from types import MappingProxyType, TracebackType
from typing import Any, Self

from mezzo.api.folders.model_jobs import JobResult, ModelJob, try_job
from mezzo.api.folders.records import FailedFile
from mezzo.common.errors import InputError
from mezzo.common.memory import MemoryLimit, current_memory_limit, limited
from mezzo.common.message_style import (
    MessageStyle,
    current_message_style,
    option,
    using_message_style,
)

_PROGRAM = "import sys; from mezzo.api.folders.job_processes import serve; serve(int(sys.argv[1]))"
_ENDS_WITHIN_S = 5.0

JobOutcome = JobResult | FailedFile


@dataclass(frozen=True, slots=True)
class _Setting:
    """What a process needs besides jobs: its memory limit, and how messages name options."""

    bound_bytes: int | None
    is_asked: bool
    style: MessageStyle


def _read_only(mapping: dict[Any, Any]) -> Mapping[Any, Any]:
    return MappingProxyType(mapping)


class _Pickler(pickle.Pickler):
    """A pickler of records, whose mappings may be read-only."""

    dispatch_table = copyreg.dispatch_table | {
        MappingProxyType: lambda mapping: (_read_only, (dict(mapping),))
    }


def _pickle(record: object) -> bytes:
    text = io.BytesIO()
    _Pickler(text).dump(record)
    return text.getvalue()


class _Process:
    """A process with its pipe and its present job."""

    def __init__(self, setting: _Setting) -> None:
        own, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _PROGRAM, str(other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.connection = Connection(own.detach())
        self.job: ModelJob | None = None
        self.connection.send(setting)

    def begin(self, job: ModelJob) -> None:
        """Send a job. Raises InputError: the request or the data cannot be sent."""
        try:
            text = _pickle(job)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise InputError(
                f"{job.name!r}: its options or data cannot be sent to another process ({error});"
                " convert with jobs=1"
            ) from error
        self.job = job
        with suppress(OSError):  # the process is over, which `receive` tells
            self.connection.send_bytes(text)

    def receive(self) -> JobOutcome:
        """The outcome of the present job, which is then over."""
        assert self.job is not None, "a process answers a job"
        name, self.job = self.job.name, None
        try:
            outcome: JobOutcome = self.connection.recv()
        except (EOFError, OSError):
            self._wait()
            return FailedFile(name, f"{name!r}: its process {self._spell_end()}")
        return outcome

    def is_idle_and_over(self) -> bool:
        """Whether the process has no job and has ended."""
        return self.job is None and self._process.poll() is not None

    def end(self) -> None:
        """End the process, at once if it has a job."""
        self.connection.close()
        if self.job is not None:
            self._process.kill()
        self._wait()

    def _wait(self) -> None:
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _spell_end(self) -> str:
        code = self._process.returncode
        if code >= 0:
            return f"ended with code {code}; convert it alone to see why"
        memory = ", as for lack of memory" if -code == signal.SIGKILL else ""
        return f"was ended by {signal.Signals(-code).name}{memory}; convert it alone to see why"


def check_processes(count: int) -> None:
    """Raises InputError: there can be no such number of processes."""
    if count < 1:
        raise InputError(f"{option('jobs')} is {count}; give 1 or more")
    if count > 1 and os.name != "posix":
        raise InputError(f"{option('jobs')} is {count}, and this system runs 1; leave it out")


class JobProcesses:
    """A number of processes, which share the memory limit in effect."""

    def __init__(self, count: int) -> None:
        limit = current_memory_limit()
        room = limit.room_bytes() if limit.is_asked else limit.bound_bytes
        share = None if room is None else room // count
        self._setting = _Setting(share, limit.is_asked, current_message_style())
        self._count = count
        self._processes: list[_Process] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for process in self._processes:
            process.end()

    def run(self, jobs: Iterable[ModelJob]) -> Iterator[tuple[ModelJob, JobOutcome]]:
        """Run jobs and yield each with its outcome, in the order in which they end."""
        waiting = iter(jobs)
        while True:
            self._begin_jobs(waiting)
            busy: Mapping[Connection, _Process] = {
                process.connection: process for process in self._processes if process.job
            }
            if not busy:
                return
            for connection in wait(list(busy)):
                process = busy[connection]  # type: ignore[index]  # one of the keys
                job = process.job
                assert job is not None, "busy processes have a job"
                yield job, process.receive()

    def _begin_jobs(self, waiting: Iterator[ModelJob]) -> None:
        """Give every idle process a job, and start processes up to the number."""
        for process in [process for process in self._processes if process.is_idle_and_over()]:
            process.end()
            self._processes.remove(process)
        while any(process.job is None for process in self._processes) or (
            len(self._processes) < self._count
        ):
            job = next(waiting, None)
            if job is None:
                return
            idle = next((process for process in self._processes if process.job is None), None)
            if idle is None:
                idle = _Process(self._setting)
                self._processes.append(idle)
            idle.begin(job)


def serve(descriptor: int) -> None:
    """Run jobs from a pipe until it is closed. The parent ends this process on Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Connection(descriptor) as connection:
        setting: _Setting = connection.recv()
        limit = MemoryLimit(bound_bytes=setting.bound_bytes, is_asked=setting.is_asked)
        with limited(limit), using_message_style(setting.style):
            while True:
                try:
                    job: ModelJob = pickle.loads(connection.recv_bytes())  # the parent's
                except EOFError:
                    return
                connection.send_bytes(_pickle(try_job(job)))
