"""Items on their way through an executor: each is counted once, however often it was begun."""

import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from mezzo.clusters.worker import KINDS, Reply
from mezzo.common.errors import MezzoError

# A task that so many workers died of is at fault itself.
MOST_DEATHS = 6
# A task is begun on a second worker once it takes so many times what others took, and so long at least.
_SLOW_TIMES, _SLOW_S = 5.0, 30.0


@dataclass(kw_only=True, eq=False)
class Task:
    """One item of an order. `deaths`: how many workers were lost while they had it. `begun_s` is when it was handed
    out last, on the monotonic clock.
    """

    number: int
    title: str
    order: int
    item: Any
    deaths: int = 0
    reply: Reply | None = None
    error: Exception | None = None
    is_dropped: bool = False
    begun: int = 0
    begun_s: float = 0.0

    @property
    def is_done(self) -> bool:
        return self.reply is not None or self.error is not None

    @property
    def name(self) -> str:
        return f"task {self.number} of {self.title}"

    def finish(self, reply: Reply) -> bool:
        """Take a reply. False: there is one already, and this is of a second worker."""
        if self.is_done:
            return False
        if reply.fault is None:
            self.reply = reply
        else:
            self.error = raised(reply.fault)
        self.item = None
        return True

    def outcome(self) -> Any:
        """What came of it. Raises what the job raised."""
        if self.error is not None:
            raise self.error
        assert self.reply is not None, "asked for once it is done"
        return self.reply.outcome


def raised(fault: tuple[str, str]) -> Exception:
    """The error that a worker told of."""
    kind, text = fault
    return KINDS[kind](text) if kind in KINDS else RuntimeError(f"a worker failed:\n{text}")


def poisonous(task: Task) -> MezzoError:
    """The error of a task that no worker survives."""
    return MezzoError(
        f"{task.name}: {task.deaths} workers died of it one after the other, and it was not tried again; run without "
        "a cluster to see why, or give workers more memory"
    )


@dataclass(kw_only=True)
class Spent:
    """What workers have done for one kind of job, without what was lost."""

    tasks: int = 0
    time_s: float = 0.0
    ready: int = 0  # how often it was made ready
    ready_s: float = 0.0


@dataclass(kw_only=True)
class Counts:
    """What an executor has seen. `twice`: replies to tasks that had one already; `files_bytes`: files that models
    were sent as, once each; `spent` goes by the titles of jobs.
    """

    done: int = 0
    lost: int = 0
    again: int = 0
    twice: int = 0
    files_bytes: int = 0
    spent: dict[str, Spent] = field(default_factory=dict)

    def of(self, title: str) -> Spent:
        """What was spent on jobs of a title."""
        return self.spent.setdefault(title, Spent())


@dataclass
class Queue:
    """Tasks that wait for a worker, those of a lost one first, and how long tasks took."""

    waiting: deque[Task] = field(default_factory=deque)
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=64))

    def next(self, orders: Collection[int]) -> Task | None:
        """The next task that is still wanted, of an order that is."""
        while self.waiting:
            task = self.waiting.popleft()
            if task.order in orders and not task.is_dropped and not task.is_done:
                return task
        return None

    def slow(self, running: list[Task]) -> Task | None:
        """A task that takes so long that a second worker may be quicker; one that was begun twice is none."""
        usual_s = sorted(self.times_s)[len(self.times_s) // 2] if self.times_s else float("inf")
        most_s = max(_SLOW_S, _SLOW_TIMES * usual_s)
        now = time.monotonic()
        late = [
            task for task in running
            if task.begun == 1 and not task.is_done and not task.is_dropped and now - task.begun_s > most_s
        ]  # fmt: skip
        return min(late, key=lambda task: task.begun_s, default=None)
