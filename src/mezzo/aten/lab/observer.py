"""Shows what values of a program hold while it runs, one after the other."""

from collections.abc import Iterator, Sequence

import torch
from torch import fx

from mezzo.aten.lab.arrays import array_of
from mezzo.aten.lab.runner import Runner
from mezzo.aten.read.read import TorchReading
from mezzo.contracts.lab import Feeds, Shown

# What the values of one run may take together; those of more are shown in several runs.
_MOST_BYTES = 1 << 29


class Observer:
    """A program that shows values, by their ids."""

    def __init__(self, reading: TorchReading, values: Sequence[int]) -> None:
        self._runner = Runner(reading.program)
        self._parts: list[list[int]] = [list(values)]
        self._holders = reading.holders

    def show(self, feeds: Feeds) -> Iterator[Shown]:
        """Run the program, and hand on what each value holds. Raises InputError: the feeds do not fit."""
        most = 0
        for part in self._parts:
            shown = self._run(feeds, part)
            most = max(most, sum(each.numbers.nbytes for each in shown))
            yield from shown
        if most > _MOST_BYTES:
            count = -(-most // _MOST_BYTES)
            self._parts = [part[at::count] for part in self._parts for at in range(count) if part[at::count]]

    def _run(self, feeds: Feeds, values: Sequence[int]) -> list[Shown]:
        numbers = {holder: value for value in values if (holder := self._holders[value]) is not None}
        shown: list[Shown] = []

        def watch(node: fx.Node, held: torch.Tensor) -> None:
            if node in numbers:
                shown.append(Shown(numbers[node], array_of(held.to(torch.float32))))

        self._runner.run(feeds, watch)
        return shown
