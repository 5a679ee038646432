"""Interleaved timing of models: turns alternate, so that machine drift affects all alike, in
balanced order.

Each model has its own process, started anew several times. A pause, in which spinning threads of
others go to sleep, and an untimed call precede each timed turn.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial

from mezzo.common.errors import ContractError
from mezzo.contracts.frontend import Progress
from mezzo.contracts.timings import Runner, Stopwatch

PAUSE_S = 0.02
_SHORTEST_NS = 2e6  # minimum length of a timed turn: several shorter calls are timed at once
_MOST_CALLS = 1000
_STAGE = "timing"
LEAST_ROUNDS = 8  # fewer leave the confidence interval of the median unbounded


@dataclass(frozen=True, slots=True, kw_only=True)
class Turning:
    """Length of a timing run: `starts` with `rounds` in total, or until `seconds` are over; at
    least one round. `turns_s`: time for the turns alone, loading not counted; at least
    `LEAST_ROUNDS` in total.
    """

    starts: int
    rounds: int | None
    seconds: float | None
    pause_s: float = PAUSE_S
    turns_s: float | None = None


# Default: this many rounds, or this long.
USUAL = Turning(starts=5, rounds=60, seconds=60.0)


@dataclass(slots=True)
class Taken:
    """One model's times: ns per call by start and round, each a mean of `calls`; or its fault."""

    turns_ns: list[list[float]] = field(default_factory=list)
    calls: int = 0
    fault: str | None = None


class _Course:
    """A timing run in progress."""

    def __init__(
        self,
        watches: Sequence[Stopwatch],
        turning: Turning,
        progress: Progress | None,
        now: Callable[[], float],
    ) -> None:
        self._watches, self._turning, self._progress, self._now = watches, turning, progress, now
        self._begin_s = now()
        self._rounds, self._turned_s = 0, 0.0
        self.taken = [Taken() for _ in watches]

    def run(self) -> None:
        left = self._turning.rounds
        for start in range(self._turning.starts):
            remaining = self._turning.starts - start
            rounds = None if left is None else math.ceil(left / remaining)
            if rounds == 0 or (start and self._is_over(self._turning.starts)):
                break
            began = self._rounds
            self._start_once(rounds, start)
            left = None if left is None else left - (self._rounds - began)

    def _start_once(self, rounds: int | None, start: int) -> None:
        """Load every model that runs, and time rounds of turns."""
        with ExitStack() as open_:
            running: dict[int, Runner] = {}
            for number, watch in enumerate(self._watches):
                if self.taken[number].fault is None:
                    self._tell(f"loading {number + 1} of {len(self._watches)}")
                    self._try(number, partial(self._load, watch, number, running, open_))
            for number in running:
                self.taken[number].turns_ns.append([])
            count = 0
            while (
                running
                and (rounds is None or count < rounds)
                and not (count and self._is_over(start + 1))
            ):
                began_s = self._now()
                for number in order_of(list(running), self._rounds):
                    self._try(number, partial(self._turn, running[number], number))
                running = {
                    number: runner
                    for number, runner in running.items()
                    if self.taken[number].fault is None
                }
                count, self._rounds = count + 1, self._rounds + 1
                self._turned_s += self._now() - began_s
                self._tell(_STAGE)

    def _load(
        self, watch: Stopwatch, number: int, running: dict[int, Runner], open_: ExitStack
    ) -> None:
        runner = open_.enter_context(closing(watch.start()))
        times = self.taken[number]
        if not times.calls:
            first_ns = max(1.0, runner.turn(self._turning.pause_s, 1))
            times.calls = min(_MOST_CALLS, max(1, math.ceil(_SHORTEST_NS / first_ns)))
        running[number] = runner

    def _turn(self, runner: Runner, number: int) -> None:
        times = self.taken[number]
        times.turns_ns[-1].append(runner.turn(self._turning.pause_s, times.calls))

    def _try(self, number: int, step: Callable[[], None]) -> None:
        """Run a step; a model that fails leaves the run, and its times are dropped."""
        try:
            step()
        except ContractError as error:
            self.taken[number] = Taken(fault=str(error))

    def _is_over(self, starts: int) -> bool:
        """Whether the time for this many starts is used up."""
        limit = self._turning.turns_s
        if limit is not None:
            share = starts / self._turning.starts
            return self._rounds >= LEAST_ROUNDS * share and self._turned_s >= limit * share
        budget = self._turning.seconds
        return (
            budget is not None
            and self._now() - self._begin_s >= budget * starts / self._turning.starts
        )

    def _tell(self, stage: str) -> None:
        if self._progress is not None:
            self._progress(stage, self._rounds if stage == _STAGE else 0, self._turning.rounds or 0)


def take_turns(
    watches: Sequence[Stopwatch],
    turning: Turning,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Sequence[Taken]:
    """Time models side by side. A model that fails is dropped; the others go on."""
    course = _Course(watches, turning, progress, now)
    course.run()
    return course.taken


def order_of(numbers: Sequence[int], round_: int) -> list[int]:
    """The order of models in a round: over rounds, each is first equally often, and follows each
    neighbour equally often.
    """
    turn = round_ // 2 % len(numbers)
    order = [*numbers[turn:], *numbers[:turn]]
    return order[::-1] if round_ % 2 else order
