"""Jobs for tests, and how to kill who does them."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mezzo.clusters.executor import RayExecutor
from mezzo.common.errors import InputError
from mezzo.contracts.frontend import Model


@dataclass(frozen=True, slots=True)
class Doubling:
    """Doubles numbers, each in a while; dies of one number, always or once, and finds fault with another."""

    deadly: int | None = None
    faulty: int | None = None
    dies_once_by: str | None = None  # a file that says that it has died
    takes_s: float = 0.0
    slow: int | None = None
    title: str = "doubling"

    def open(self, models: Sequence[Model]) -> Callable[[int], tuple[int, int]]:
        def double(number: int) -> tuple[int, int]:
            time.sleep(self.takes_s)
            if number == self.deadly and not (self.dies_once_by and os.path.exists(self.dies_once_by)):
                if self.dies_once_by:
                    Path(self.dies_once_by).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if number == self.faulty:
                raise InputError(f"{number} is no number that can be doubled; give another")
            return 2 * number, os.getpid()

        return double


class Killer:
    """Kills workers of a crew at random moments, so many, as a seed draws, while it is open."""

    def __init__(self, executor: RayExecutor, seed: int, kills: int, pause_s: float) -> None:
        self._crew, self._rng, self._left, self._pause_s = executor, random.Random(seed), kills, pause_s
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._is_over = threading.Event()
        self.killed = 0

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        while self._left and not self._is_over.wait(self._rng.uniform(0.5, 1.5) * self._pause_s):
            pids = self._crew.pids()
            if pids:
                try:
                    os.kill(self._rng.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                self._left -= 1
                self.killed += 1
