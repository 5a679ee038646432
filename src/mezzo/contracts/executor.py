"""Executors of independent work items: this process, or a cluster of workers if requested
(`mezzo.cluster`).

The work is a `Job`: a named class of the project with plain frozen data, never a closure, so that
it can be sent to other processes. Results arrive in the order of the items on every executor, so
sums over them are bit-identical. Work on the items as a whole stays with the caller.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from mezzo.contracts.frontend import Model

Item = TypeVar("Item")
Result = TypeVar("Result")
_Taken = TypeVar("_Taken", contravariant=True)
_Given = TypeVar("_Given", covariant=True)


class Job(Protocol[_Taken, _Given]):
    """Work to do on items. Fields are plain and frozen; `title` names it for users: "ranges"."""

    @property
    def title(self) -> str: ...
    def open(self, models: "Sequence[Model]") -> Callable[[_Taken], _Given]:
        """Prepare the job on open models; the returned function is called once per item, in any
        order. Its results depend on the item alone, not on earlier items.
        """


class Pending(Protocol[_Given]):
    """A submitted item."""

    def result(self) -> _Given:
        """Wait for the result. Raises what the job raises."""

    def drop(self) -> None:
        """Discard the item: its result is no longer needed."""


class Team(Protocol[_Taken, _Given]):
    """Workers on one job. `width`: items worth submitting before the first result is requested."""

    @property
    def width(self) -> int: ...
    def start(self, item: _Taken) -> Pending[_Given]:
        """Submit an item."""


class Executor(Protocol):
    """Runs jobs. An executor outlives its jobs and caches open models between them."""

    def team(
        self,
        job: Job[Item, Result],
        models: "Callable[[], Sequence[Model]]",
        here: Callable[[], Callable[[Item], Result]],
    ) -> Team[Item, Result]:
        """Prepare a job. `models`: what it works on, for workers that have to open them; `here`:
        prepares the job in this process, where they are open already.
        """


@runtime_checkable
class Foresighted(Protocol):
    """A function that is faster if it gets several upcoming items at once, `width` of them."""

    @property
    def width(self) -> int: ...
    def prepare(self, many: Sequence[Any]) -> None:
        """Announce the next items. Raises nothing: failures are raised when an item runs."""


def width_of(worker: object) -> int:
    """How many items to announce together."""
    return worker.width if isinstance(worker, Foresighted) else 1


def prepare(worker: object, many: Sequence[Any]) -> None:
    """Announce the next items to a worker that accepts this."""
    if isinstance(worker, Foresighted):
        worker.prepare(many)


class _Alone(Generic[Item, Result]):
    """Serial execution: an item is processed when its result is requested."""

    def __init__(self, run: Callable[[Item], Result]) -> None:
        self._run = run
        self._waiting: list[_Later[Item, Result]] = []

    @property
    def width(self) -> int:
        return width_of(self._run)

    def start(self, item: Item) -> "_Later[Item, Result]":
        later = _Later(self, item)
        self._waiting.append(later)
        return later

    def finish(self, later: "_Later[Item, Result]") -> Result:
        if not later.is_prepared and self.width > 1:
            prepare(self._run, [pending.item for pending in self._waiting])
            for pending in self._waiting:
                pending.is_prepared = True
        self.drop(later)
        return self._run(later.item)

    def drop(self, later: "_Later[Item, Result]") -> None:
        if later in self._waiting:
            self._waiting.remove(later)


class _Later(Generic[Item, Result]):
    def __init__(self, team: _Alone[Item, Result], item: Item) -> None:
        self._team, self.item = team, item
        self.is_prepared = False

    def result(self) -> Result:
        return self._team.finish(self)

    def drop(self) -> None:
        self._team.drop(self)


class ThisProcess:
    """Runs all jobs in this process."""

    def team(
        self,
        job: Job[Item, Result],
        models: "Callable[[], Sequence[Model]]",
        here: Callable[[], Callable[[Item], Result]],
    ) -> Team[Item, Result]:
        return _Alone(here())


HERE = ThisProcess()
_at_work: ContextVar[Executor] = ContextVar("at_work", default=HERE)


def crew_at_work() -> Executor:
    """The current executor."""
    return _at_work.get()


@contextmanager
def working_with(executor: Executor) -> Iterator[None]:
    """Context manager that sets the current executor."""
    token = _at_work.set(executor)
    try:
        yield
    finally:
        _at_work.reset(token)


def in_turn(team: Team[Item, Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in order; at most `team.width` are submitted ahead, and later items
    are not created yet.
    """
    waiting: deque[tuple[Item, Pending[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, team.start(item)))
            if len(waiting) >= team.width:
                done, pending = waiting.popleft()
                yield done, pending.result()
        while waiting:
            done, pending = waiting.popleft()
            yield done, pending.result()
    finally:
        for _, pending in waiting:
            pending.drop()
