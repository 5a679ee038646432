"""Models run in turns: who comes after whom, how much is run, what a failing one costs. Nothing is timed: stand-ins
tell made-up times, and the clock is theirs.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from mezzo.common.errors import ContractError
from mezzo.contracts.timings import LayerTime, ProductKernels
from mezzo.tuning.timing.interleaved_timing import LEAST_ROUNDS, Taken, Turning, order_of, take_turns


@dataclass
class World:
    """What happens in order, and a clock that turns move."""

    now_s: float = 0.0
    log: list[str] = field(default_factory=list)


@dataclass
class Standin:
    """A model that takes `time_ns` per call, and fails as told: at a start, or at a turn of it."""

    world: World
    name: str
    time_ns: float = 5e6
    fails_start: int | None = None
    fails_turn: int | None = None
    starts: int = 0
    turns: int = 0
    calls: list[int] = field(default_factory=list)

    def start(self) -> "Standin":
        self.starts += 1
        if self.starts == self.fails_start:
            raise ContractError(f"{self.name} does not load")
        self.world.log.append(f"+{self.name}")
        self.world.now_s += 1
        return self

    def turn(self, pause_s: float, calls: int) -> float:
        self.turns += 1
        self.calls.append(calls)
        if self.turns == self.fails_turn:
            raise ContractError(f"{self.name} crashed")
        self.world.log.append(self.name)
        self.world.now_s += 0.1
        return self.time_ns + self.turns

    def answer(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        raise AssertionError("nobody asked")

    def kernels(self) -> ProductKernels:
        raise AssertionError("nobody asked")

    def layers(self, runs: int) -> Sequence[LayerTime]:
        raise AssertionError("nobody asked")

    def close(self) -> None:
        self.world.log.append(f"-{self.name}")


def take(
    world: World, models: Sequence[Standin], *, starts: int = 2, rounds: int | None = 6, seconds: float | None = None
) -> Sequence[Taken]:
    turning = Turning(starts=starts, rounds=rounds, seconds=seconds, pause_s=0.0)
    return take_turns(models, turning, now=lambda: world.now_s)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_every_model_is_first_as_often_and_in_each_place(count: int) -> None:
    orders = [order_of(range(count), round_) for round_ in range(2 * count)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    for place in range(count):
        assert set(Counter(order[place] for order in orders).values()) == {2}


def test_models_of_a_start_live_at_once_and_end_with_it() -> None:
    world = World()
    take(world, [Standin(world, "a"), Standin(world, "b")], starts=2, rounds=4)
    #  One turn each finds out how many calls a timed turn needs.
    assert " ".join(world.log) == "+a a +b b a b b a -b -a +a +b b a a b -b -a"


def test_rounds_are_spread_over_starts() -> None:
    world = World()
    (taken,) = take(world, [Standin(world, "a")], starts=3, rounds=8)
    assert [len(start) for start in taken.turns_ns] == [3, 3, 2]


def test_fewer_rounds_than_starts_are_not_more_than_asked_for() -> None:
    world = World()
    (taken,) = take(world, [Standin(world, "a")], starts=5, rounds=2)
    assert [len(start) for start in taken.turns_ns] == [1, 1]


@pytest.mark.parametrize(("time_ns", "calls"), [(5e6, 1), (2e6, 1), (5e5, 4), (10.0, 1000)])
def test_short_calls_are_timed_several_at_once(time_ns: float, calls: int) -> None:
    world = World()
    model = Standin(world, "a", time_ns)
    (taken,) = take(world, [model])
    assert taken.calls == calls and model.calls == [1] + [calls] * 6


@pytest.mark.parametrize("broken", [{"fails_start": 1}, {"fails_start": 2}, {"fails_turn": 1}, {"fails_turn": 3}])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_model_that_fails_is_left_out_and_the_others_go_on(broken: dict[str, int], place: int) -> None:
    world = World()
    models = [Standin(world, name) for name in "abc"]
    models[place] = Standin(world, "x", **broken)  # type: ignore[arg-type]  # numbers by name
    taken = take(world, models)
    assert taken[place].fault in ("x does not load", "x crashed") and taken[place].turns_ns == []
    assert [[len(start) for start in taken[n].turns_ns] for n in range(3) if n != place] == [[3, 3], [3, 3]]
    opened = Counter(entry.lstrip("+") for entry in world.log if entry.startswith("+"))
    assert opened == Counter(entry.lstrip("-") for entry in world.log if entry.startswith("-"))


def test_all_that_fail_end_it() -> None:
    world = World()
    assert [each.fault for each in take(world, [Standin(world, "a", fails_start=1)])] == ["a does not load"]


@pytest.mark.parametrize(("seconds", "wanted"), [(0.001, [1]), (2.25, [1, 1]), (12.05, [30, 30, 30])])
def test_time_is_shared_by_starts_and_one_round_is_always_run(seconds: float, wanted: list[int]) -> None:
    """A load takes a second of the made-up clock, a turn a tenth of one."""
    world = World()
    (taken,) = take(world, [Standin(world, "a")], starts=3, rounds=None, seconds=seconds)
    assert [len(start) for start in taken.turns_ns] == wanted


def test_whichever_limit_is_met_first_ends_it() -> None:
    world = World()
    (taken,) = take(world, [Standin(world, "a")], starts=2, rounds=4, seconds=1e9)
    assert [len(start) for start in taken.turns_ns] == [2, 2]


def test_interrupt_ends_every_process() -> None:
    world = World()

    class Interrupted(Standin):
        def turn(self, pause_s: float, calls: int) -> float:
            raise KeyboardInterrupt

    models: list[Standin] = [Standin(world, "a"), Interrupted(world, "b")]
    with pytest.raises(KeyboardInterrupt):
        take(world, models)
    assert world.log[-1] == "-a" and "-b" in world.log


def test_progress_tells_rounds() -> None:
    world, told = World(), []
    report: Callable[[str, int, int], None] = lambda *state: told.append(state)  # noqa: E731
    turning = Turning(starts=1, rounds=2, seconds=None, pause_s=0.0)
    take_turns([Standin(world, "a")], turning, report, now=lambda: world.now_s)
    assert told == [("loading 1 of 1", 0, 2), ("timing", 1, 2), ("timing", 2, 2)]


@pytest.mark.parametrize("turns_s", [0.5, 5.0])
def test_turns_are_bounded_by_their_own_time_and_loading_costs_none_of_it(turns_s: float) -> None:
    world = World()
    turning = Turning(starts=1, rounds=None, seconds=None, pause_s=0.0, turns_s=turns_s)
    models = [Standin(world, "a"), Standin(world, "b")]
    taken = take_turns(models, turning, now=lambda: world.now_s)
    rounds = max(LEAST_ROUNDS, round(turns_s / 0.2))  # two turns of a tenth of a second each
    assert [len(each.turns_ns[0]) for each in taken] == pytest.approx([rounds, rounds], abs=1)
