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
_MOST_STILLBORN = 3
_LEAVING_S = 1.0
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
        self._numbers, self._stillborn = itertools.count(), 0
        self._strange: set[str] = set()
        self._hands = [self._hire() for _ in range(count)]

    def __iter__(self) -> Iterator[PooledWorker]:
        return iter([*self._hands])

    def _hire(self) -> PooledWorker:
        actor = self._kind.remote()
        return PooledWorker(number=next(self._numbers), actor=actor, under_way=actor.greet.remote())

    def greeted(self, hand: PooledWorker, greeting: Handshake) -> None:
        """Accept a worker. Raises InputError: it has another version of mezzo."""
        if greeting.version != VERSION:
            raise InputError(
                f"worker on {greeting.host}: has mezzo {greeting.version}, wanted {VERSION};"
                " install the same there"
            )
        if greeting.machine != find_machine() and greeting.host not in self._strange:
            self._strange.add(greeting.host)
            self._tell(
                f"{greeting.host} has another processor than this machine: last bits of its numbers"
                " may differ"
            )
        hand.is_here, hand.pid, hand.under_way, self._stillborn = True, greeting.pid, None, 0

    def replace(self, hand: PooledWorker, cause: Exception) -> None:
        """Replace a lost worker. Raises MezzoError: workers keep dying before they answer."""
        self._hands.remove(hand)
        if not hand.is_here:
            self._stillborn += 1
            if self._stillborn >= _MOST_STILLBORN:
                raise not_starting(cause)
        self._hands.append(self._hire())

    def close(self) -> None:
        """Stop all workers."""
        for worker in self._hands:
            if worker.is_free:
                leaving = worker.actor.leave.remote()
                self._ray.wait([leaving], timeout=_LEAVING_S)
            self._ray.kill(worker.actor, no_restart=True)
        self._hands.clear()


def not_starting(cause: Exception) -> MezzoError:
    """The error for workers that do not start."""
    return MezzoError(
        f"workers do not start: {first_line(cause)}; look into Ray's logs, or leave it out"
    )


def first_line(error: Exception) -> str:
    """The last line of a Ray error, which has the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
