"""Executors of work that comes in items: this process, unless a cluster of workers was asked for (`mezzo.cluster`).

What is to be done is a `Job`: a named class of the project with plain frozen data, never a closure, so that it can be
sent. Results come in the order of the items whoever did them, so what adds them up in that order has the same bytes
however the work was split. What has to be seen as a whole stays with whoever asks.
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
    """What is to be done with items. Its fields are plain and frozen; `title` is what people call it: "ranges"."""

    @property
    def title(self) -> str: ...
    def open(self, models: "Sequence[Model]") -> Callable[[_Taken], _Given]:
        """Make it ready on models that are open; what comes back is called once per item, in any order.

        Its results depend on the item alone, and not on the items before.
        """


class Pending(Protocol[_Given]):
    """An item that was handed over."""

    def result(self) -> _Given:
        """What came of it, waited for. Raises what the job raises."""

    def drop(self) -> None:
        """Nobody waits for it any more."""


class Team(Protocol[_Taken, _Given]):
    """Those who do one job. `width` items are worth handing over before the first result is asked for."""

    @property
    def width(self) -> int: ...
    def start(self, item: _Taken) -> Pending[_Given]:
        """Hand an item over."""


class Executor(Protocol):
    """Runs jobs. An executor outlives its jobs, and keeps models open between them."""

    def team(
        self,
        job: Job[Item, Result],
        models: "Callable[[], Sequence[Model]]",
        here: Callable[[], Callable[[Item], Result]],
    ) -> Team[Item, Result]:
        """Make a job ready. `models` are what it works on, for those who have to open them; `here` makes it ready in
        this process, where they are open already.
        """


@runtime_checkable
class Foresighted(Protocol):
    """What works better where it is told of several items before they are asked for, `width` of them."""

    @property
    def width(self) -> int: ...
    def prepare(self, many: Sequence[Any]) -> None:
        """These are asked for next. Raises nothing: what cannot be done is said where it is asked for."""


def width_of(worker: object) -> int:
    """How many items are worth telling it of together."""
    return worker.width if isinstance(worker, Foresighted) else 1


def prepare(worker: object, many: Sequence[Any]) -> None:
    """Tell it of items that are asked for next, where it wants to know."""
    if isinstance(worker, Foresighted):
        worker.prepare(many)


class _Alone(Generic[Item, Result]):
    """One item after the other, when its result is asked for."""

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
            prepare(self._run, [other.item for other in self._waiting])
            for other in self._waiting:
                other.is_prepared = True
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
    """Does everything itself, which costs nothing."""

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
    """Who works for whoever asks."""
    return _at_work.get()


@contextmanager
def working_with(executor: Executor) -> Iterator[None]:
    """Let an executor do the work while this lasts."""
    token = _at_work.set(executor)
    try:
        yield
    finally:
        _at_work.reset(token)


def in_turn(team: Team[Item, Result], items: Iterable[Item]) -> Iterator[tuple[Item, Result]]:
    """Items with their results, in their order; at most `team.width` are with the team, and no item is made before."""
    waiting: deque[tuple[Item, Pending[Result]]] = deque()
    try:
        for item in items:
            waiting.append((item, team.start(item)))
            if len(waiting) >= team.width:
                first, pending = waiting.popleft()
                yield first, pending.result()
        while waiting:
            first, pending = waiting.popleft()
            yield first, pending.result()
    finally:
        for _, pending in waiting:
            pending.drop()
