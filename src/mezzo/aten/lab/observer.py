"""Observers: yield chosen values of a program during a run."""

from collections.abc import Iterator, Sequence

import torch
from torch import fx

from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.runner import AtenRunner
from mezzo.aten.read.read import TorchReading
from mezzo.contracts.lab import Feeds, ObservedValue

# Limit in bytes on the values of one run; larger sets are split over several runs.
_MOST_BYTES = 1 << 29


class AtenObserver:
    """A program that yields intermediate values, selected by id."""

    def __init__(self, reading: TorchReading, values: Sequence[int]) -> None:
        self._runner = AtenRunner(reading.program)
        self._parts: list[list[int]] = [list(values)]
        self._holders = reading.holders

    def show(self, feeds: Feeds) -> Iterator[ObservedValue]:
        """Run the program and yield each value. Raises InputError: the feeds do not fit."""
        largest = 0
        for part in self._parts:
            shown = self._run(feeds, part)
            largest = max(largest, sum(value.numbers.nbytes for value in shown))
            yield from shown
        if largest > _MOST_BYTES:
            count = -(-largest // _MOST_BYTES)
            self._parts = [
                part[offset::count]
                for part in self._parts
                for offset in range(count)
                if part[offset::count]
            ]

    def _run(self, feeds: Feeds, values: Sequence[int]) -> list[ObservedValue]:
        numbers = {
            holder: value for value in values if (holder := self._holders[value]) is not None
        }
        shown: list[ObservedValue] = []

        def watch(node: fx.Node, tensor: torch.Tensor) -> None:
            if node in numbers:
                shown.append(ObservedValue(numbers[node], array_of(tensor.to(torch.float32))))

        self._runner.run(feeds, watch)
        return shown
