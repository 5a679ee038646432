"""Lost workers, on a Ray whose calls end when a test says so: what is begun again, and what users are told."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from mezzo.clusters import tasks
from mezzo.clusters.executor import RayExecutor
from mezzo.clusters.worker import Worker
from mezzo.contracts.executor import Pending
from mezzo.contracts.frontend import Model


class ActorError(Exception):
    """A call to a worker that is lost."""


@dataclass(eq=False)
class Call:
    """A pending call: it ends when a test answers it, or with its worker."""

    answer: Callable[[], Any]
    has_ended: bool = False
    is_lost: bool = False


class FakeRay:
    """The part of Ray that the executor uses. Calls other than `run` end at once."""

    exceptions = SimpleNamespace(RayActorError=ActorError, RayError=ActorError)

    def __init__(self) -> None:
        self.runs: list[Call] = []

    def remote(self, **_: Any) -> Callable[[type], Any]:
        return lambda kind: SimpleNamespace(remote=lambda: self._actor(kind()))

    def _actor(self, worker: Worker) -> Any:
        def called(name: str, *arguments: Any) -> Call:
            call = Call(lambda: getattr(worker, name)(*arguments), has_ended=name != "run")
            self.runs += [call] if name == "run" else []
            return call

        def method(name: str) -> Any:
            return SimpleNamespace(remote=lambda *arguments: called(name, *arguments))

        return SimpleNamespace(**{name: method(name) for name in ("greet", "prepare", "run", "leave")})

    def put(self, thing: Any) -> Any:
        return thing

    def wait(self, calls: list[Call], **_: Any) -> tuple[list[Call], list[Call]]:
        ended = [call for call in calls if call.has_ended]
        assert ended, "every call is pending, so this would wait for ever"
        return ended[:1], []

    def get(self, call: Call) -> Any:
        if call.is_lost:
            raise ActorError("the actor died")
        return call.answer()

    def kill(self, actor: Any, **_: Any) -> None:
        pass


@dataclass(frozen=True)
class Doubling:
    title: str = "doubling"

    def open(self, models: Sequence[Model]) -> Callable[[int], int]:
        return lambda number: 2 * number


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> FakeRay:
    monkeypatch.setattr(tasks, "_SLOW_S", -1.0)  # every task is late at once
    monkeypatch.setattr(tasks, "_SLOW_TIMES", 0.0)
    return FakeRay()


def begin_twice(ray: FakeRay, told: list[str]) -> tuple[RayExecutor, Pending[int]]:
    """An executor whose two workers run the same task."""
    executor = RayExecutor(ray, 2, told.append)
    executor._queue.times_s.append(1.0)
    pending = executor.team(Doubling(), list, lambda: int).start(4)
    while len(ray.runs) < 2:
        executor._step()
    told.clear()
    return executor, pending


def test_a_lost_worker_begins_nothing_again_whose_answer_is_in(ray: FakeRay) -> None:
    told: list[str] = []
    executor, pending = begin_twice(ray, told)
    ray.runs[0].has_ended = True
    assert pending.result() == 8
    ray.runs[1].has_ended = ray.runs[1].is_lost = True
    executor._step()
    assert told == ["a worker was lost; another takes its place"]
    assert (executor.counts.lost, executor.counts.again, executor.counts.done) == (1, 0, 1)


def test_a_lost_worker_begins_nothing_again_that_another_runs(ray: FakeRay) -> None:
    told: list[str] = []
    executor, pending = begin_twice(ray, told)
    ray.runs[0].has_ended = ray.runs[0].is_lost = True
    executor._step()
    assert told[0] == "a worker was lost; another takes its place"
    assert executor.counts.again == 0
    ray.runs[1].has_ended = True
    assert pending.result() == 8


def test_a_task_whose_workers_are_all_lost_is_begun_again(ray: FakeRay) -> None:
    told: list[str] = []
    executor, pending = begin_twice(ray, told)
    for call in ray.runs[:2]:
        call.has_ended = call.is_lost = True
    executor._step()
    executor._step()
    assert "a worker was lost; another takes its place, and task 0 of doubling is begun again" in told
    assert executor.counts.lost == 2 and executor.counts.again == 1
    while len(ray.runs) < 3:
        executor._step()
    ray.runs[2].has_ended = True
    assert pending.result() == 8
