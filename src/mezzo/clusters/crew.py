"""A crew of Ray's actors: Ray starts, places and watches them, and carries items; here it is said who does what.

A worker has one task at a time. A worker that is lost is replaced, and its task is begun again; what comes back twice
is counted once, by the number of the task.
"""

import itertools
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mezzo.clusters.sending import Source, bundle_of, source_of
from mezzo.clusters.tasks import MOST_DEATHS, Queue, Task, poisonous
from mezzo.clusters.worker import Greeting, Order, Reply, Worker
from mezzo.core.crew import HERE, Job, Team
from mezzo.core.frontend import Model
from mezzo.errors import InputError, MezzoError
from mezzo.machine import find_machine
from mezzo.packages import VERSION
from mezzo.voices import Voice, either

# The first worker has to be there by then; so many may die before they greet.
_GREETING_S = 120.0
_MOST_STILLBORN = 3
_LOOK_EVERY_S = 1.0
Tell = Callable[[str], None]


@dataclass(kw_only=True, eq=False)
class _Hand:
    """One actor. `under_way` is what it is asked now, `task` for whom; `is_here` once it has greeted."""

    number: int
    actor: Any
    under_way: Any
    task: Task | None = None
    is_here: bool = False
    pid: int = 0
    is_preparing: bool = False
    ready: set[int] = field(default_factory=set)  # orders, as far as is known


@dataclass(kw_only=True)
class _Ordered:
    """A job that was asked for, where its order and the files of its models lie in the object store."""

    title: str
    order: Any
    models: Callable[[], Sequence[Model]]
    files: dict[int, Any]


@dataclass(kw_only=True)
class Spent:
    """What workers have done for one kind of job, without what was lost."""

    tasks: int = 0
    time_s: float = 0.0
    ready: int = 0  # how often it was made ready
    ready_s: float = 0.0


@dataclass(kw_only=True)
class Counts:
    """What a crew has seen. `twice`: replies to tasks that had one already; `files_bytes`: files that models were sent
    as, once each; `spent` goes by the titles of jobs.
    """

    done: int = 0
    lost: int = 0
    again: int = 0
    twice: int = 0
    files_bytes: int = 0
    spent: dict[str, Spent] = field(default_factory=dict)


class RayCrew:
    """Workers as long as it is open. `ray` is the module, connected; `tell` is told what people have to know."""

    def __init__(self, ray: Any, workers: int, tell: Tell) -> None:
        """Start workers and wait for the first. Raises InputError: none comes."""
        self._ray, self._tell, self.workers = ray, tell, workers
        # Who comes and goes is for mezzo to say: Ray neither restarts an actor nor repeats a call.
        self._kind = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Worker)
        self._numbers, self._orders, self._keys = itertools.count(), itertools.count(), dict[int, _Ordered]()
        self._queue, self.counts, self._stillborn = Queue(), Counts(), 0
        self._strange: set[str] = set()
        self._hands = [self._hire() for _ in range(workers)]
        self._await_first()

    # -- who works ------------------------------------------------------------------------------------------------

    def _hire(self) -> _Hand:
        actor = self._kind.remote()
        return _Hand(number=next(self._numbers), actor=actor, under_way=actor.greet.remote())

    def _await_first(self) -> None:
        end = time.monotonic() + _GREETING_S
        while not any(hand.is_here for hand in self._hands):
            if time.monotonic() > end:
                raise InputError(
                    f"no worker has started within {_GREETING_S:g} s: the cluster has no processor free; ask for fewer "
                    "workers, or wait until it has"
                )
            self._step()

    def _greeted(self, hand: _Hand, greeting: Greeting) -> None:
        if greeting.version != VERSION:
            raise InputError(
                f"worker on {greeting.host}: has mezzo {greeting.version}, wanted {VERSION}; install the same there"
            )
        if greeting.machine != find_machine() and greeting.host not in self._strange:
            self._strange.add(greeting.host)
            self._tell(f"{greeting.host} has another processor than this machine: last bits of its numbers may differ")
        hand.is_here, hand.pid, hand.under_way, self._stillborn = True, greeting.pid, None, 0

    def _lost(self, hand: _Hand, cause: Exception) -> None:
        """Replace a worker, and begin its task again."""
        self._hands.remove(hand)
        task = hand.task
        self.counts.lost += 1
        if not hand.is_here:
            self._stillborn += 1
            if self._stillborn >= _MOST_STILLBORN:
                raise MezzoError(f"workers do not start: {_first_line(cause)}; look into Ray's logs, or leave it out")
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
        self._hands.append(self._hire())

    def _refused(self, hand: _Hand, cause: Exception) -> None:
        """Note that a task could not be handed over, or what came of it not be handed back."""
        task, hand.task, hand.under_way = hand.task, None, None
        if task is None:
            raise MezzoError(f"workers do not start: {_first_line(cause)}; look into Ray's logs, or leave it out")
        if not task.is_done:
            task.error = MezzoError(
                f"{task.name}: did not get to a worker and back: {_first_line(cause)}; install the same packages there"
            )

    def pids(self) -> tuple[int, ...]:
        """The processes of workers that are there, by the numbers that their machines gave them."""
        return tuple(hand.pid for hand in [*self._hands] if hand.is_here)

    # -- who does what --------------------------------------------------------------------------------------------

    def team(
        self,
        job: Job[Any, Any],
        models: Callable[[], Sequence[Model]],
        here: Callable[[], Callable[[Any], Any]],
    ) -> Team[Any, Any]:
        """Make a job ready on the workers as they come to it. Models that cannot be sent stay, and so does the job."""
        opened = models()
        sources, files = [], dict[int, Any]()
        for number, model in enumerate(opened):
            source = source_of(model)
            if source is None:
                if model.store is None:
                    self._tell(f"{model.name} is no file and cannot be sent: {job.title} stays in this process")
                    return HERE.team(job, models, here)
                source, files[number] = self._send(model)
            sources.append(source)
        key = next(self._orders)
        order = Order(key=key, job=job, sources=tuple(sources), voice=either_voice())
        self._keys[key] = _Ordered(title=job.title, order=self._ray.put(order), models=models, files=files)
        team = _RayTeam(self, key)
        weakref.finalize(team, self._keys.pop, key, None)  # its models are closed with it
        return team

    def _send(self, model: Model) -> tuple[Source, Any]:
        source, bundle = bundle_of(model)
        size_bytes = sum(content.nbytes for content in bundle.files.values())
        self.counts.files_bytes += size_bytes
        return source, self._ray.put(bundle)

    def _send_late(self, ordered: _Ordered, number: int) -> None:
        """Send a model as files whose path a worker does not see."""
        if number not in ordered.files:
            model = ordered.models()[number]
            self._tell(f"{model.name} is not there for all workers under its path: it is sent as files")
            ordered.files[number] = self._send(model)[1]

    def start(self, key: int, item: Any) -> Task:
        """Hand an item over."""
        task = Task(number=next(self._numbers), title=self._keys[key].title, order=key, item=item)
        self._queue.waiting.append(task)
        self._hand_out()
        return task

    def wait_for(self, task: Task) -> Any:
        """What comes of a task. Raises what the job raises."""
        while not task.is_done:
            self._step()
        return task.outcome()

    def _hand_out(self) -> None:
        for hand in self._hands:
            if not hand.is_here or hand.under_way is not None:
                continue
            task = self._queue.next(self._keys.keys())
            if task is None:
                task = self._queue.slow([other.task for other in self._hands if other.task is not None])
                if task is None:
                    return
                self._tell(f"{task.name} takes long; it is begun on a second worker")
            task.begun, task.begun_s = task.begun + 1, time.monotonic()
            hand.task = task
            self._ask(hand, task)

    def _ask(self, hand: _Hand, task: Task) -> None:
        hand.is_preparing = task.order not in hand.ready
        if hand.is_preparing:
            ordered = self._keys[task.order]
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

    def _take(self, hand: _Hand, answer: Greeting | Reply) -> None:
        if isinstance(answer, Greeting):
            self._greeted(hand, answer)
            return
        task = hand.task
        assert task is not None, "nothing else is asked"
        hand.under_way = None
        if task.order not in self._keys:  # nobody waits any more
            hand.task = None
            self.counts.twice += task.is_done and not hand.is_preparing
        elif answer.lacks is not None:
            self._send_late(self._keys[task.order], answer.lacks)
            self._ask(hand, task)
        elif answer.is_unknown:
            hand.ready.discard(task.order)
            self._ask(hand, task)
        elif hand.is_preparing and answer.fault is None:
            hand.ready.add(task.order)
            spent = self.counts.spent.setdefault(task.title, Spent())
            spent.ready, spent.ready_s = spent.ready + 1, spent.ready_s + answer.time_s
            if task.is_done or task.is_dropped:
                hand.task = None
            else:
                self._ask(hand, task)
        else:
            hand.task = None
            if task.finish(answer):
                self.counts.done += 1
                spent = self.counts.spent.setdefault(task.title, Spent())
                spent.tasks, spent.time_s = spent.tasks + 1, spent.time_s + answer.time_s
                self._queue.times_s.append(answer.time_s)
            else:
                self.counts.twice += 1

    def close(self) -> None:
        """Let all workers go."""
        for hand in self._hands:
            if hand.is_here and hand.under_way is None:
                leaving = hand.actor.leave.remote()
                self._ray.wait([leaving], timeout=_LOOK_EVERY_S)
            self._ray.kill(hand.actor, no_restart=True)
        self._hands.clear()


class _RayTeam:
    """The workers of a crew, for one order."""

    def __init__(self, crew: RayCrew, key: int) -> None:
        self._crew, self._key = crew, key

    @property
    def width(self) -> int:
        # Results are taken in their order: with four for each worker a slow one keeps the others from little, as
        # benchmarks/cluster_simulation.py shows, and no more of them have to be held.
        return 4 * self._crew.workers

    def start(self, item: Any) -> "_Pending":
        return _Pending(self, self._crew, self._crew.start(self._key, item))


class _Pending:
    def __init__(self, team: _RayTeam, crew: RayCrew, task: Task) -> None:
        self._team, self._crew, self._task = team, crew, task  # who waits keeps the order

    def result(self) -> Any:
        return self._crew.wait_for(self._task)

    def drop(self) -> None:
        self._task.is_dropped = True


def either_voice() -> Voice:
    """Who is spoken to here, and so by the workers."""
    return Voice(either(Voice.SHELL.value, Voice.PYTHON.value))


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
