"""Executor job that runs two models on one batch: outputs, and inner values of both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mezzo.contracts.executor import prepare, width_of
from mezzo.contracts.frontend import Model, lab_of
from mezzo.contracts.lab import Answers, Feeds, Layers, Pair, Running, Sessions


@dataclass(frozen=True, slots=True)
class Answered:
    """Outputs of both models, by the reference's names, and notes about the runs for the reader."""

    answers: tuple[Answers, Answers]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PairJob:
    """Runs a reference and a candidate on one batch's feeds, with these layers as extra outputs.
    The item None loads both models and returns no outputs.
    """

    running: Running
    layers: tuple[str, ...]
    title: str = "comparison"

    def open(self, models: Sequence[Model]) -> Callable[[Feeds | None], Answered]:
        reference, candidate = models
        pair = lab_of(reference).pair(candidate.runnable(candidate.original), self.running)
        available = pair.layers() if self.layers else {}
        return open_pair(pair, {name: available[name] for name in self.layers})


def open_pair(pair: Pair, layers: Layers) -> Callable[[Feeds | None], Answered]:
    """Load an open pair with these layers."""
    return _Answering(pair.load(layers))


class _Answering:
    """Two loaded models as a function of feeds."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    @property
    def width(self) -> int:
        return width_of(self._sessions)

    def prepare(self, many: Sequence[Feeds | None]) -> None:
        prepare(self._sessions, [feeds for feeds in many if feeds is not None])

    def __call__(self, feeds: Feeds | None) -> Answered:
        answers: tuple[Answers, Answers] = ({}, {}) if feeds is None else self._sessions.run(feeds)
        return Answered(answers, tuple(self._sessions.notes()))
