"""Feeds of many steps, in which outputs of a model become its inputs at the next step. Each model
is fed its own outputs, so its errors accumulate as in use.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from mezzo.common.errors import ContractError, InputError
from mezzo.common.memory import current_memory_limit
from mezzo.common.message_style import option
from mezzo.contracts.lab import Answers, Feeds, Run

# Output names, each with the input that it becomes at the next step.
Feedback = tuple[tuple[str, str], ...]

# Bound on the outputs of all steps together.
_MOST_BYTES = 2 << 30


class StepFeeds(Mapping[str, Any]):
    """The feeds of all steps. As a mapping it has the initial states, and other inputs stacked
    along a new first axis; of an input whose shape differs between steps, the last one.
    """

    def __init__(self, feedback: Feedback, initial: Feeds, each: Sequence[Feeds]) -> None:
        """`initial`: the first step's states; `each`: the other inputs of each step."""
        self.feedback, self.initial, self.each = feedback, dict(initial), tuple(each)

    @cached_property
    def _stacked(self) -> dict[str, Any]:
        rows = {name: _stack([feeds[name] for feeds in self.each]) for name in self.each[0]}
        rows = {name: row[-1] if isinstance(row, list) else row for name, row in rows.items()}
        return {**self.initial, **rows}

    def __getitem__(self, name: str) -> Any:
        return self._stacked[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacked)

    def __len__(self) -> int:
        return len(self._stacked)

    @property
    def first(self) -> Feeds:
        """The feeds of the first step."""
        return {**self.each[0], **self.initial}

    def map(self, change: Callable[[Feeds], Feeds]) -> "StepFeeds":
        """The same steps with changed feeds."""
        return StepFeeds(
            self.feedback, change(self.initial), [change(feeds) for feeds in self.each]
        )

    def walk(self, run: Run) -> Iterator[tuple[Feeds, Answers]]:
        """Run step by step; yields each step's feeds, states included, and its outputs."""
        state = self.initial
        for number, feeds in enumerate(self.each, 1):
            fed = {**feeds, **state}
            try:
                answers = run(fed)
            except (ContractError, InputError) as error:
                raise type(error)(f"step {number:,}: {error}") from error
            yield fed, answers
            state = {name: answers[output] for output, name in self.feedback}


class StepOutputs:
    """The outputs of one model, collected step by step. `last_only`: values of which only the last
    step is kept.
    """

    def __init__(self, steps: StepFeeds, last_only: Collection[str] = ()) -> None:
        self._steps, self._last_only = len(steps.each), last_only
        self._states = {output for output, _ in steps.feedback}
        self._kept: dict[str, list[Any]] = {}
        self._bytes = 0
        self._most_bytes = current_memory_limit().share_bytes(_MOST_BYTES)

    def add(self, answers: Answers) -> None:
        """Add a step. Raises InputError: the outputs of all steps would not fit in memory."""
        for name, value in answers.items():
            kept = self._kept.setdefault(name, [])
            # A cache that grows holds all that it held before.
            is_grown = name in self._states and kept and np.shape(kept[-1]) != np.shape(value)
            if name in self._last_only or is_grown:
                kept.clear()
            else:
                self._bytes += getattr(value, "nbytes", 0)
            kept.append(value)
        if self._bytes > self._most_bytes:
            raise InputError(
                f"the outputs of {self._steps:,} steps take more than"
                f" {self._most_bytes >> 20:,} MB; give fewer, as {option('steps')} does"
            )

    def result(self) -> Answers:
        """Each output, its steps stacked along a new first axis; a list of them if their shapes
        differ; of a growing cache the last one.
        """
        return {
            name: _stack(kept) if len(kept) == self._steps and name not in self._last_only
            else kept[-1]
            for name, kept in self._kept.items()
        }  # fmt: skip


def _stack(values: list[Any]) -> Any:
    is_even = all(
        isinstance(value, np.ndarray) and value.shape == values[0].shape for value in values
    )
    return np.stack(values) if is_even else values


def count_steps(feeds: Feeds) -> int | None:
    """The number of steps; None for the feeds of a single call."""
    return len(feeds.each) if isinstance(feeds, StepFeeds) else None


def first_feeds(feeds: Feeds) -> Feeds:
    """The feeds of a single call: of the first step if there are several."""
    return feeds.first if isinstance(feeds, StepFeeds) else feeds
