"""Pool of workers as Ray actors: started, checked, replaced when lost, and stopped."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mezzo.clusters.tasks import Task
from mezzo.clusters.worker import Handshake, Worker
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_machine
from mezzo.common.packages import VERSION

# The pool gives up after this many workers in a row died before they answered.
_MOST_FAILED_STARTS = 3
_CLOSE_S = 1.0
Tell = Callable[[str], None]


@dataclass(kw_only=True, eq=False)
class PooledWorker:
    """One actor. `under_way` is the pending call, `task` what it is for; `is_here` once it has
    answered the first call.
    """

    number: int
    actor: Any
    under_way: Any
    task: Task | None = None
    is_here: bool = False
    pid: int = 0
    is_preparing: bool = False
    ready: set[int] = field(default_factory=set)  # keys of jobs prepared on it, as far as known

    @property
    def is_free(self) -> bool:
        return self.is_here and self.under_way is None


class WorkerPool:
    """The workers of an executor. `ray`: the connected module; `tell`: shows messages."""

    def __init__(self, ray: Any, count: int, tell: Tell) -> None:
        """Start `count` workers, without waiting for them."""
        self._ray, self._tell = ray, tell
        # mezzo handles failures itself: Ray neither restarts an actor nor retries a call.
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Worker)
        self._numbers, self._failed_starts = itertools.count(), 0
        self._other_hosts: set[str] = set()
        self._workers = [self._start() for _ in range(count)]

    def __iter__(self) -> Iterator[PooledWorker]:
        return iter([*self._workers])

    def _start(self) -> PooledWorker:
        actor = self._kind.remote()
        return PooledWorker(number=next(self._numbers), actor=actor, under_way=actor.greet.remote())

    def accept(self, worker: PooledWorker, handshake: Handshake) -> None:
        """Accept a worker. Raises InputError: it has another version of mezzo."""
        if handshake.version != VERSION:
            raise InputError(
                f"worker on {handshake.host}: has mezzo {handshake.version}, wanted {VERSION};"
                " install the same there"
            )
        if handshake.machine != find_machine() and handshake.host not in self._other_hosts:
            self._other_hosts.add(handshake.host)
            self._tell(
                f"{handshake.host} has another processor than this machine: last bits of its"
                " numbers may differ"
            )
        worker.is_here, worker.pid, worker.under_way = True, handshake.pid, None
        self._failed_starts = 0

    def replace(self, worker: PooledWorker, cause: Exception) -> None:
        """Replace a lost worker. Raises MezzoError: workers keep dying before they answer."""
        self._workers.remove(worker)
        if not worker.is_here:
            self._failed_starts += 1
            if self._failed_starts >= _MOST_FAILED_STARTS:
                raise not_starting(cause)
        self._workers.append(self._start())

    def close(self) -> None:
        """Stop all workers."""
        for worker in self._workers:
            if worker.is_free:
                leaving = worker.actor.leave.remote()
                self._ray.wait([leaving], timeout=_CLOSE_S)
            self._ray.kill(worker.actor, no_restart=True)
        self._workers.clear()


def not_starting(cause: Exception) -> MezzoError:
    """The error for workers that do not start."""
    return MezzoError(
        f"workers do not start: {first_line(cause)}; look into Ray's logs, or leave it out"
    )


def first_line(error: Exception) -> str:
    """The last line of a Ray error, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
