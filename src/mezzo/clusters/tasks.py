"""Tasks of an executor and their queue: each task counts once, however often it is started."""

import time
from collections import deque
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from mezzo.clusters.worker import KINDS, Reply
from mezzo.common.errors import MezzoError

# A task fails after this many workers died while running it.
MOST_DEATHS = 6
# A task starts on a second worker once it runs this many times longer than the median, and at least
# this long.
_SLOW_TIMES, _SLOW_S = 5.0, 30.0


@dataclass(kw_only=True, eq=False)
class Task:
    """One item of a job. `job`: its key; `deaths`: workers lost while running it; `begun_s`: time
    of the last start, on the monotonic clock.
    """

    number: int
    title: str
    job: int
    item: Any
    deaths: int = 0
    reply: Reply | None = None
    error: Exception | None = None
    is_dropped: bool = False
    begun_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.reply is not None or self.error is not None

    @property
    def is_wanted(self) -> bool:
        """Whether a caller waits for a result that is not there yet."""
        return not self.is_done and not self.is_dropped

    @property
    def name(self) -> str:
        return f"task {self.number} of {self.title}"

    def finish(self, reply: Reply) -> bool:
        """Store a reply. False: a reply of another worker came first."""
        if self.is_done:
            return False
        if reply.fault is None:
            self.reply = reply
        else:
            self.error = raised(reply.fault)
        self.item = None
        return True

    def outcome(self) -> Any:
        """The result. Raises what the job raised."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None, "asked for once it is done"
        return self.reply.outcome


def raised(fault: tuple[str, str]) -> Exception:
    """A worker's error as an exception."""
    kind, text = fault
    return KINDS[kind](text) if kind in KINDS else RuntimeError(f"a worker failed:\n{text}")


def lethal(task: Task) -> MezzoError:
    """The error of a task that killed `MOST_DEATHS` workers."""
    return MezzoError(
        f"{task.name}: {task.deaths} workers died of it one after the other, and it was not tried"
        " again; run without a cluster to see why, or give workers more memory"
    )


@dataclass(kw_only=True)
class Spent:
    """Work done for one kind of job; work of lost workers is not counted."""

    tasks: int = 0
    time_s: float = 0.0
    ready: int = 0  # number of preparations
    ready_s: float = 0.0


@dataclass(kw_only=True)
class ExecutorCounters:
    """Counters of an executor. `twice`: duplicate replies; `files_bytes`: model files sent, each
    counted once; `spent`: by job title.
    """

    done: int = 0
    lost: int = 0
    again: int = 0
    twice: int = 0
    files_bytes: int = 0
    spent: dict[str, Spent] = field(default_factory=dict)

    def of(self, title: str) -> Spent:
        """The work spent on jobs of a title."""
        return self.spent.setdefault(title, Spent())


@dataclass
class Queue:
    """Waiting tasks, restarted ones first, and the times of finished tasks."""

    waiting: deque[Task] = field(default_factory=deque)
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def next(self, jobs: Container[int]) -> Task | None:
        """The next waiting task that is neither done nor dropped, of these jobs."""
        while self.waiting:
            task = self.waiting.popleft()
            if task.job in jobs and task.is_wanted:
                return task
        return None

    def slow(self, running: list[Task]) -> Task | None:
        """The longest-running late task that one worker runs, to be started on a second one; None
        if there is none.
        """
        usual_s = sorted(self.times_s)[len(self.times_s) // 2] if self.times_s else float("inf")
        most_s = max(_SLOW_S, _SLOW_TIMES * usual_s)
        now = time.monotonic()
        late = [
            task
            for task in running
            if running.count(task) == 1 and task.is_wanted and now - task.begun_s > most_s
        ]
        return min(late, key=lambda task: task.begun_s, default=None)
