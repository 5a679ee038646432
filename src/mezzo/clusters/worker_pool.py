"""Workers as Ray's actors: hired, greeted, replaced where one is lost, and let go."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mezzo.clusters.tasks import Task
from mezzo.clusters.worker import Handshake, Worker
from mezzo.common.errors import InputError, MezzoError
from mezzo.common.machine import find_machine
from mezzo.common.packages import VERSION

# So many may die before they greet.
_MOST_STILLBORN = 3
_LEAVING_S = 1.0
Tell = Callable[[str], None]


@dataclass(kw_only=True, eq=False)
class PooledWorker:
    """One actor. `under_way` is what it is asked now, `task` for whom; `is_here` once it has greeted."""

    number: int
    actor: Any
    under_way: Any
    task: Task | None = None
    is_here: bool = False
    pid: int = 0
    is_preparing: bool = False
    ready: set[int] = field(default_factory=set)  # orders, as far as is known

    @property
    def is_free(self) -> bool:
        return self.is_here and self.under_way is None


class WorkerPool:
    """The workers of an executor. `ray` is the module, connected; `tell` is told what people have to know of them."""

    def __init__(self, ray: Any, count: int, tell: Tell) -> None:
        """Begin to start so many."""
        self._ray, self._tell = ray, tell
        # Who comes and goes is for mezzo to say: Ray neither restarts an actor nor repeats a call.
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
        """Let a worker begin. Raises InputError: it has another version of mezzo."""
        if greeting.version != VERSION:
            raise InputError(
                f"worker on {greeting.host}: has mezzo {greeting.version}, wanted {VERSION}; install the same there"
            )
        if greeting.machine != find_machine() and greeting.host not in self._strange:
            self._strange.add(greeting.host)
            self._tell(f"{greeting.host} has another processor than this machine: last bits of its numbers may differ")
        hand.is_here, hand.pid, hand.under_way, self._stillborn = True, greeting.pid, None, 0

    def replace(self, hand: PooledWorker, cause: Exception) -> None:
        """Hire another for one that was lost. Raises MezzoError: none of them gets as far as to greet."""
        self._hands.remove(hand)
        if not hand.is_here:
            self._stillborn += 1
            if self._stillborn >= _MOST_STILLBORN:
                raise not_starting(cause)
        self._hands.append(self._hire())

    def close(self) -> None:
        """Let all workers go."""
        for hand in self._hands:
            if hand.is_free:
                leaving = hand.actor.leave.remote()
                self._ray.wait([leaving], timeout=_LEAVING_S)
            self._ray.kill(hand.actor, no_restart=True)
        self._hands.clear()


def not_starting(cause: Exception) -> MezzoError:
    """The error of workers that do not start."""
    return MezzoError(f"workers do not start: {first_line(cause)}; look into Ray's logs, or leave it out")


def first_line(error: Exception) -> str:
    """What an error of Ray's says, whose last line tells most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
