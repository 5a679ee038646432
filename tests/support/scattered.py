"""A crew for tests, in this process: benches of its own, items to whichever of them a seed says, results of any order.

All that it is handed goes through pickle, as it would on its way to another process.
"""

import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

from mezzo.contracts.executor import Job


class Scattered:
    """Does each item on one of `benches` that a seed draws, and the items that wait in an order that it draws too."""

    def __init__(self, seed: int, benches: int) -> None:
        self._rng, self._benches = random.Random(seed), benches
        self.done = 0

    def team(
        self,
        job: Job[Any, Any],
        models: Callable[[], Sequence[Any]],
        here: Callable[[], Callable[[Any], Any]],
    ) -> "_ScatteredTeam":
        sent = pickle.dumps(job)
        opened = models()
        return _ScatteredTeam(self, [pickle.loads(sent).open(opened) for _ in range(self._benches)], self._rng)


class _ScatteredTeam:
    def __init__(self, executor: Scattered, benches: Sequence[Callable[[Any], Any]], rng: random.Random) -> None:
        self._crew, self._benches, self._rng = executor, benches, rng
        self._waiting: list[_Awaited] = []

    @property
    def width(self) -> int:
        return 2 * len(self._benches)

    def start(self, item: Any) -> "_Awaited":
        self._waiting.append(_Awaited(self, pickle.dumps(item)))
        return self._waiting[-1]

    def work_until(self, awaited: "_Awaited") -> None:
        while not awaited.is_done:
            other = self._waiting.pop(self._rng.randrange(len(self._waiting)))
            if not other.is_dropped:
                other.do(self._rng.choice(self._benches))
                self._crew.done += 1


class _Awaited:
    def __init__(self, team: _ScatteredTeam, item: bytes) -> None:
        self._team, self._item = team, item
        self.is_done = self.is_dropped = False
        self._outcome: Any = None
        self._error: Exception | None = None

    def do(self, run: Callable[[Any], Any]) -> None:
        try:
            self._outcome = pickle.loads(pickle.dumps(run(pickle.loads(self._item))))
        except Exception as error:  # noqa: BLE001  raised again where it is asked for
            self._error = error
        self.is_done = True

    def result(self) -> Any:
        self._team.work_until(self)
        if self._error is not None:
            raise self._error
        return self._outcome

    def drop(self) -> None:
        self.is_dropped = True
