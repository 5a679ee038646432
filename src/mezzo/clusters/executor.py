"""Job executor on Ray actors: Ray starts, places and monitors the workers; this module assigns
tasks to them.

A worker runs one task at a time. A lost worker is replaced and its task restarted; duplicate
results are counted once, by task number.
"""

import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from mezzo.clusters.jobs import Jobs
from mezzo.clusters.tasks import MOST_DEATHS, ExecutorCounters, Queue, Task, lethal
from mezzo.clusters.worker import Handshake, Reply
from mezzo.clusters.worker_pool import PooledWorker, Tell, WorkerPool, first_line, not_starting
from mezzo.common.errors import InputError, MezzoError
from mezzo.contracts.executor import HERE, Job, Team
from mezzo.contracts.frontend import Model

# Timeout for the first worker to start.
_START_S = 120.0
_LOOK_EVERY_S = 1.0


class RayExecutor:
    """Runs jobs on workers until closed. `ray`: the connected module; `tell`: shows messages."""

    def __init__(self, ray: Any, workers: int, tell: Tell) -> None:
        """Start workers and wait for the first. Raises InputError: none starts in time."""
        self._ray, self._tell, self.workers = ray, tell, workers
        self._numbers, self._queue, self.counts = itertools.count(), Queue(), ExecutorCounters()
        self._jobs = Jobs(ray, self.counts, tell)
        self._pool = WorkerPool(ray, workers, tell)
        self._await_first()

    def _await_first(self) -> None:
        end = time.monotonic() + _START_S
        while not any(worker.is_here for worker in self._pool):
            if time.monotonic() > end:
                raise InputError(
                    f"no worker has started within {_START_S:g} s: the cluster has no processor"
                    " free; ask for fewer workers, or wait until it has"
                )
            self._step()

    def pids(self) -> tuple[int, ...]:
        """The process ids of running workers, each as its own machine numbers it."""
        return tuple(worker.pid for worker in self._pool if worker.is_here)

    def close(self) -> None:
        """Stop all workers."""
        self._pool.close()

    # -- jobs and tasks ----------------------------------------------------------------------------

    def team(
        self,
        job: Job[Any, Any],
        models: Callable[[], Sequence[Model]],
        here: Callable[[], Callable[[Any], Any]],
    ) -> Team[Any, Any]:
        """A team that prepares the job on each worker before its first task there. Without
        transferable models it runs in this process.
        """
        key = self._jobs.register(job, models)
        if key is None:
            return HERE.team(job, models, here)
        team = _RayTeam(self, key)
        weakref.finalize(team, self._jobs.drop, key)  # its models are closed with it
        return team

    def start(self, key: int, item: Any) -> Task:
        """Queue an item of a job."""
        task = Task(number=next(self._numbers), title=self._jobs[key].title, job=key, item=item)
        self._queue.waiting.append(task)
        self._hand_out()
        return task

    def wait_for(self, task: Task) -> Any:
        """The result of a task, waiting for it. Raises what the job raised."""
        while not task.is_done:
            self._step()
        return task.outcome()

    # -- assignment --------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """Assign waiting tasks, then copies of late ones, to free workers."""
        for worker in self._pool:
            if not worker.is_free:
                continue
            task = self._queue.next(self._jobs)
            if task is None:
                task = self._queue.slow([busy.task for busy in self._pool if busy.task is not None])
                if task is None:
                    return
                self._tell(f"{task.name} takes long; it is begun on a second worker")
            task.begun_s = time.monotonic()
            worker.task = task
            self._ask(worker, task)

    def _ask(self, worker: PooledWorker, task: Task) -> None:
        """Send a task to a worker, or its job if the worker has not prepared it."""
        worker.is_preparing = task.job not in worker.ready
        if worker.is_preparing:
            registered = self._jobs[task.job]
            # Ray fetches files from its object store on demand, once per machine.
            worker.under_way = worker.actor.prepare.remote(
                registered.message, [*registered.files], *registered.files.values()
            )
        else:
            worker.under_way = worker.actor.run.remote(task.job, task.item)

    # -- replies -----------------------------------------------------------------------------------

    def _step(self) -> None:
        """Wait up to `_LOOK_EVERY_S` for replies, and process them."""
        self._hand_out()
        waited = {worker.under_way: worker for worker in self._pool if worker.under_way is not None}
        done, _ = self._ray.wait(list(waited), num_returns=1, timeout=_LOOK_EVERY_S)
        for ref in done:
            worker = waited[ref]
            try:
                reply = self._ray.get(ref)
            except self._ray.exceptions.RayActorError as error:
                self._lost(worker, error)
                continue
            except self._ray.exceptions.RayError as error:
                self._refused(worker, error)
                continue
            self._take(worker, reply)
        self._hand_out()

    def _take(self, worker: PooledWorker, reply: Handshake | Reply) -> None:
        """Process the reply of a worker."""
        if isinstance(reply, Handshake):
            self._pool.accept(worker, reply)
            return
        task = worker.task
        assert task is not None, "nothing else is asked"
        worker.under_way = None
        if task.job not in self._jobs:  # no caller waits for this job any more
            worker.task = None
            self.counts.twice += task.is_done and not worker.is_preparing
        elif reply.lacks is not None:
            self._jobs.send_late(task.job, reply.lacks)
            self._ask(worker, task)
        elif reply.is_unknown:
            worker.ready.discard(task.job)
            self._ask(worker, task)
        elif worker.is_preparing and reply.fault is None:
            worker.ready.add(task.job)
            spent = self.counts.of(task.title)
            spent.ready, spent.ready_s = spent.ready + 1, spent.ready_s + reply.time_s
            if task.is_wanted:
                self._ask(worker, task)
            else:
                worker.task = None
        else:
            worker.task = None
            if task.finish(reply):
                self.counts.done += 1
                spent = self.counts.of(task.title)
                spent.tasks, spent.time_s = spent.tasks + 1, spent.time_s + reply.time_s
                self._queue.times_s.append(reply.time_s)
            else:
                self.counts.twice += 1

    def _lost(self, worker: PooledWorker, cause: Exception) -> None:
        """Replace a lost worker, and queue its task again if no other worker runs it."""
        task = worker.task
        self.counts.lost += 1
        self._pool.replace(worker, cause)
        line = "a worker was lost; another takes its place"
        if task is not None and task.is_wanted:
            task.deaths += 1
            if task.deaths >= MOST_DEATHS:
                task.error = lethal(task)
                line = f"a worker was lost with {task.name}, as {task.deaths - 1} before it"
            elif not any(other.task is task for other in self._pool):
                self.counts.again += 1
                self._queue.waiting.appendleft(task)
                line += f", and {task.name} is begun again"
        self._tell(line)

    def _refused(self, worker: PooledWorker, cause: Exception) -> None:
        """Fail a task that could not be sent to a worker, or its result back."""
        task, worker.task, worker.under_way = worker.task, None, None
        if task is None:
            raise not_starting(cause)
        if not task.is_done:
            task.error = MezzoError(
                f"{task.name}: did not get to a worker and back: {first_line(cause)}; install the"
                " same packages there"
            )


class _RayTeam:
    """An executor's workers, for one job."""

    def __init__(self, executor: RayExecutor, key: int) -> None:
        self._executor, self._key = executor, key

    @property
    def width(self) -> int:
        # Results are taken in order: with four tasks per worker a slow one delays the others little
        # (benchmarks/cluster_simulation.py), and few results wait in memory.
        return 4 * self._executor.workers

    def start(self, item: Any) -> "_Pending":
        return _Pending(self, self._executor, self._executor.start(self._key, item))


class _Pending:
    def __init__(self, team: _RayTeam, executor: RayExecutor, task: Task) -> None:
        # A pending task keeps the team, and so the job, alive.
        self._team, self._executor, self._task = team, executor, task

    def result(self) -> Any:
        return self._executor.wait_for(self._task)

    def drop(self) -> None:
        self._task.is_dropped = True
