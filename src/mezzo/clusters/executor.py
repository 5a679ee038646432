"""An executor of jobs over Ray actors: Ray starts, places and watches them; this module says which works on what.

A worker has one task at a time. A worker that is lost is replaced, and its task is begun again; what comes back twice
is counted once, by the number of the task.
"""

import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mezzo.clusters.jobs import Jobs
from mezzo.clusters.tasks import MOST_DEATHS, Counts, Queue, Task, poisonous
from mezzo.clusters.worker import Handshake, Reply
from mezzo.clusters.worker_pool import PooledWorker, Tell, WorkerPool, first_line, not_starting
from mezzo.common.errors import InputError, MezzoError
from mezzo.contracts.executor import HERE, Job, Team
from mezzo.contracts.frontend import Model

# The first worker has to be there by then.
_GREETING_S = 120.0
_LOOK_EVERY_S = 1.0


class RayCrew:
    """Workers as long as it is open. `ray` is the module, connected; `tell` is told what people have to know."""

    def __init__(self, ray: Any, workers: int, tell: Tell) -> None:
        """Start workers and wait for the first. Raises InputError: none comes."""
        self._ray, self._tell, self.workers = ray, tell, workers
        self._numbers, self._queue, self.counts = itertools.count(), Queue(), Counts()
        self._orders = Jobs(ray, self.counts, tell)
        self._hands = WorkerPool(ray, workers, tell)
        self._await_first()

    def _await_first(self) -> None:
        end = time.monotonic() + _GREETING_S
        while not any(hand.is_here for hand in self._hands):
            if time.monotonic() > end:
                raise InputError(
                    f"no worker has started within {_GREETING_S:g} s: the cluster has no processor free; ask for fewer "
                    "workers, or wait until it has"
                )
            self._step()

    def pids(self) -> tuple[int, ...]:
        """The processes of workers that are there, by the numbers that their machines gave them."""
        return tuple(hand.pid for hand in self._hands if hand.is_here)

    def close(self) -> None:
        """Let all workers go."""
        self._hands.close()

    # -- what is to be done ---------------------------------------------------------------------------------------

    def team(
        self,
        job: Job[Any, Any],
        models: Callable[[], Sequence[Model]],
        here: Callable[[], Callable[[Any], Any]],
    ) -> Team[Any, Any]:
        """Make a job ready on the workers as they come to it. Models that cannot be sent stay, and so does the job."""
        key = self._orders.take(job, models)
        if key is None:
            return HERE.team(job, models, here)
        team = _RayTeam(self, key)
        weakref.finalize(team, self._orders.drop, key)  # its models are closed with it
        return team

    def start(self, key: int, item: Any) -> Task:
        """Hand an item over."""
        task = Task(number=next(self._numbers), title=self._orders[key].title, order=key, item=item)
        self._queue.waiting.append(task)
        self._hand_out()
        return task

    def wait_for(self, task: Task) -> Any:
        """What comes of a task. Raises what the job raises."""
        while not task.is_done:
            self._step()
        return task.outcome()

    # -- who does it ----------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        for hand in self._hands:
            if not hand.is_free:
                continue
            task = self._queue.next(self._orders.wanted)
            if task is None:
                task = self._queue.slow([other.task for other in self._hands if other.task is not None])
                if task is None:
                    return
                self._tell(f"{task.name} takes long; it is begun on a second worker")
            task.begun, task.begun_s = task.begun + 1, time.monotonic()
            hand.task = task
            self._ask(hand, task)

    def _ask(self, hand: PooledWorker, task: Task) -> None:
        hand.is_preparing = task.order not in hand.ready
        if hand.is_preparing:
            ordered = self._orders[task.order]
            # What lies in the store is fetched by whoever needs it, once per machine.
            hand.under_way = hand.actor.prepare.remote(ordered.order, [*ordered.files], *ordered.files.values())
        else:
            hand.under_way = hand.actor.run.remote(task.order, task.item)

    # -- what comes back ------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait until something comes back, or a while, and take it."""
        self._hand_out()
        waited = {hand.under_way: hand for hand in self._hands if hand.under_way is not None}
        done, _ = self._ray.wait(list(waited), num_returns=1, timeout=_LOOK_EVERY_S)
        for ref in done:
            hand = waited[ref]
            try:
                answer = self._ray.get(ref)
            except self._ray.exceptions.RayActorError as error:
                self._lost(hand, error)
                continue
            except self._ray.exceptions.RayError as error:
                self._refused(hand, error)
                continue
            self._take(hand, answer)
        self._hand_out()

    def _take(self, hand: PooledWorker, answer: Handshake | Reply) -> None:
        if isinstance(answer, Handshake):
            self._hands.greeted(hand, answer)
            return
        task = hand.task
        assert task is not None, "nothing else is asked"
        hand.under_way = None
        if task.order not in self._orders.wanted:  # nobody waits any more
            hand.task = None
            self.counts.twice += task.is_done and not hand.is_preparing
        elif answer.lacks is not None:
            self._orders.send_late(task.order, answer.lacks)
            self._ask(hand, task)
        elif answer.is_unknown:
            hand.ready.discard(task.order)
            self._ask(hand, task)
        elif hand.is_preparing and answer.fault is None:
            hand.ready.add(task.order)
            spent = self.counts.of(task.title)
            spent.ready, spent.ready_s = spent.ready + 1, spent.ready_s + answer.time_s
            if task.is_done or task.is_dropped:
                hand.task = None
            else:
                self._ask(hand, task)
        else:
            hand.task = None
            if task.finish(answer):
                self.counts.done += 1
                spent = self.counts.of(task.title)
                spent.tasks, spent.time_s = spent.tasks + 1, spent.time_s + answer.time_s
                self._queue.times_s.append(answer.time_s)
            else:
                self.counts.twice += 1

    def _lost(self, hand: PooledWorker, cause: Exception) -> None:
        """Replace a worker, and begin its task again."""
        task = hand.task
        self.counts.lost += 1
        self._hands.replace(hand, cause)
        if task is not None and not task.is_done and not task.is_dropped:
            task.deaths += 1
            if task.deaths >= MOST_DEATHS:
                task.error = poisonous(task)
            else:
                self.counts.again += 1
                task.begun = 0
                self._queue.waiting.appendleft(task)
        begun = "" if task is None else f", and {task.name} is begun again"
        self._tell(f"a worker was lost; another takes its place{begun}" if task is None or task.error is None
                   else f"a worker was lost with {task.name}, as {task.deaths - 1} before it")  # fmt: skip

    def _refused(self, hand: PooledWorker, cause: Exception) -> None:
        """Note that a task could not be handed over, or what came of it not be handed back."""
        task, hand.task, hand.under_way = hand.task, None, None
        if task is None:
            raise not_starting(cause)
        if not task.is_done:
            task.error = MezzoError(
                f"{task.name}: did not get to a worker and back: {first_line(cause)}; install the same packages there"
            )


class _RayTeam:
    """The workers of an executor, for one job."""

    def __init__(self, executor: RayCrew, key: int) -> None:
        self._crew, self._key = executor, key

    @property
    def width(self) -> int:
        # Results are taken in their order: with four for each worker a slow one keeps the others from little, as
        # benchmarks/cluster_simulation.py shows, and no more of them have to be held.
        return 4 * self._crew.workers

    def start(self, item: Any) -> "_Pending":
        return _Pending(self, self._crew, self._crew.start(self._key, item))


class _Pending:
    def __init__(self, team: _RayTeam, executor: RayCrew, task: Task) -> None:
        self._team, self._crew, self._task = team, executor, task  # who waits keeps the order

    def result(self) -> Any:
        return self._crew.wait_for(self._task)

    def drop(self) -> None:
        self._task.is_dropped = True
